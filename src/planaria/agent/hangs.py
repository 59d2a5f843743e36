"""Which ranks of this node hang, and who of them is behind. Pure: time and signs of life come in, a `Call` goes out.

    start       from the start of a worker to its first sign; judged only for a rank that has reported in an earlier life
    step        the time from one step to the next
    anything    what the program marked (`planaria.worker.phase`): its begin, its end and what is reported between them

A rank that has never reported is never called, nor is one that waits for a rank in a marked phase that is within its own time.
"""

from __future__ import annotations

from planaria.agent.gaps import FACTOR, PATIENCE, Gaps
from planaria.base.value import Value
from planaria.contract.control import START, STEP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable

LOOKS = 8  # how often we look within a floor, beside every moment at which a rank would be late
_AFTER_S = 1e-3  # a rank is late beyond its limit, not at it
MOST_PHASES = 32  # that are learned; a program that makes up names has one pace for the rest of them
ALIKE = 0.5  # of its limit: a rank that is silent for so long stands still with the one that is called


class Standing(Value):
    """Where a rank is. `silent_s` counts from its last sign; `step` is None before its first report."""

    local_rank: int
    phase: str
    step: int | None
    silent_s: float
    usual_s: float
    limit_s: float


class Call(Value):
    """A hang: the ranks that stand still, the one that is behind first, as far as their reports tell."""

    at: float
    still: tuple[Standing, ...]


class _Rank:
    __slots__ = ("began", "is_called", "is_over", "phase", "samples", "sign", "step")

    def __init__(self, now: float) -> None:
        self.phase = START
        self.began = self.sign = now
        self.step: int | None = None
        self.samples: float | None = None
        self.is_called = False
        self.is_over = False

    @property
    def is_marked(self) -> bool:
        return self.phase not in (START, STEP)


class Hangs:
    """Watches the ranks of one node; `floor_s` 0 only keeps the books. What it has learned stays from life to life."""

    def __init__(self, floor_s: float) -> None:
        self.floor_s = floor_s
        self._paces: dict[str, Gaps] = {}
        self._ranks: dict[int, _Rank] = {}
        self._known: set[int] = set()  # have reported, in whichever life
        self._marked_until = float("-inf")

    @property
    def reporting(self) -> int:
        """Return how many ranks of this node report."""
        return len(self._known)

    def begin(self, started: Iterable[tuple[int, float]]) -> None:
        """Begin a life: its local ranks, and when each was started."""
        self._ranks = {local_rank: _Rank(at) for local_rank, at in started}
        self._marked_until = float("-inf")

    def progressed(self, local_rank: int, step: int, samples: float | None, now: float, *, learns: bool = True) -> bool:
        """Take a report; tell whether it ends a hang that was called. In a step, only what moves on is a sign.

        Not `learns`: the gap that it ends tells nothing of what is usual.
        """
        rank = self._ranks.get(local_rank)
        if rank is None:
            return False
        self._known.add(local_rank)
        if rank.is_over:  # what it did since it was judged no more was no gap
            rank.is_over, rank.sign, learns = False, now, False
        moved = rank.step != step or rank.samples != samples
        rank.step, rank.samples = step, samples
        if not moved and rank.phase == STEP:
            return False
        was_called = self._sign(rank, now, is_report=True, learns=learns)
        if rank.phase == START:
            rank.phase = STEP
        return was_called

    def entered(self, local_rank: int, phase: str, now: float, *, learns: bool = True) -> bool:
        """Take the begin of a phase, or the end of it (empty); the rest is as for a report."""
        rank = self._ranks.get(local_rank)
        if rank is None:
            return False
        was_called = self._sign(rank, now, learns=learns and not rank.is_over)
        rank.phase, rank.began = phase or (START if rank.step is None else STEP), now
        return was_called

    def ended(self, local_rank: int) -> None:
        """Judge a worker no more that has ended, or has lost its connection, unless it reports again."""
        rank = self._ranks.get(local_rank)
        if rank is not None:
            self._leave_phase(rank, rank.sign)
            rank.is_over = True

    def _sign(self, rank: _Rank, now: float, *, is_report: bool = False, learns: bool) -> bool:
        was_called, rank.is_called = rank.is_called, False
        if rank.is_marked:  # reports that go on in it do not tell how long it takes, unless one was missed
            since, is_fair = (rank.sign if is_report else rank.began), was_called or not is_report
        else:
            since = max(rank.sign, self._marked_until)
            is_fair = rank.sign >= self._marked_until and not self._someone_marked(rank)
        if is_fair and learns:
            self._pace(rank.phase).add(max(now - since, 0.0), was_called=was_called)
        self._leave_phase(rank, now)
        rank.sign = now
        return was_called

    def _leave_phase(self, rank: _Rank, now: float) -> None:
        if rank.is_marked:
            self._marked_until = max(self._marked_until, now)

    def _someone_marked(self, but: _Rank) -> bool:
        return any(one.is_marked and one is not but and not one.is_over for one in self._ranks.values())

    def _pace(self, phase: str) -> Gaps:
        if phase not in self._paces and len(self._paces) >= MOST_PHASES:
            phase = ""
        return self._paces.setdefault(phase, Gaps())

    def _limit_s(self, rank: _Rank) -> float:
        pace = self._pace(rank.phase)
        ranks = max(len(self._known), 1)
        limit_s = pace.limit_s(self.floor_s, ranks)
        if rank.phase == START:
            return max(limit_s, PATIENCE * self.floor_s)
        if not pace.is_known(ranks):  # a start has a first step in it, more often than not
            return max(limit_s, FACTOR * self._pace(START).usual_s)
        return limit_s

    def _is_judged(self, local_rank: int, rank: _Rank) -> bool:
        return not rank.is_over and not rank.is_called and local_rank in self._known

    def _since(self, rank: _Rank) -> float:
        return rank.sign if rank.is_marked else max(rank.sign, self._marked_until)

    def forgive(self, late_s: float) -> None:
        """Count some seconds for nobody: this agent was stopped itself, and its workers may have been."""
        for rank in self._ranks.values():
            rank.sign += late_s
            rank.began += late_s
        self._marked_until += late_s

    def call(self, now: float) -> Call | None:
        """Return a hang that nobody was told of; every stand-still is told once."""
        if not self.floor_s:
            return None
        judged = {number: rank for number, rank in self._ranks.items() if self._is_judged(number, rank)}
        limits = {number: self._limit_s(rank) for number, rank in judged.items()}
        late = [number for number, rank in judged.items() if now - self._since(rank) > limits[number]]
        busy = [number for number, rank in judged.items() if rank.is_marked and number not in late]
        late = [number for number in late if judged[number].is_marked or not busy]
        if not late:
            return None
        still = [n for n, rank in judged.items() if n in late or now - self._since(rank) > ALIKE * limits[n]]
        for number in still:
            judged[number].is_called = True
        found = [self._standing(number, now) for number in still]
        return Call(now, tuple(sorted(found, key=_behind_first)))

    def judge_anew(self, now: float, suspected: Container[int] = ()) -> None:
        """Judge those that were called and still stand from now on again, as if they had just given a sign.

        They stood still with one that has gone on; not so those that are `suspected` themselves. Of the gap nothing is learned
        but what is left of it.
        """
        for number, rank in self._ranks.items():
            if rank.is_called and number not in suspected:
                rank.is_called, rank.sign = False, now

    def next_look(self, now: float) -> float | None:
        """Return when to look again; None when there is nobody to look at. Those that were called are looked after, too."""
        seen = [rank for number, rank in self._ranks.items() if not rank.is_over and number in self._known]
        if not self.floor_s or not seen:
            return None
        due = [self._since(rank) + self._limit_s(rank) + _AFTER_S for rank in seen if not rank.is_called]
        return min([now + self.floor_s / LOOKS, *(when for when in due if when > now)])

    def standing(self, local_rank: int, now: float) -> Standing | None:
        """Return where a rank is; None for one that has said nothing in this life."""
        rank = self._ranks.get(local_rank)
        return None if rank is None or (rank.phase == START and rank.step is None) else self._standing(local_rank, now)

    def _standing(self, local_rank: int, now: float) -> Standing:
        rank = self._ranks[local_rank]
        pace = self._pace(rank.phase)
        return Standing(local_rank, rank.phase, rank.step, now - self._since(rank), pace.usual_s, self._limit_s(rank))


def _behind_first(one: Standing) -> tuple[bool, int, float]:
    return one.phase != START, -1 if one.step is None else one.step, -one.silent_s
