"""Make one picture of a run from what its nodes told. Pure.

A node that answers tells its state itself; of one that does not, the journal tells the last that was known. Clocks of two hosts
are never compared to decide anything: a merged timeline is by each node's own clock, and so are its distances.
"""

from __future__ import annotations

from planaria.base.value import Value, replace
from planaria.insight import story
from planaria.insight.fields import integer, integers, number, objects, part, text, told
from planaria.insight.model import Effective, Evidence, Node, NodeSeen, Rank, RunSeen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from planaria.insight.fields import Told

TIERS = ("node", "buddy", "disk")
_AT_REST = ("running", "waiting")
_ENDED = "planaria.run.ended"
_EVERYBODYS = ("done", "failed", "stopped")  # other ends may be one node's alone


class _Heard(Value):
    """A node with its journal read: the newest round that it tells of, and its end."""

    seen: NodeSeen
    events: tuple[Told, ...]
    newest_round: Told | None
    end: Told | None
    host: str
    run_id: str


def picture(nodes: Sequence[NodeSeen]) -> RunSeen:
    """Return the picture of a run; `nodes` may be in any order, and the same node may be among them twice."""
    heard = _of_the_last_start([_hear(one) for one in _each_once(nodes)])
    events = sorted((event for one in heard for event in one.events), key=lambda event: event.timestamp)
    failed, steps = story.failures(events), story.steps_by_round(events)
    reports = {one.seen.node: one.seen.report for one in heard if one.seen.report is not None}
    is_over = _is_over(heard)
    ended = story.outcome(events, reports, failed) if is_over else None
    by_node = [(_node(one, ranks), ranks) for one in heard for ranks in [_ranks_of(one)]]
    hang = next((part(one.seen.status, "hang") for one in heard if part(one.seen.status, "hang")), None)
    used, allowed = _budget(heard)
    restarts = story.restarts(events, failed, steps)
    return RunSeen(
        run_id=next((one.run_id for one in heard if one.run_id), ""),
        state=ended.outcome if ended is not None else _state(heard),
        is_over=is_over,
        world_size=_world_size(heard),
        nodes=_nodes([node for node, _ in by_node], is_over=is_over),
        ranks=_ranks(by_node, heard),
        restarts_used=used,
        restarts_allowed=allowed,
        restarts=restarts,
        failures=failed,
        newest_commit=_commits(heard),
        timeline=story.timeline(events),
        world_over_time=story.world_over_time(events),
        hang=hang if hang is not None else _last_hang(events, is_over=is_over),
        stragglers=tuple(slow for one in heard for slow in objects(one.seen.status or {}, "stragglers")),
        effective=story.with_redone(_effective(heard), steps, restarts),
        outcome=ended,
        evidence=tuple(Evidence(one.seen.node, name, files) for one in heard for name, files in one.seen.evidence),
        gaps=(*(one.seen.gap for one in heard if one.seen.gap), *_unseen(heard)),
    )


def _is_over(heard: Sequence[_Heard]) -> bool:
    """Tell whether the run has ended: nobody answers, and all have ended or one knows an end that is everybody's.

    A node that was killed writes no end.
    """
    if not heard or any(one.seen.status is not None for one in heard):
        return False
    ends = [text(one.end.data, "outcome") for one in heard if one.end is not None]
    return len(ends) == len(heard) or any(end in _EVERYBODYS for end in ends)


def _nodes(found: list[Node], *, is_over: bool) -> tuple[Node, ...]:
    """Return the nodes; one that is not in the newest round has no ranks, and one that wrote no end of the run was lost."""
    newest = max((one.round or 0 for one in found), default=0)
    found = [one if (one.round or 0) == newest else replace(one, ranks=()) for one in found]
    return tuple(replace(one, state="lost") if is_over and not one.has_ended else one for one in found)


def _each_once(nodes: Iterable[NodeSeen]) -> list[NodeSeen]:
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
        )
    return sorted(found.values(), key=lambda one: one.node)


def _of_the_last_start(heard: list[_Heard]) -> list[_Heard]:
    """Leave out those who had all ended before the others began: a job that was started again under the same run id.

    Only clocks can tell, and two hosts' clocks may differ: nothing but what is shown hangs on it.
    """
    kept: list[_Heard] = []
    for one in sorted(heard, key=lambda each: each.events[0].timestamp if each.events else 0):
        ends = [None if other.end is None or other.seen.status else other.end.timestamp for other in kept]
        if one.events and ends and all(end is not None and end < one.events[0].timestamp for end in ends):
            kept = []
        kept.append(one)
    return sorted(kept, key=lambda each: each.seen.node)


def _hear(one: NodeSeen) -> _Heard:
    found = (told(event, one.node) for event in one.events)
    events = tuple(event for event in found if event is not None)
    job = part(one.status, "job")
    run_ids = (text(event.data, "run_id") for event in events)
    return _Heard(
        one,
        events,
        next((event for event in reversed(events) if event.name == "planaria.round.started"), None),
        next((event for event in reversed(events) if event.name == _ENDED), None),
        text(job, "host") or next((event.host for event in events if event.host), "") or one.node,
        text(job, "run_id") or text(one.report or {}, "run_id") or next((name for name in run_ids if name), ""),
    )


def _node(one: _Heard, ranks: Sequence[Rank]) -> Node:
    status = one.seen.status or {}
    begun = one.newest_round
    number_of_round = integer(part(status, "round"), "number")
    if number_of_round is None and begun is not None:
        number_of_round = integer(begun.data, "round")
    return Node(
        node=one.seen.node,
        host=one.host,
        state=_node_state(one),
        why_not_ready=text(status, "why_not_ready") or None,
        round=number_of_round,
        ranks=tuple(rank.rank for rank in ranks),
        age_s=one.seen.age_s,
        source=one.seen.source,
        has_ended=one.seen.status is None and one.end is not None,
    )


def _node_state(one: _Heard) -> str:
    if one.seen.status is not None:
        return text(one.seen.status, "state") or "?"
    if one.end is not None:
        return text(one.end.data, "outcome") or "ended"
    if one.seen.gap:
        return "away"
    return "running" if one.newest_round is not None else "waiting"


def _state(heard: Sequence[_Heard]) -> str:
    """Return the state of the run: that of a node in which something goes on, else that of one which waits, else of any."""
    states = [_node_state(one) for one in heard if one.seen.status is not None or one.end is None]
    states = [state for state in states if state != "away"]
    moving = [one for one in states if one not in _AT_REST]
    if moving:
        return moving[0]
    if states:
        return "waiting" if "waiting" in states and "running" not in states else "running"
    return "gone"


def _world_size(heard: Sequence[_Heard]) -> int | None:
    sizes = []
    for one in heard:
        size, begun = integer(part(one.seen.status, "round"), "world_size"), one.newest_round
        number_of_round = integer(part(one.seen.status, "round"), "number")
        if size is None and begun is not None:
            size, number_of_round = integer(begun.data, "world_size"), integer(begun.data, "round")
        if size is not None:
            sizes.append((number_of_round or 0, size))
    return max(sizes)[1] if sizes else None


def _unseen(heard: Sequence[_Heard]) -> list[str]:
    """Say how many nodes of the newest round nobody has told anything of."""
    begun = [(number_of_round or 0, size or 0) for one in heard for number_of_round, size in [_round_size(one)]]
    newest, size = max(begun, default=(0, 0))
    missing = size - len([number_of_round for number_of_round, _ in begun if number_of_round == newest])
    if missing <= 0:
        return []
    which = "1 node of this round is" if missing == 1 else f"{missing} nodes of this round are"
    return [f"{which} not seen from here; --at asks their agents, --run-dir reads a folder that they share"]


def _round_size(one: _Heard) -> tuple[int | None, int | None]:
    """Return the round that a node is in, and how many nodes are."""
    status, begun = one.seen.status, one.newest_round
    if status is not None:
        return integer(part(status, "round"), "number"), integer(part(status, "members"), "count")
    if begun is None:
        return None, None
    return integer(begun.data, "round"), integer(begun.data, "nodes")


# Ranks.


def _ranks(by_node: Sequence[tuple[Node, list[Rank]]], heard: Sequence[_Heard]) -> tuple[Rank, ...]:
    """Return the workers of the newest round that anybody knows of; of a node that left before, there are none in it."""
    newest = max((node.round or 0 for node, _ in by_node), default=0)
    found = {rank.rank: rank for node, ranks in by_node if (node.round or 0) == newest for rank in ranks}
    behind = {rank for one in heard for rank in integers(part(one.seen.status, "hang"), "ranks")}
    slow = {
        integer(item, "rank"): number(item, "slower_by")
        for one in heard
        for item in objects(one.seen.status or {}, "stragglers")
    }
    for rank in [one for one in found if one in behind or one in slow]:
        found[rank] = replace(found[rank], behind=rank in behind, straggler=slow.get(rank))
    return tuple(found[rank] for rank in sorted(found))


def _ranks_of(one: _Heard) -> list[Rank]:
    return _live_ranks(one) if one.seen.status is not None else _past_ranks(one)


def _live_ranks(one: _Heard) -> list[Rank]:
    status = one.seen.status or {}
    progress = part(status, "progress")
    found = []
    for worker in objects(status, "workers"):
        rank = integer(worker, "rank")
        if rank is None:
            continue
        seen = Rank(
            rank,
            one.host,
            one.seen.node,
            integer(worker, "local_rank"),
            integer(worker, "pid"),
            text(worker, "state"),
        )
        found.append(_with_progress(seen, part(progress, str(rank))))
    return found


def _past_ranks(one: _Heard) -> list[Rank]:
    """Return the workers of the last round that a journal knows, as they were in the end."""
    begun = one.newest_round
    number_of_round = None if begun is None else integer(begun.data, "round")
    found: dict[int, Rank] = {}
    for event in one.events:
        rank = integer(event.data, "rank")
        if integer(event.data, "round") != number_of_round:
            continue
        if event.name == "planaria.worker.started" and rank is not None:
            local_rank, pid = integer(event.data, "local_rank"), integer(event.data, "pid")
            found[rank] = Rank(rank, one.host, one.seen.node, local_rank, pid)
        elif event.name == "planaria.worker.exited" and rank in found:
            found[rank] = replace(found[rank], state=text(event.data, "result") or "ended")
        elif event.name == "planaria.progress":
            ranks = part(event.data, "ranks")
            found |= {key: _with_progress(seen, part(ranks, str(key))) for key, seen in found.items()}
    if one.end is None:
        return list(found.values())
    return [replace(rank, rate=None, samples_rate=None, age_s=None) for rank in found.values()]


def _with_progress(seen: Rank, report: Mapping[str, object]) -> Rank:
    if not report:
        return seen
    samples = number(report, "samples")
    return replace(
        seen,
        step=integer(report, "step"),
        samples=samples if samples is not None else number(part(report, "values"), "samples"),
        rate=number(report, "rate"),
        samples_rate=number(report, "samples_rate"),
        phase=text(report, "phase") or None,
        age_s=number(report, "age_s"),
    )


# The run as a whole.


def _budget(heard: Sequence[_Heard]) -> tuple[int | None, int | None]:
    used: int | None = None
    allowed: int | None = None
    for one in heard:
        restarts = part(one.seen.status, "restarts")
        report = one.seen.report or {}
        started = next((event for event in one.events if event.name == "planaria.run.started"), None)
        counts = [integer(restarts, "used"), integer(report, "restarts")]
        counts += [integer(event.data, "restart_count") for event in one.events]
        limits = [integer(restarts, "allowed"), integer(report, "max_restarts")]
        limits += [None if started is None else integer(started.data, "max_restarts")]
        used = max((count for count in (used, *counts) if count is not None), default=None)
        allowed = max((limit for limit in (allowed, *limits) if limit is not None), default=None)
    return used, allowed


def _commits(heard: Sequence[_Heard]) -> dict[str, Mapping[str, object] | None]:
    newest: dict[str, Mapping[str, object] | None] = dict.fromkeys(TIERS)
    for one in heard:
        for event in one.events:
            if event.name == "planaria.commit":
                _keep_newer(newest, text(event.data, "tier"), event.data)
        for tier in part(one.seen.status, "newest_commit"):
            _keep_newer(newest, tier, part(one.seen.status, "newest_commit", tier))
    return newest


def _keep_newer(newest: dict[str, Mapping[str, object] | None], tier: str, stamp: Mapping[str, object]) -> None:
    told_stamp = {key: integer(stamp, key) for key in ("step", "round", "generation")}
    if tier not in newest or told_stamp["step"] is None:
        return
    other = newest[tier]
    if other is None or (told_stamp["step"] or 0) >= (integer(other, "step") or 0):
        newest[tier] = told_stamp


def _last_hang(events: Sequence[Told], *, is_over: bool) -> Mapping[str, object] | None:
    """Return the newest hang that nothing followed: a round that started since then has ended it."""
    if is_over:
        hangs = [one for one in events if one.name == "planaria.hang"]
    else:
        rounds = [integer(one.data, "round") or 0 for one in events if one.name == "planaria.round.started"]
        newest = max(rounds, default=0)
        hangs = [one for one in events if one.name == "planaria.hang" and integer(one.data, "round") == newest]
    return {**hangs[-1].data, "timestamp": hangs[-1].timestamp} if hangs else None


def _effective(heard: Sequence[_Heard]) -> Effective:
    """Return how much of its time the node trained that has lived longest; others came later, or went earlier."""
    found = [_effective_of(one) for one in heard]
    return max(found, key=lambda one: one.seconds, default=Effective(None, 0.0, 0.0, is_reported=False))


def _effective_of(one: _Heard) -> Effective:
    status = one.seen.status or {}
    uptime_s, began = number(status, "uptime_s"), number(status, "started_at")
    if uptime_s is not None:
        since = None if began is None else round(began * 1000)
        return Effective(since, uptime_s, number(status, "trained_s") or 0.0, status.get("steps_reported") is True)
    if not one.events:
        return Effective(None, 0.0, 0.0, is_reported=False)
    seconds = max(0.0, one.events[-1].at - one.events[0].at)
    kept = [event.data for event in one.events if number(event.data, "trained_s") is not None]
    newest = kept[-1] if kept else {}
    is_reported = any(event.name == "planaria.progress" for event in one.events)
    return Effective(one.events[0].timestamp, seconds, number(newest, "trained_s") or 0.0, is_reported)
