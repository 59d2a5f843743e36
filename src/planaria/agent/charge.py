"""Whom a hang is charged to, in which words, and what is ordered about it. Pure.

What an examination found says who is suspected; whoever goes on or ends, while it is looked at or later, is taken off. Where
nobody answered, the rank that is behind by its reports has to do.
"""

from __future__ import annotations

from planaria.agent.suspects import UNKNOWN
from planaria.base.value import Value, replace
from planaria.contract.failure import WAITS_ELSEWHERE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.agent.examiner import Found
    from planaria.agent.hangs import Standing

MOST_FOLDERS = 64  # of evidence, in a job
WRITING_S = 24.0  # what is to be ended waits so long for its evidence, once it is known who it is
OTHERS_S = 6.0  # for other nodes to look at their ranks, since a hang was called here
OTHERS_SHARE = 0.1  # of the silence that was allowed: they may call later, by what their steps differ from ours
STOPPED_S = 5.0  # workers that are being looked at live so much longer when another node ends the round


class Charge(Value):
    """A hang: the ranks that stand still, the one behind first, and what was found out about them.

    `gone_on` are the ranks that did something since, and what. `folder` is where evidence goes; it is empty where nobody was
    asked to look.
    """

    still: Mapping[int, Standing]
    found: Found
    gone_on: Mapping[int, str]
    host: str
    folder: str
    is_alone: bool

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return those that are behind, the first suspect first."""
        return self.found.ranks if self.found.sentence else tuple(self.still)[:1]

    @property
    def waiting(self) -> tuple[int, ...]:
        """Return those that stand still because of them."""
        return self.found.waiting if self.found.sentence else tuple(self.still)[1:]

    @property
    def _suspects(self) -> tuple[int, ...]:
        return self.ranks or self.waiting

    @property
    def remaining(self) -> tuple[int, ...]:
        """Return the suspects that have done nothing since."""
        return tuple(rank for rank in self._suspects if rank not in self.gone_on)

    @property
    def watched(self) -> tuple[int, ...]:
        """Return those whose signs tell that the hang is over; nobody: it is.

        One that never reports cannot be seen to go on, but those that wait for it can.
        """
        remaining = self.remaining
        waiting = (rank for rank in self.waiting if remaining and rank not in self.gone_on)
        return tuple(rank for rank in remaining if rank in self.still) or tuple(waiting)

    @property
    def first(self) -> int:
        """Return the first suspect; of those that remain, where any does, and of those that report, where one of these does."""
        remaining = self.remaining
        return next((rank for rank in remaining if rank in self.still), (remaining or self._suspects)[0])

    @property
    def standing(self) -> Standing:
        """Return where the first suspect is; where the one behind is, if that one never reports."""
        return self.still.get(self.first, next(iter(self.still.values())))

    @property
    def evidence(self) -> str | None:
        """Return where the evidence is, if there is any."""
        return self.folder if self.found.is_kept else None

    @property
    def sentence(self) -> str:
        """Return all that people are told."""
        return (
            self.found.sentence or f"rank {self.first} on {self.host} {self.brief_of(self.first)}"
        ) + self._meanwhile

    @property
    def _meanwhile(self) -> str:
        """Say which of the suspects did something while they were examined."""
        suspects = self._suspects
        did = [(rank, how) for rank, how in self.gone_on.items() if rank in suspects]
        if len(suspects) == 1:
            return "".join(f"; it {how} meanwhile" for _, how in did)
        return "".join(f"; rank {rank} {how} meanwhile" for rank, how in did)

    def brief_of(self, rank: int) -> str:
        """Say what a suspect does, without its name."""
        found, one = self.found, self.still.get(rank)
        if rank == self._suspects[0] and found.brief and not found.elsewhere:
            return found.brief
        silence = "it has reported nothing" if one is None else f"no sign for {one.silent_s:.1f} s"
        phase = "" if one is None else f" in phase {one.phase}"
        told = [f"{WAITS_ELSEWHERE}: {silence}{phase}" if found.elsewhere else f"hangs{phase}: {silence}"]
        if not self.folder:
            told.append(f"nobody looked at it: there are {MOST_FOLDERS} folders of evidence already")
        elif not found.brief:
            told.append("nobody could look at it in time")
        if self.evidence is not None:
            told.append(f"evidence in {self.evidence}")
        return "; ".join(told)

    def phase_of(self, rank: int) -> str:
        """Return the phase in which a suspect hangs; none for one that waits for another node."""
        one = self.still.get(rank)
        return "" if self.found.elsewhere else UNKNOWN if one is None else one.phase

    def wait_s(self, floor_s: float, since_s: float, *, is_let_go: bool = False) -> float:
        """Return how long to wait before anything is done, `since_s` after the hang was called.

        Whoever waits for another node, or may do so, lets that one find its rank and write its evidence first. Whoever has the
        rank lets the others look: their ranks end with it, and what they wait in is evidence, too. It is never the last to act.
        A rank that was stopped and `is_let_go` to be looked at is no evidence any more.
        """
        is_unclear = self.found.unclear or not (self.found.sentence or self.is_alone)
        if self.found.elsewhere or is_unclear:
            return floor_s + WRITING_S
        others_s = OTHERS_S + min(OTHERS_SHARE * self.standing.limit_s, floor_s)
        return 0.0 if self.is_alone or is_let_go else max(others_s - since_s, 0.0)

    def without(self, rank: int, how: str) -> Charge:
        """Return the same with a rank taken off that goes on, or has ended."""
        return replace(self, gone_on={**self.gone_on, rank: how})


class Order(Value):
    """End a rank that hangs, for what it does (`brief`); with a `reason`, end the whole job instead."""

    rank: int
    brief: str
    phase: str
    reason: str = ""


def order(policy: str, charge: Charge) -> Order | None:
    """Decide what is done about a hang, if it still is one."""
    if policy == "report" or not charge.watched:
        return None
    rank = charge.first
    brief = charge.brief_of(rank)
    reason = f"rank {rank} on {charge.host} {brief} (--hang-policy=stop)" if policy == "stop" else ""
    return Order(rank, brief, charge.phase_of(rank), reason)
