"""Which ranks of a node are slower than its others. Pure; moments are of one clock, this node's.

A rank that reports `busy_s`, its own time without waiting, is compared by that. Else by what it takes from one report to the
next, which tells ranks apart that do not wait for each other. Those that do take the same; of them the one is slow that reports
last, nearly always and by more than a tenth of a step. Ranks that report after waiting for each other all come at once, and
then nobody can be told from the others.
"""

from __future__ import annotations

from collections import deque
from math import isfinite

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

STEPS = 32  # that are compared
LEAST = 16  # steps before anybody is named
SHARE = 0.8  # of them in which it was late
LATE = 0.1  # of a step
LEAST_S = 0.005
OPEN = 64  # steps that not all ranks have reported; more than one of them is a rank that skips reports


class Straggler(Value):
    """A slow rank: its steps take `slower_by` times what those of the others do."""

    local_rank: int
    slower_by: float


class Pace(Value):
    """What a step takes a rank, by median and mean, and how much of it is its own work, as far as it says; None: not known."""

    step_s: float | None = None
    step_mean_s: float | None = None
    busy_s: float | None = None


class Stragglers:
    """Hears every report of one life."""

    def __init__(self) -> None:
        self._open: dict[int, dict[int, float]] = {}
        self._late: dict[int, deque[float]] = {}
        self._steps: deque[float] = deque(maxlen=STEPS)
        self._busy: dict[int, deque[float]] = {}
        self._newest: dict[int, tuple[int, float]] = {}
        self._gaps: dict[int, deque[float]] = {}
        self._last: float | None = None

    def reported(self, local_rank: int, step: int, now: float, values: Mapping[str, float], ranks: int) -> None:
        """Take a report, of a node with so many ranks that report."""
        busy_s = values.get("busy_s")
        if busy_s is not None and isfinite(busy_s):
            self._busy.setdefault(local_rank, deque(maxlen=STEPS)).append(busy_s)
        before, since = self._newest.get(local_rank, (step, now))
        if step > before:
            self._gaps.setdefault(local_rank, deque(maxlen=STEPS)).append((now - since) / (step - before))
        if step != before or local_rank not in self._newest:
            self._newest[local_rank] = step, now
        self._meet(local_rank, step, now, ranks)

    def _meet(self, local_rank: int, step: int, now: float, ranks: int) -> None:
        came = self._open.setdefault(step, {})
        came.setdefault(local_rank, now)
        if len(came) >= ranks > 1:
            self._complete(came)
            for number in [number for number in self._open if number <= step]:
                del self._open[number]
        elif len(self._open) > OPEN:
            del self._open[min(self._open)]
            self._late, self._last = {}, None  # ranks that are so far apart do not wait for each other
            self._steps.clear()

    def _complete(self, came: Mapping[int, float]) -> None:
        middle = _middle([*came.values()])
        if self._last is not None and middle > self._last:
            self._steps.append(middle - self._last)
            for local_rank, at in came.items():
                self._late.setdefault(local_rank, deque(maxlen=STEPS)).append(at - middle)
        self._last = middle

    def found(self) -> tuple[Straggler, ...]:
        """Return the slow ranks, the slowest first."""
        paces = self.paces()
        slow = slow_of(paces) if len(self._busy) > 1 else slow_of(paces) or self._by_arrival()
        return tuple(sorted((Straggler(*one) for one in slow.items()), key=lambda one: -one.slower_by))

    def paces(self) -> dict[int, Pace]:
        """Return the pace of each rank of which enough is known."""
        busy, usual = _usual(self._busy), _usual(self._gaps)
        mean = {rank: sum(self._gaps[rank]) / len(self._gaps[rank]) for rank in usual}
        return {rank: Pace(usual.get(rank), mean.get(rank), busy.get(rank)) for rank in usual.keys() | busy.keys()}

    def _by_arrival(self) -> dict[int, float]:
        """Compare who comes last. One that is waited for is late by a step at the most; more is an old delay."""
        if len(self._steps) < LEAST:
            return {}
        step_s = _middle([*self._steps])
        bound_s = max(LATE * step_s, LEAST_S)
        slow = {}
        for rank, lateness in self._late.items():
            late = [late_s for late_s in lateness if bound_s < late_s <= (1 + LATE) * step_s]
            if len(lateness) >= LEAST and len(late) >= SHARE * len(lateness):
                slow[rank] = round(1 + _middle(late) / step_s, 3)
        return slow


def _usual(spans: Mapping[int, deque[float]]) -> dict[int, float]:
    return {rank: _middle([*own]) for rank, own in spans.items() if len(own) >= LEAST}


def slow_of(paces: Mapping[int, Pace]) -> dict[int, float]:
    """Return by how much ranks are slower than the others: by their own work where several tell it, else by their steps.

    A single long step makes nobody slow, nor one that is made up for: median and mean have to say the same.
    """
    busy = {rank: one.busy_s for rank, one in paces.items() if one.busy_s is not None}
    if len(busy) > 1:
        return _slower(busy, LEAST_S)
    least_s = LEAST_S / LEAST  # what a scheduler may add to one step, over all of them
    usual = _slower({rank: one.step_s for rank, one in paces.items() if one.step_s is not None}, least_s)
    mean = _slower({rank: one.step_mean_s for rank, one in paces.items() if one.step_mean_s is not None}, least_s)
    return {rank: slower_by for rank, slower_by in usual.items() if rank in mean}


def _slower(usual: Mapping[int, float], least_s: float) -> dict[int, float]:
    """Return by how much those are slower that take longer than the others do in the middle: by a tenth, and by `least_s`."""
    ordered = sorted(usual.values())
    middle = (len(ordered) - 2) // 2  # of the others
    slow = {}
    for rank, own_s in usual.items() if len(usual) > 1 else ():
        others_s = ordered[middle] if own_s > ordered[middle] else ordered[middle + 1]
        slower_by = own_s / others_s if others_s > 0 else float("inf")
        if own_s - others_s > max(LATE * others_s, least_s) and isfinite(slower_by):
            slow[rank] = round(slower_by, 3)
    return slow


def _middle(values: list[float]) -> float:
    """Return the lower median: of two ranks, the first to come."""
    return sorted(values)[(len(values) - 1) // 2]
