"""What each node told, read: its events in their order, its newest round, its end, and whether it is still there. Pure."""

from __future__ import annotations

from operator import attrgetter

from planaria.base.value import Value, replace
from planaria.insight.fields import Told, integer, objects, part, text
from planaria.insight.model import NodeSeen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from planaria.insight.digest import Digest

SILENT_S = 300.0  # an agent that lives writes, or touches its journal, once a minute
EVERYBODYS = ("done", "failed", "stopped")  # other ends may be one node's alone
ENDED = "planaria.run.ended"
_MOMENT = attrgetter("at")


class Heard(Value):
    """A node with its journal read: the newest round that it tells of, and its end."""

    seen: NodeSeen
    events: tuple[Told, ...]
    digest: Digest
    """What these come to."""
    newest_round: Told | None
    end: Told | None
    host: str
    run_id: str

    @property
    def answers(self) -> bool:
        """Tell whether its agent says itself how it is."""
        return self.seen.status is not None

    @property
    def is_killed(self) -> bool:
        """Tell whether its agent is gone without having written an end."""
        return not self.answers and self.end is None and self.seen.is_alive is False

    @property
    def is_gone(self) -> bool:
        """Tell whether nobody answers in its place any more, and it may have ended without our knowing."""
        return not self.answers and self.end is None and self.seen.is_gone and self.seen.is_alive is not True

    @property
    def is_silent(self) -> bool:
        """Tell whether nothing was heard of its agent for long, where nobody can see whether it lives."""
        is_unknown = not self.answers and self.end is None and self.seen.is_alive is None
        return is_unknown and self.seen.age_s is not None and self.seen.age_s > SILENT_S

    @property
    def over_at(self) -> int | None:
        """When it was over with this node, by its clock; None while it is not."""
        if self.answers:
            return None
        if self.end is not None:
            return self.end.timestamp
        is_left = self.is_killed or self.is_silent or self.is_gone
        return self.events[-1].timestamp if self.events and is_left else None

    @property
    def round(self) -> int | None:
        """The number of its newest round."""
        number = integer(part(self.seen.status, "round"), "number")
        if number is None and self.newest_round is not None:
            number = integer(self.newest_round.data, "round")
        return number

    @property
    def start(self) -> str:
        """What all nodes of one start have in common, where several agreed on it; empty where nothing is known of it."""
        return "" if self.newest_round is None else text(self.newest_round.data, "start")

    @property
    def outcome(self) -> str:
        """How it ended there; empty when it has not, or answers."""
        return "" if self.answers or self.end is None else text(self.end.data, "outcome") or "ended"


def each_once(nodes: Iterable[NodeSeen]) -> list[NodeSeen]:
    """Return each node once: who answers says how it is, and its folder has the longer story."""
    found: dict[str, NodeSeen] = {}
    for one in nodes:
        other = found.get(one.node)
        if other is None:
            found[one.node] = one
            continue
        live, kept = (one, other) if one.status is not None else (other, one)
        found[one.node] = replace(
            live,
            events=max(live.events, kept.events, key=len),
            report=live.report or kept.report,
            evidence=max(live.evidence, kept.evidence, key=len),
            gap=live.gap or kept.gap,
            age_s=kept.age_s if live.age_s is None else live.age_s,
            is_alive=kept.is_alive if live.is_alive is None else live.is_alive,
            is_gone=live.is_gone and kept.is_gone,  # where there is a folder, that tells how it ended
        )
    return sorted(found.values(), key=lambda one: one.node)


def in_order(found: Iterable[Told | None]) -> tuple[Told, ...]:
    """Return the events of a node, in the order of its monotonic clock: progress has a file of its own."""
    return tuple(sorted((event for event in found if event is not None), key=_MOMENT))


def hear(one: NodeSeen, events: tuple[Told, ...], digest: Digest) -> Heard:
    """Return a node whose events were read."""
    job = part(one.status, "job")
    run_ids = (text(event.data, "run_id") for event in events)
    happened = digest.happened
    return Heard(
        one,
        events,
        digest,
        next((event for event in reversed(happened) if event.name == "planaria.round.started"), None),
        next((event for event in reversed(happened) if event.name == ENDED), None),
        text(job, "host") or next((event.host for event in events if event.host), "") or one.node,
        text(job, "run_id") or text(one.report or {}, "run_id") or next((name for name in run_ids if name), ""),
    )


def of_the_last_start(heard: Iterable[Heard]) -> list[Heard]:
    """Leave out those with whom it was over before the others began: a job that was started again under the same run id.

    Only clocks can tell, and two hosts' clocks may differ: nothing but what is shown hangs on it.
    """
    kept: list[Heard] = []
    ends: list[int | None] = []  # of those that are kept
    mute: list[Heard] = []  # nobody knows when they began
    for one in sorted(heard, key=lambda each: each.events[0].timestamp if each.events else 0):
        if not one.events and not one.answers:
            mute.append(one)
            continue
        if one.events and ends and all(end is not None and end < one.events[0].timestamp for end in ends):
            kept, ends = [], []
        kept.append(one)
        ends.append(one.over_at)
    newest = _newest_start(kept)
    kept = [one for one in kept if one.answers or one.start in ("", newest)]
    return sorted([*mute, *kept], key=lambda each: each.seen.node)


def _newest_start(heard: Sequence[Heard]) -> str:
    """Return the start of those who answer, else the one that began a round last."""
    known = [one for one in heard if one.start and one.newest_round is not None]
    those = [one for one in known if one.answers] or known
    return max(those, key=lambda one: one.newest_round.timestamp if one.newest_round else 0).start if those else ""


def newest_round(heard: Sequence[Heard]) -> int:
    """Return the newest round: that of agents which answer and have workers, before whatever others once told."""
    at_work = [one for one in heard if one.answers and objects(one.seen.status or {}, "workers")]
    here = [one for one in heard if not one.is_killed and not one.is_silent]
    for those in (at_work, here, heard):
        rounds = [one.round for one in those if one.round is not None]
        if rounds:
            return max(rounds)
    return 0


def leavers(heard: Sequence[Heard]) -> frozenset[str]:
    """Return the nodes that have ended alone, while the run went on without them."""
    return frozenset(
        one.seen.node
        for one in heard
        if one.outcome and one.outcome not in EVERYBODYS and any(_went_on(other, one) for other in heard)
    )


def _went_on(other: Heard, without: Heard) -> bool:
    if other.over_at is None and other.events != () and other is not without:
        return True
    return (other.round or 0) > (without.round or 0)


def is_over(heard: Sequence[Heard]) -> bool:
    """Tell whether the run has ended: nobody answers, and all have ended or one knows an end that is everybody's.

    A node that was killed writes no end.
    """
    if not heard or any(one.answers for one in heard):
        return False
    ends = [one.outcome for one in heard if one.outcome]
    is_each = bool(ends) and all(one.outcome or one.is_killed for one in heard)
    return is_each or any(end in EVERYBODYS for end in ends)
