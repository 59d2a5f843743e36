"""Make one picture of a run from what its nodes told. Pure.

A node that answers tells its state itself; of one that does not, the journal tells the last that was known. Clocks of two hosts
are never compared to decide anything: a merged timeline is by each node's own clock, and so are its distances.
"""

from __future__ import annotations

from planaria.base.value import replace
from planaria.insight import story, whole
from planaria.insight.digest import all_steps
from planaria.insight.fields import integer, integers, number, objects, part, text
from planaria.insight.heard import is_over, leavers, newest_round, of_the_last_start
from planaria.insight.model import Evidence, Node, NodeSeen, Rank, RunSeen
from planaria.insight.recall import Recall
from planaria.insight.slow import stragglers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planaria.insight.heard import Heard

_AT_REST = ("running", "waiting")
_UNHEARD = ("away", "gone", "lost", "silent")


def picture(nodes: Sequence[NodeSeen], recall: Recall | None = None) -> RunSeen:
    """Return the picture of a run; `nodes` may be in any order, and the same node may be among them twice.

    Who looks again and again keeps a `recall`, which makes it no other picture, but the next one quicker.
    """
    recall = recall or Recall()
    heard = of_the_last_start(recall.hear(nodes))
    newest, left = newest_round(heard), leavers(heard)
    tale, steps = recall.tale(heard, left), all_steps(one.digest.steps for one in heard)
    reports = {one.seen.node: one.seen.report for one in heard if one.seen.report is not None}
    is_done = is_over(heard)
    ended = story.outcome(tale.events, reports, tale.failures) if is_done else None
    by_node = [(_node(one, ranks), ranks) for one in heard for ranks in [_ranks_of(one)]]
    ranks = _ranks(by_node, heard, newest)
    slow = stragglers(heard, ranks, newest)
    used, allowed = whole.budget(heard)
    restarts = story.restarts(tale, steps)
    return RunSeen(
        run_id=next((one.run_id for one in heard if one.run_id), ""),
        state=ended.outcome if ended is not None else _state(heard),
        is_over=is_done,
        world_size=_world_size(heard, newest),
        nodes=_nodes([node for node, _ in by_node], newest, left, is_done=is_done),
        ranks=_marked(ranks, heard, slow),
        restarts_used=used,
        restarts_allowed=allowed,
        restarts=restarts,
        failures=tale.failures,
        newest_commit=whole.commits(heard),
        timeline=tale.timeline,
        world_over_time=tale.world_over_time,
        hang=whole.hang(heard, newest),
        stragglers=slow,
        effective=story.with_redone(whole.effective(heard), steps, restarts),
        outcome=ended,
        evidence=tuple(Evidence(one.seen.node, name, files) for one in heard for name, files in one.seen.evidence),
        gaps=(*(one.seen.gap for one in heard if one.seen.gap), *_unseen(heard, newest)),
    )


def _nodes(found: list[Node], newest: int, left: frozenset[str], *, is_done: bool) -> tuple[Node, ...]:
    """Return the nodes; one that is not in the newest round has no ranks, and one that wrote no end of the run was lost."""
    found = [one if (one.round or 0) == newest else replace(one, ranks=()) for one in found]
    found = [replace(one, state="left") if one.node in left else one for one in found]
    return tuple(replace(one, state="lost") if is_done and not one.has_ended else one for one in found)


def _node(one: Heard, ranks: Sequence[Rank]) -> Node:
    status = one.seen.status or {}
    return Node(
        node=one.seen.node,
        host=one.host,
        state=_node_state(one),
        why_not_ready=text(status, "why_not_ready") or None,
        round=one.round,
        ranks=tuple(rank.rank for rank in ranks),
        age_s=one.seen.age_s,
        source=one.seen.source,
        has_ended=one.seen.status is None and one.end is not None,
    )


def _node_state(one: Heard) -> str:
    if one.seen.status is not None:
        return text(one.seen.status, "state") or "?"
    if one.outcome:
        return one.outcome
    if one.is_killed:
        return "lost"
    if one.is_silent:
        return "silent"
    if one.is_gone:
        return "gone"
    if one.seen.gap:
        return "away"
    return "running" if one.newest_round is not None else "waiting"


def _state(heard: Sequence[Heard]) -> str:
    """Return the state of the run: that of a node in which something goes on, else that of one which waits, else of any."""
    states = [_node_state(one) for one in heard if one.seen.status is not None or one.end is None]
    heard_of = [state for state in states if state not in _UNHEARD]
    moving = [one for one in heard_of if one not in _AT_REST]
    if moving:
        return moving[0]
    if heard_of:
        return "waiting" if "waiting" in heard_of and "running" not in heard_of else "running"
    return next((one for one in ("away", "silent") if one in states), "gone")


def _world_size(heard: Sequence[Heard], newest: int) -> int | None:
    sizes = []
    for one in heard:
        size, begun = integer(part(one.seen.status, "round"), "world_size"), one.newest_round
        if size is None and begun is not None:
            size = integer(begun.data, "world_size")
        if size is not None:
            sizes.append(((one.round or 0) == newest, one.round or 0, size))
    return max(sizes)[2] if sizes else None


def _unseen(heard: Sequence[Heard], newest: int) -> list[str]:
    """Say how many nodes of the newest round nobody has told anything of."""
    begun = [size or 0 for one in heard for number_of_round, size in [_round_size(one)] if number_of_round == newest]
    missing = max(begun, default=0) - len(begun)
    if missing <= 0:
        return []
    which = "1 node of this round is" if missing == 1 else f"{missing} nodes of this round are"
    return [f"{which} not seen from here; --at asks their agents, --run-dir reads a folder that they share"]


def _round_size(one: Heard) -> tuple[int | None, int | None]:
    """Return the round that a node is in, and how many nodes are."""
    status, begun = one.seen.status, one.newest_round
    if status is not None:
        return integer(part(status, "round"), "number"), integer(part(status, "members"), "count")
    if begun is None:
        return None, None
    return integer(begun.data, "round"), integer(begun.data, "nodes")


# Ranks.


def _ranks(by_node: Sequence[tuple[Node, list[Rank]]], heard: Sequence[Heard], newest: int) -> tuple[Rank, ...]:
    """Return the workers of the newest round that anybody knows of; of a node that left before, there are none in it."""
    answering = {one.seen.node for one in heard if one.answers}
    by_node = sorted(by_node, key=lambda pair: pair[0].node in answering)  # whoever answers has the last word
    found = {rank.rank: rank for node, ranks in by_node if (node.round or 0) == newest for rank in ranks}
    return tuple(found[rank] for rank in sorted(found))


def _marked(ranks: Sequence[Rank], heard: Sequence[Heard], slow: Sequence[Mapping[str, object]]) -> tuple[Rank, ...]:
    """Mark the ranks that hang, and those that are slow."""
    behind = {rank for one in heard for rank in integers(part(one.seen.status, "hang"), "ranks")}
    by_rank = {integer(one, "rank"): number(one, "slower_by") for one in slow}
    return tuple(
        replace(one, behind=one.rank in behind, straggler=by_rank.get(one.rank))
        if one.rank in behind or one.rank in by_rank
        else one
        for one in ranks
    )


def _ranks_of(one: Heard) -> list[Rank]:
    return _live_ranks(one) if one.seen.status is not None else _past_ranks(one)


def _live_ranks(one: Heard) -> list[Rank]:
    status = one.seen.status or {}
    progress = part(status, "progress")
    found = []
    for worker in objects(status, "workers"):
        rank = integer(worker, "rank")
        if rank is None:
            continue
        local_rank, pid, state = integer(worker, "local_rank"), integer(worker, "pid"), text(worker, "state")
        found.append(_rank((rank, one.host, one.seen.node, local_rank, pid, state), part(progress, str(rank))))
    return found


def _past_ranks(one: Heard) -> list[Rank]:
    """Return the workers of the last round that a journal knows, as they were in the end."""
    begun = one.newest_round
    number_of_round = None if begun is None else integer(begun.data, "round")
    found: dict[int, Rank] = {}
    for event in one.events:
        if event.round != number_of_round:
            continue
        rank = integer(event.data, "rank")
        if event.name == "planaria.worker.started" and rank is not None:
            local_rank, pid = integer(event.data, "local_rank"), integer(event.data, "pid")
            found[rank] = Rank(rank, one.host, one.seen.node, local_rank, pid)
        elif event.name == "planaria.worker.exited" and rank in found:
            found[rank] = replace(found[rank], state=text(event.data, "result") or "ended")
        elif event.name == "planaria.progress":
            ranks = part(event.data, "ranks")
            found |= {key: _with_progress(seen, part(ranks, str(key))) for key, seen in found.items()}
    if one.end is None and not one.is_killed and not one.is_silent:
        return list(found.values())
    last = "running" if one.end is not None else _node_state(one)  # nobody has seen how those ended
    ended = {rank: replace(seen, rate=None, samples_rate=None, age_s=None) for rank, seen in found.items()}
    return [replace(seen, state=last) if seen.state == "running" else seen for seen in ended.values()]


def _with_progress(seen: Rank, report: Mapping[str, object]) -> Rank:
    return _rank((seen.rank, seen.host, seen.node, seen.local_rank, seen.pid, seen.state), report) if report else seen


def _rank(who: tuple[int, str, str, int | None, int | None, str], report: Mapping[str, object]) -> Rank:
    """Return a worker that has come so far. Every picture has each of a thousand made anew: with all its fields at once."""
    samples = number(report, "samples")
    return Rank(
        *who,
        integer(report, "step"),
        samples if samples is not None else number(part(report, "values"), "samples"),
        number(report, "rate"),
        number(report, "samples_rate"),
        text(report, "phase") or None,
        number(report, "age_s"),
        False,
        None,
    )
