"""One picture of a run from what its nodes told: in any order, twice, torn, wrong, or not at all."""

from __future__ import annotations

import json

import pytest
from journals import Node, failed_run

from planaria.base.value import replace
from planaria.insight.model import NodeSeen, RunSeen
from planaria.insight.picture import picture


def seen(*nodes: Node) -> list[NodeSeen]:
    return [NodeSeen(node.name, f"/runs/{node.run_id}/{node.name}", events=tuple(node.events)) for node in nodes]


def of(*nodes: Node) -> RunSeen:
    return picture(seen(*nodes))


STATUS = {
    "schema": 1,
    "job": {"run_id": "job7", "host": "node-a", "node": "node-a-0a1b2c3d", "agent_pid": 12},
    "state": "running",
    "ready": True,
    "why_not_ready": None,
    "round": {"number": 2, "world_size": 2, "first_rank": 0},
    "workers": [
        {"rank": 0, "local_rank": 0, "pid": 31, "state": "running", "age_s": 5.0},
        {"rank": 1, "local_rank": 1, "pid": 32, "state": "running", "age_s": 5.0},
    ],
    "restarts": {"used": 1, "allowed": 3},
    "progress": {
        "0": {"step": 9, "age_s": 0.2, "rate": 2.0, "samples_rate": 64.0, "values": {"samples": 288}},
        "1": None,
    },
    "newest_commit": {"node": {"step": 8, "round": 2, "generation": 8}, "buddy": None, "disk": None},
    "started_at": 1000.0,
    "uptime_s": 100.0,
    "trained_s": 80.0,
    "steps_reported": True,
}


def live(**changes: object) -> NodeSeen:
    return NodeSeen("node-a-0a1b2c3d", "socket", STATUS | changes, age_s=0.0)


def test_a_failed_run_has_its_nodes_its_restart_and_its_first_cause() -> None:
    run = of(*failed_run())
    assert (run.run_id, run.state, run.is_over, run.world_size) == ("job7", "failed", True, 6)
    assert [node.host for node in run.nodes] == ["node-a", "node-b", "node-c"]
    assert [rank.rank for rank in run.ranks] == [0, 1, 2, 3, 4, 5]
    assert (run.restarts_used, run.restarts_allowed) == (1, 1)
    assert run.outcome is not None
    assert run.outcome.first_cause is not None
    assert (run.outcome.first_cause.rank, run.outcome.first_cause.host) == (3, "node-b")
    assert run.outcome.first_cause.lines[-1] == "ValueError: label 1007 is out of range"
    assert run.outcome.phases == {"detect": 0.02, "end": 0.6}


def test_a_restart_that_three_nodes_tell_is_one_with_the_cause_and_the_steps_that_were_done_again() -> None:
    (restart,) = of(*failed_run()).restarts
    assert (restart.world_size, restart.nodes) == (6, 3)
    assert (restart.round, restart.reason, restart.kind, restart.charged) == (2, "rank 4 failed", "failed", True)
    assert restart.phases["rendezvous"] == 0.3
    assert restart.first_cause is not None
    assert (restart.first_cause.rank, restart.first_cause.killer) == (4, "oom")
    assert restart.first_cause.meaning == "SIGKILL (Killed), by the kernel: out of memory"
    assert (restart.redone.reached, restart.redone.resumed, restart.redone.steps) == (70, 61, 10)


def test_the_timeline_tells_a_round_once_and_every_failure() -> None:
    lines = [one.sentence for one in of(*failed_run()).timeline]
    assert lines.count("round 2 starts with 6 workers on 3 nodes: rank 4 failed") == 1
    assert "rank 3 failed after 48.5 s: ValueError: label 1007 is out of range" in lines
    assert not [line for line in lines if "SIGTERM" in line]


def test_the_world_over_time_ends_with_nobody() -> None:
    assert [size for _, size in of(*failed_run()).world_over_time] == [6, 6, 0]


def test_without_the_reports_word_the_first_cause_is_not_the_one_that_lost_its_neighbour() -> None:
    nodes = failed_run()
    for node in nodes:
        node.events[-1]["metadata"]["first_cause"] = None  # type: ignore[index]
    outcome = of(*nodes).outcome
    assert outcome is not None
    assert outcome.first_cause is not None
    assert outcome.first_cause.rank == 3


@pytest.mark.parametrize(
    "said",
    [
        {"message": "DistBackendError: ncclRemoteError: a call failed", "kind": "exception"},
        {"message": "RuntimeError: Socket Timeout", "kind": "exception"},
        {"message": "DistNetworkError: the connection was likely closed", "kind": "exception"},
        {"message": "EOFError: Ran out of input", "kind": "exception", "bases": ["EOFError", "Exception"]},
    ],
)
def test_whatever_an_agent_takes_for_the_loss_of_a_neighbour_is_no_first_cause_here(said: dict[str, object]) -> None:
    first, second = (
        Node("node-a", 0).begins().starts(1.0, 0, nodes=2),
        Node("node-b", 2).begins().starts(1.0, 0, nodes=2),
    )
    first.exits(5.0, 0, 0, **said).ends(7.0)
    second.exits(6.0, 0, 0, message="ValueError: no", kind="exception").ends(7.0)
    outcome = of(first, second).outcome
    assert outcome is not None
    assert outcome.first_cause is not None
    assert (outcome.first_cause.rank, [one.lost_peer for one in of(first, second).failures]) == (2, [True, False])


def test_nodes_may_come_in_any_order_and_twice() -> None:
    nodes = seen(*failed_run())
    assert picture([*reversed(nodes), *nodes]) == picture(nodes)


def test_a_node_that_answers_tells_its_state_and_its_ranks() -> None:
    run = picture([live()])
    assert (run.state, run.is_over, run.world_size) == ("running", False, 2)
    assert [(rank.rank, rank.pid, rank.step, rank.samples, rank.rate) for rank in run.ranks] == [
        (0, 31, 9, 288.0, 2.0),
        (1, 32, None, None, None),
    ]
    assert run.newest_commit == {"node": {"step": 8, "round": 2, "generation": 8}, "buddy": None, "disk": None}
    assert run.effective.share == pytest.approx(0.8)


def commit(step: int, run: int | None, number: int, generation: int) -> dict[str, object]:
    told = {"tier": "node", "step": step, "round": number, "generation": generation}
    return told if run is None else {**told, "run": run}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (commit(90, 1, 1, 9), commit(70, 1, 2, 7)),  # a later round wins over a step that was never completed
        (commit(90, 1, 9, 9), commit(5, 2, 0, 1)),
        (commit(70, 1, 2, 7), commit(71, 1, 2, 8)),
        (commit(90, None, 1, 9), commit(70, None, 2, 7)),  # agents of older versions tell no run
        (commit(90, None, 9, 9), commit(70, 1, 2, 7)),
    ],
)
def test_the_newest_commit_is_that_of_the_latest_run_round_and_generation(
    older: dict[str, object], newer: dict[str, object]
) -> None:
    expected = {key: newer[key] for key in ("step", "round", "generation")}
    for first, second in ((older, newer), (newer, older)):
        nodes = [Node(host, 0).begins().tell(5.0, "commit", **one) for host, one in (("a", first), ("b", second))]
        assert of(*nodes).newest_commit["node"] == expected
        status = {"node": second, "buddy": None, "disk": None}
        told = replace(live(newest_commit=status), events=tuple(nodes[0].events))
        assert picture([told]).newest_commit["node"] == expected


def test_a_live_node_and_its_folder_are_one_node_with_the_longer_story() -> None:
    run = picture([*seen(Node("node-a", 0).begins().starts(1.0, 2, nodes=1)), live()])
    assert len(run.nodes) == 1
    assert run.nodes[0].source == "socket"
    assert [one.name for one in run.timeline] == ["planaria.run.started", "planaria.round.started"]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["running", "running"], "running"),
        (["running", "stopping"], "stopping"),
        (["waiting", "waiting"], "waiting"),
        (["running", "waiting"], "running"),
    ],
)
def test_the_state_of_a_run_is_that_of_the_node_in_which_something_goes_on(states: list[str], expected: str) -> None:
    nodes = [replace(live(state=state), node=f"n{number}") for number, state in enumerate(states)]
    assert picture(nodes).state == expected


def test_ranks_that_are_behind_or_slow_are_marked() -> None:
    run = picture(
        [
            live(
                hang={"ranks": [1], "sentence": "rank 1 hangs"},
                stragglers=[{"rank": 0, "host": "node-a", "slower_by": 1.7}],
            )
        ]
    )
    assert [(rank.behind, rank.straggler) for rank in run.ranks] == [(False, 1.7), (True, None)]
    assert run.hang is not None


def test_a_node_that_was_killed_is_lost_when_the_others_know_the_end() -> None:
    nodes = failed_run()
    del nodes[1].events[-1]
    run = of(*nodes)
    assert (run.is_over, run.state) == (True, "failed")
    assert [node.state for node in run.nodes] == ["failed", "lost", "failed"]


def test_a_node_that_left_does_not_end_the_run_of_the_others() -> None:
    left = Node("node-a", 0).begins().starts(1.0, 1, nodes=2).ends(5.0, "signal", 143, signal="SIGTERM")
    stays = Node("node-b", 2).begins().starts(1.0, 1, nodes=2)
    run = of(left, stays)
    assert (run.is_over, run.outcome, run.state) == (False, None, "running")


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"name": 5, "timestamp": 1},
        {"name": "planaria.restart", "timestamp": 10, "metadata": None},
        {"name": "planaria.restart", "timestamp": 10, "metadata": {"round": "2", "total_s": []}},
        {"name": "planaria.restart", "timestamp": 10, "metadata": {"round": 3, "total_s": float("nan")}},
        {
            "name": "planaria.progress",
            "timestamp": 10,
            "metadata": {"round": 2, "ranks": {"0": 5, "1": {"step": True}}},
        },
        {"name": "planaria.worker.exited", "timestamp": 10, "metadata": {"result": "failed", "status": "x"}},
        {"name": "planaria.run.ended", "timestamp": 10**30, "metadata": {"outcome": ["?"], "first_cause": 3}},
        {"name": "planaria.commit", "timestamp": 10, "metadata": {"tier": "moon", "step": 1}},
        {"name": "planaria.hang", "timestamp": 10, "metadata": {"ranks": "all"}},
        {"name": "planaria.straggler", "timestamp": 10, "metadata": {"ranks": [1, {"rank": "x"}]}},
        {"name": "somebody.else", "timestamp": 10, "metadata": {"sentence": "\x1b[2Jhello"}},
    ],
)
def test_what_is_wrong_in_a_journal_costs_nothing_but_itself(wrong: dict[str, object]) -> None:
    nodes = failed_run()
    nodes[0].events.append(wrong)
    json.dumps(of(*nodes).as_json())


@pytest.mark.parametrize("key", list(STATUS))
@pytest.mark.parametrize("value", [None, 5, "x", [], {}, [{"rank": "x"}], {"0": {"step": "x"}}, True])
def test_what_is_wrong_in_a_status_costs_nothing_but_itself(key: str, value: object) -> None:
    json.dumps(picture([live(**{key: value})]).as_json())


def test_nothing_at_all_is_a_picture_too() -> None:
    run = picture([])
    assert (run.run_id, run.state, run.nodes, run.is_over) == ("", "gone", (), False)
    assert json.loads(json.dumps(run.as_json()))["restarts"] == {"used": None, "allowed": None, "list": []}


def test_nodes_that_nobody_told_anything_of_are_counted() -> None:
    run = of(*failed_run()[:1])
    assert run.gaps == (
        "2 nodes of this round are not seen from here; --at asks their agents, --run-dir reads a folder that they share",
    )
    assert of(*failed_run()).gaps == ()
    assert picture([live(members={"count": 2})]).gaps[0].startswith("1 node of this round is not seen from here; ")
    assert picture([live(members={"count": 1})]).gaps == ()
