"""How long a rank is usually silent, phase by phase, and from when on that is a hang. Pure: learned from gaps alone.

A gap is the time between two signs of a rank: a step that moved on, the begin or the end of a phase. What a phase's gaps were
is known for the whole job; a hang that ends in a restart is no gap, so it teaches nothing.
"""

from __future__ import annotations

from collections import deque

FACTOR = 2.5  # beyond so many usual gaps it is a hang: the promise is 3, which leaves time to look and to tell
LONGEST_SHARE = 1.5  # the longest gap of late counts as a usual one of so much less: a hang is beyond 1.7 of it
QUANTILE = 0.95
RECENT = 128  # gaps that the quantile is taken from
SPAN = 500  # gaps after which the longest of the span before is forgotten
LASTING = 10_000  # gaps for which one that was called a hang and was none is remembered
FEW = 3  # gaps of each rank before a phase is known
PATIENCE = 10  # floors that a phase has for itself while it is not known


class Gaps:
    """The gaps of one phase, of all ranks of a node."""

    __slots__ = ("_alarm_at", "_alarm_s", "_before_s", "_longest_s", "_recent", "count")

    def __init__(self) -> None:
        self.count = 0
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._longest_s = 0.0
        self._before_s = 0.0
        self._alarm_s = 0.0
        self._alarm_at = 0

    def add(self, gap_s: float, *, was_called: bool = False) -> None:
        """Learn a gap; one that `was_called` a hang and ended well is remembered for long, so that it is called once."""
        if self.count % SPAN == 0:
            self._before_s, self._longest_s = self._longest_s, 0.0
        self.count += 1
        self._recent.append(gap_s)
        self._longest_s = max(self._longest_s, gap_s)
        if was_called and gap_s >= self._alarm_s / 2:
            self._alarm_s, self._alarm_at = max(gap_s, self._alarm_s), self.count
        elif self.count - self._alarm_at > LASTING:
            self._alarm_s = 0.0

    @property
    def usual_s(self) -> float:
        """Return the usual gap; 0 before the first."""
        if not self._recent:
            return 0.0
        ordered = sorted(self._recent)
        longest_s = max(self._longest_s, self._before_s, self._alarm_s)
        return max(ordered[int(QUANTILE * (len(ordered) - 1))], longest_s / LONGEST_SHARE)

    def is_known(self, ranks: int) -> bool:
        """Tell whether there were enough gaps, where so many ranks report."""
        return self.count >= FEW * ranks

    def limit_s(self, floor_s: float, ranks: int) -> float:
        """Return how long a rank may be silent in this phase, where so many ranks report."""
        usual_s = FACTOR * self.usual_s
        return max(floor_s if self.is_known(ranks) else PATIENCE * floor_s, usual_s)
