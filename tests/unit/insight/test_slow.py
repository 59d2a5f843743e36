"""Which ranks are slow: between nodes that answer, as agents say, and as the journal of a run has it that is over."""

from __future__ import annotations

import pytest
from journals import Node

from planaria.insight.model import NodeSeen, RunSeen
from planaria.insight.picture import picture


def answering(node: str, first_rank: int, paces: list[dict[str, float] | None], **changes: object) -> NodeSeen:
    """Return a node with some ranks, each with what its agent says of its pace."""
    ranks = [*enumerate(paces, start=first_rank)]
    status: dict[str, object] = {
        "job": {"run_id": "job7", "host": f"host-{node}"},
        "state": "running",
        "round": {"number": 2, "world_size": 4},
        "workers": [
            {"rank": rank, "local_rank": rank - first_rank, "pid": 30, "state": "running"} for rank, _ in ranks
        ],
        "progress": {str(rank): pace and {"step": 9, **pace} for rank, pace in ranks},
        "stragglers": [],
    }
    return NodeSeen(node, "socket", status | changes, age_s=0.0)


def named(run: RunSeen) -> list[tuple[object, ...]]:
    """Return who is slow; the marks of single ranks say the same."""
    marked = {one.rank: one.straggler for one in run.ranks if one.straggler is not None}
    assert {one["rank"]: one["slower_by"] for one in run.stragglers} == marked
    return [(one["rank"], one["host"], one["slower_by"]) for one in run.stragglers]


def busy(*seconds: float) -> list[dict[str, float] | None]:
    """Ranks that wait for each other: what a step takes is the same for all, and tells nothing."""
    return [{"busy_s": one, "step_s": 1.0, "step_mean_s": 1.0} for one in seconds]


def steps(*seconds: float) -> list[dict[str, float] | None]:
    return [{"step_s": one, "step_mean_s": one} for one in seconds]


@pytest.mark.parametrize("paces", [busy, steps])
def test_one_rank_on_each_node_is_compared_with_the_others(paces: object) -> None:
    nodes = [answering(node, rank, paces(0.9 if rank == 2 else 0.6)) for rank, node in enumerate("abcd")]  # type: ignore[operator]
    assert named(picture(nodes)) == [(2, "host-c", 1.5)]


def test_a_host_that_is_slow_as_a_whole_is_named_with_all_its_ranks() -> None:
    nodes = [answering("a", 0, busy(0.5, 0.5)), answering("b", 2, busy(0.8, 0.6)), answering("c", 4, busy(0.5, 0.5))]
    assert named(picture(nodes)) == [(2, "host-b", 1.6), (3, "host-b", 1.2)]


def test_ranks_that_take_the_same_within_a_tenth_are_not_told_apart() -> None:
    assert named(picture([answering("a", 0, steps(1.0)), answering("b", 1, steps(1.09))])) == []
    assert named(picture([answering("a", 0, busy(0.002)), answering("b", 1, busy(0.004))])) == [], "that is nothing"


def test_a_single_long_step_makes_nobody_slow() -> None:
    paused: list[dict[str, float] | None] = [{"step_s": 1.0, "step_mean_s": 3.0}]
    assert (
        named(picture([answering("a", 0, steps(1.0)), answering("b", 1, paused), answering("c", 2, steps(1.0))])) == []
    )


def test_of_a_single_node_and_of_those_that_say_nothing_the_agents_are_believed() -> None:
    told = [{"rank": 1, "host": "host-a", "slower_by": 1.5}]
    assert named(picture([answering("a", 0, busy(0.6, 0.9), stragglers=told)])) == [(1, "host-a", 1.5)]
    nodes = [answering("a", 0, [None, None], stragglers=told), answering("b", 2, [None, {"step_s": float("nan")}])]
    assert named(picture(nodes)) == [(1, "host-a", 1.5)]


def test_what_is_known_between_nodes_is_said_of_a_rank_that_its_agent_named_too() -> None:
    told = [{"rank": 1, "host": "host-a", "slower_by": 2.0}]
    nodes = [answering("a", 0, busy(0.5, 1.0), stragglers=told), answering("b", 2, busy(0.5, 0.5))]
    assert named(picture(nodes)) == [(1, "host-a", 2.0)]


def test_a_node_of_an_older_round_is_not_compared() -> None:
    before = answering("b", 1, steps(9.0), round={"number": 1, "world_size": 2})
    assert named(picture([answering("a", 0, steps(1.0)), before])) == []


def test_of_a_run_that_is_over_the_newest_word_of_its_last_round_counts() -> None:
    first, second = Node("node-a", 0, workers=2).begins(), Node("node-b", 2, workers=2).begins()
    slow = {"rank": 1, "host": "node-a", "slower_by": 1.4}
    for node in (first, second):
        node.starts(1.0, 1, nodes=2).tell(2.0, "straggler", round=1, ranks=[slow | {"rank": node.first_rank}])
        node.starts(5.0, 2, nodes=2)
    first.tell(6.0, "straggler", round=2, ranks=[slow | {"slower_by": 1.2}]).tell(
        7.0, "straggler", round=2, ranks=[slow]
    )
    second.tell(6.0, "straggler", round=2, ranks=[slow | {"rank": 3}]).tell(7.0, "straggler", round=2, ranks=[])
    for node in (first, second):
        node.ends(9.0, "done", 0)
    run = picture([NodeSeen(node.name, f"/runs/{node.name}", events=tuple(node.events)) for node in (first, second)])
    assert named(run) == [(1, "node-a", 1.4)]
