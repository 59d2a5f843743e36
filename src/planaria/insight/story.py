"""What happened to a run, from the journals of its nodes: failures, restarts, the world over time, the end. Pure.

Nodes tell the same restart each from its own side, and a round is told by all of them: here each is one.
"""

from __future__ import annotations

from itertools import pairwise

from planaria.base.value import Value, replace
from planaria.contract.failure import tells_of_a_lost_peer
from planaria.insight.fields import Told, integer, integers, number, part, text, texts
from planaria.insight.model import PHASES, Cause, Moment, Outcome, Redone, Restart
from planaria.insight.sentences import ending, leaving, meaning, sentence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from planaria.insight.model import Effective

MOST_MOMENTS = 500
LAST_LINES = 12
TOGETHER_MS = 10_000  # nodes that begin or end within this time share a line


class Tale(Value):
    """What happened to a run, by the clocks of its nodes: all that stays as it is while its workers go on."""

    events: tuple[Told, ...]
    failures: tuple[Cause, ...]
    timeline: tuple[Moment, ...]
    world_over_time: tuple[tuple[int, int], ...]
    longest: Mapping[int, Told]
    """Of each round the word of the node on which its restart took longest."""
    sizes: Mapping[int, Mapping[str, object]]
    """Of each round what a node told at its beginning, in the order of their numbers."""


def tale(events: Iterable[Told], left: frozenset[str] = frozenset()) -> Tale:
    """Read what all nodes told; `left` are those that ended alone."""
    found = tuple(sorted(events, key=lambda event: event.timestamp))
    begun = {one.round: one.data for one in found if one.name == "planaria.round.started" and one.round is not None}
    longest = _longest(found)
    return Tale(
        events=found,
        failures=failures(found),
        timeline=timeline(found, longest, left),
        world_over_time=world_over_time(found),
        longest=longest,
        sizes=dict(sorted(begun.items())),
    )


def cause_of(data: Mapping[str, object], *, node: str, timestamp: int = 0, round_number: int | None = None) -> Cause:
    """Return a failure, from an event or from a report: both have the same names for what they share."""
    status, killer = integer(data, "status") or 0, text(data, "killer")
    kind, message = text(data, "kind"), text(data, "message")
    said = text(data, "traceback") or text(data, "stderr_tail")
    numbered = integer(data, "round")
    return Cause(
        round=numbered if numbered is not None else round_number,
        rank=integer(data, "rank") or 0,
        host=text(data, "host"),
        node=node,
        pid=integer(data, "pid"),
        status=status,
        meaning=meaning(status, killer),
        message=message,
        kind=kind,
        killer=killer,
        where=text(data, "where"),
        lost_peer=tells_of_a_lost_peer(kind, message, texts(data, "bases")),
        age_s=number(data, "age_s"),
        timestamp=timestamp,
        lines=tuple(said.rstrip().splitlines()[-LAST_LINES:]),
        log_files=texts(data, "log_files"),
    )


def failures(events: Iterable[Told]) -> tuple[Cause, ...]:
    """Return the workers that failed of their own, in the order in which their nodes tell."""
    return tuple(
        cause_of(one.data, node=one.node, timestamp=one.timestamp)
        for one in events
        if one.name == "planaria.worker.exited" and text(one.data, "result") == "failed"
    )


def first_cause(found: Sequence[Cause], round_number: int | None) -> Cause | None:
    """Return the failure that ended a round: the one that does not look like the loss of a neighbour, then the earliest.

    Between hosts their clocks decide, for want of anything better; a node that could say more has said so in its report.
    """
    own = [one for one in found if one.round == round_number]
    return min(own, key=lambda one: (one.lost_peer, one.timestamp, one.rank), default=None)


def restarts(told: Tale, steps: Mapping[int, tuple[int, int]]) -> tuple[Restart, ...]:
    """Return every restart once, oldest round first: as the node tells it on which it took longest."""
    before = {after: earlier for earlier, after in pairwise(told.sizes)}  # a leader may skip numbers
    return tuple(
        replace(
            _restart(told.longest[one], before.get(one), told.failures, steps),
            world_size=integer(told.sizes.get(one, {}), "world_size"),
            nodes=integer(told.sizes.get(one, {}), "nodes"),
        )
        for one in sorted(told.longest)
    )


def _longest(events: Iterable[Told]) -> dict[int, Told]:
    found: dict[int, Told] = {}
    for one in events:
        if one.name == "planaria.restart" and one.round is not None:
            other = found.get(one.round)
            if other is None or (number(one.data, "total_s") or 0) > (number(other.data, "total_s") or 0):
                found[one.round] = one
    return found


def _restart(one: Told, before: int | None, failed: Sequence[Cause], steps: Mapping[int, tuple[int, int]]) -> Restart:
    number_of_round, total_s = integer(one.data, "round") or 0, number(one.data, "total_s") or 0.0
    kind, cold = text(one.data, "kind"), part(one.data, "cold")
    return Restart(
        round=number_of_round,
        reason=text(one.data, "reason"),
        kind=kind,
        charged=one.data.get("charged") is True,
        began=round(one.timestamp - total_s * 1000),
        total_s=total_s,
        phases={phase: number(one.data, f"{phase}_s") or 0.0 for phase in PHASES},
        node=one.node,
        first_cause=first_cause(failed, before) if kind in ("failed", "port", "other") else None,
        redone=Redone(
            steps[before][1] if before is not None and before in steps else None,
            steps[number_of_round][0] if number_of_round in steps else None,
        ),
        promoted=integers(one.data, "promoted"),
        cold={local_rank: why for local_rank in cold if (why := text(cold, local_rank))},
    )


def with_redone(effective: Effective, steps: Mapping[int, tuple[int, int]], restarted: Sequence[Restart]) -> Effective:
    """Return the same with an estimate of what steps took that were done again: as long as all others on average."""
    done = {number: last - first + 1 for number, (first, last) in steps.items()}
    again = sum(min(one.redone.steps or 0, done.get(one.round, 0)) for one in restarted)
    all_done = sum(done.values())
    seconds = effective.training_seconds * again / all_done if effective.is_reported and all_done else 0.0
    return replace(effective, redone_seconds=round(seconds, 3))


def world_over_time(events: Iterable[Told]) -> tuple[tuple[int, int], ...]:
    """Return when the world had which size: one entry for each round, and 0 at the end of the last node."""
    sizes: dict[int, tuple[int, int]] = {}
    ends: dict[str, int] = {}
    begun = set()
    for one in events:
        if one.name == "planaria.round.started":
            size = integer(one.data, "world_size")
            begun.add(one.node)
            if one.round is not None and size is not None:
                sizes[one.round] = min(sizes.get(one.round, (one.timestamp, size)), (one.timestamp, size))
        elif one.name == "planaria.run.ended":
            ends[one.node] = one.timestamp
    found = sorted(sizes.values())
    if begun and begun <= set(ends):
        found.append((max(ends.values()), 0))
    return tuple(found)


def timeline(
    events: Sequence[Told], longest: Mapping[int, Told], left: frozenset[str] = frozenset()
) -> tuple[Moment, ...]:
    """Return what happened, line by line, by each node's own clock: what all nodes tell of a round is told once."""
    rounds: set[int | None] = set()
    found: list[Moment] = []
    counts: list[int] = []
    for one in events:
        if one.name == "planaria.round.started":
            said = "" if one.round in rounds else sentence(one)
            rounds.add(one.round)
        elif one.name == "planaria.restart" and one.round is not None and longest[one.round] is not one:
            continue
        elif one.name == "planaria.run.ended" and one.node in left:
            said = leaving(one)
        else:
            said = sentence(one)
        if not said:
            continue
        if found and _is_the_same(one, said, found[-1]):
            counts[-1] += 1
            continue
        found.append(Moment(one.timestamp, one.host, one.name, said))
        counts.append(1)
    together = (
        one if count == 1 else replace(one, sentence=f"{one.sentence} (on {count} nodes)")
        for one, count in zip(found, counts, strict=True)
    )
    return tuple(together)[-MOST_MOMENTS:]


def _is_the_same(one: Told, said: str, last: Moment) -> bool:
    """Tell whether a node begins or ends as the one before it did, a moment later."""
    is_near = one.timestamp - last.timestamp <= TOGETHER_MS
    return (
        one.name in ("planaria.run.started", "planaria.run.ended")
        and is_near
        and (one.name, said) == (last.name, last.sentence)
    )


def outcome(
    events: Sequence[Told], reports: Mapping[str, Mapping[str, object]], failed: Sequence[Cause]
) -> Outcome | None:
    """Return how the run ended: what the node says that ended last, unless another knows of a failure."""
    ends = [one for one in events if one.name == "planaria.run.ended"]
    if not ends:
        return None
    last = max(ends, key=lambda one: (text(one.data, "outcome") == "failed", one.timestamp))
    kind, said = text(last.data, "outcome"), text(last.data, "explanation")
    cause = _told_cause(ends, reports, failed) if kind == "failed" else None
    if kind == "failed" and cause is None:
        newest = max((one.round for one in failed if one.round is not None), default=None)
        cause = first_cause(failed, newest)
    return Outcome(
        outcome=kind,
        status=integer(last.data, "status") or 0,
        sentence=f"the run {ending(kind)}{f': {said}' if said else ''}",
        node=last.node,
        timestamp=last.timestamp,
        first_cause=cause,
        phases=_last_phases(events, cause),
    )


def _told_cause(
    ends: Sequence[Told], reports: Mapping[str, Mapping[str, object]], failed: Sequence[Cause]
) -> Cause | None:
    """Return the first cause that the nodes agreed on, in the words of the node on which it happened if it tells them."""
    found = [(one, part(one.data, "first_cause")) for one in ends]
    found += [(one, part(reports.get(one.node, {}), "first_cause")) for one in ends]
    told = [(one, data) for one, data in found if data]
    if not told:
        return None
    one, data = max(told, key=lambda pair: (pair[0].host == text(pair[1], "host"), len(pair[1])))
    same = [own for own in failed if (own.host, own.pid) == (text(data, "host"), integer(data, "pid"))]
    if same:
        return same[-1]
    here = [end.node for end in ends if end.host == text(data, "host")]
    return cause_of(data, node=here[0] if here else one.node, timestamp=one.timestamp)


def _last_phases(events: Sequence[Told], cause: Cause | None) -> dict[str, float]:
    """Return how long it took from the failure to the end, by the clock of the node on which the worker failed."""
    if cause is None:
        return {}
    exits = [
        one
        for one in events
        if one.name == "planaria.worker.exited" and one.node == cause.node and integer(one.data, "pid") == cause.pid
    ]
    ends = [one for one in events if one.name == "planaria.run.ended" and one.node == cause.node]
    if not exits or not ends:
        return {}
    seen_at, failed_at = exits[-1].at, number(exits[-1].data, "ended_at")
    detect_s = max(0.0, seen_at - failed_at) if failed_at is not None else 0.0
    return {"detect": round(detect_s, 6), "end": round(max(0.0, ends[-1].at - seen_at), 6)}
