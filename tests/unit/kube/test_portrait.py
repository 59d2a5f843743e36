from __future__ import annotations

from journals import Node

from planaria.base.value import replace
from planaria.contract.progress import Record
from planaria.insight.model import NodeSeen
from planaria.insight.picture import picture
from planaria.kube.portrait import NO_RANKS, OF_THE_LEADER, Sizes, Told, portrait
from planaria.kube.seen import Ended, JobSeen, PodSeen

NOW_MS = 1_794_000_060_000
STARTED = "2026-11-06T21:20:00Z"


def job(state: str = "Running", message: str = "", **status: object) -> JobSeen:
    condition = {"type": state, "status": "True", "message": message, "lastTransitionTime": STARTED}
    told = {"state": state, "conditions": [condition], "startTime": STARTED, "restarts": 1, **status}
    return JobSeen("resnet", "team", "u1", 1, False, {"backoffLimit": 6}, told)


def pod(index: int, **changes: object) -> PodSeen:
    fields: dict[str, object] = {"phase": "Running", "node": "gpu-1", "is_ready": True, "is_running": True}
    return PodSeen(f"resnet-worker-{index}", f"p{index}", "Worker", index, **{**fields, **changes})  # type: ignore[arg-type]


RECORD = Record("planaria 0.1.0", 3, 2, 4, 120, 7680.0, 41.5)


def test_a_job_that_runs_has_its_pods_its_step_and_its_restarts() -> None:
    found = portrait(job(), [pod(0), pod(1)], Told(RECORD, None, Sizes(((NOW_MS - 9, 2),))), NOW_MS)
    assert (found["run_id"], found["state"], found["is_over"], found["world_size"]) == (
        "team/resnet",
        "Running",
        False,
        2,
    )
    assert [node["host"] for node in found["nodes"]] == ["resnet-worker-0 on gpu-1", "resnet-worker-1 on gpu-1"]
    assert found["restarts"] == {"used": 1, "allowed": 6, "list": []}
    assert found["progress"] == {"step": 120, "samples": 7680.0}
    assert found["effective"]["seconds"] == 60.0
    assert found["world_over_time"] == [[NOW_MS - 9, 2]]
    assert found["gaps"] == [NO_RANKS]
    assert [one["sentence"] for one in found["timeline"]] == ["Running"]


def test_rounds_that_agents_push_are_events_once_each() -> None:
    sizes = Sizes().with_round(NOW_MS - 50, RECORD).with_round(NOW_MS - 40, RECORD)
    sizes = sizes.with_round(NOW_MS - 30, Record("planaria 0.1.0", 4, 1, 2, 130, None, 1.0))
    found = portrait(job(), [pod(0)], Told(RECORD, None, sizes), NOW_MS)
    rounds = [one["sentence"] for one in found["timeline"] if one["name"] == "planaria.round.started"]
    assert rounds == [
        "the agents are in round 3, with 4 workers on 2 nodes",
        "the agents are in round 4, with 2 workers on 1 node",
    ]


def test_what_keeps_a_pod_is_told_in_its_own_words() -> None:
    pods = [
        pod(
            0, phase="Pending", is_running=False, unschedulable="0/3 nodes are available: 3 Insufficient nvidia.com/gpu"
        ),
        pod(1, is_ready=False),
        pod(2, phase="Failed", is_running=False, ended=Ended(137, "OOMKilled")),
        pod(3, is_going=True, node=""),
    ]
    nodes = portrait(job(), pods, Told(), NOW_MS)["nodes"]
    assert [(node["state"], node["why_not_ready"]) for node in nodes] == [
        ("pending", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu"),
        ("running", "it runs and is not ready: its log says what it waits for"),
        ("failed, its container ended with 137 OOMKilled", None),
        ("going", None),
    ]
    assert nodes[3]["host"] == "resnet-worker-3"


def test_a_job_without_pods_says_why() -> None:
    found = portrait(job("Invalid", "spec.minReplicas is 0"), [], Told(), NOW_MS)
    assert [node["why_not_ready"] for node in found["nodes"]] == ["spec.minReplicas is 0"]


def test_a_job_that_has_ended_says_how() -> None:
    found = portrait(
        job("Failed", "resnet-worker-2 failed with exit status 1", completionTime="2026-11-06T21:20:30Z"),
        [],
        Told(None, None, Sizes(((NOW_MS - 60_000, 2),))),
        NOW_MS,
    )
    assert found["outcome"]["outcome"] == "failed"
    assert found["outcome"]["sentence"] == "the job failed: resnet-worker-2 failed with exit status 1"
    assert found["world_over_time"][-1] == [NOW_MS - 30_000, 0]
    assert found["effective"]["seconds"] == 30.0
    assert portrait(job("Succeeded"), [], Told(), NOW_MS)["outcome"]["outcome"] == "done"


def test_a_status_that_somebody_wrote_by_hand_is_survived() -> None:
    strange = JobSeen("x", "y", "u", 1, False, {"backoffLimit": "many"}, {"startTime": "soon", "restarts": None})
    found = portrait(strange, [], Told(), NOW_MS)
    assert found["restarts"] == {"used": None, "allowed": None, "list": []}


def test_sizes_are_kept_when_they_change_and_not_for_ever() -> None:
    sizes = Sizes()
    for at in range(10):
        sizes = sizes.with_size(at, at // 2, most=3)
    assert sizes.seen == ((4, 2), (6, 3), (8, 4))


def test_what_the_leading_agent_pushes_is_shown_with_what_the_operator_knows() -> None:
    agent = Node("resnet-worker-0", 0).begins().starts(1.0, 3, nodes=2).starts(20.0, 4, nodes=2, reason="rank 1 failed")
    agent.restarts(20.5, 4, "rank 1 failed", detect_s=0.1, ready_s=0.3).steps(30.0, 4, 130)
    run = picture([NodeSeen("resnet-worker-0", "kubernetes", events=tuple(agent.events))])
    early = Sizes().with_round(agent.events[0]["timestamp"] - 5, RECORD)  # type: ignore[operator]  # a number
    late = early.with_round(agent.events[-1]["timestamp"], Record("planaria 0.1.0", 4, 2, 4, 130, None, 1.0))  # type: ignore[arg-type]  # as above
    found = portrait(job(), [pod(0), pod(1)], Told(RECORD, run, late), NOW_MS)
    assert [(one["round"], one["reason"], one["phases"]["ready"]) for one in found["restarts"]["list"]] == [
        (4, "rank 1 failed", 0.3)
    ]
    assert [(one["rank"], one["step"], one["rate"]) for one in found["ranks"]] == [(0, 130, 2.0), (1, 130, 2.0)]
    assert [node["ranks"] for node in found["nodes"]] == [[0, 1], []]
    told = [one["sentence"] for one in found["timeline"] if one["name"] == "planaria.round.started"]
    assert told == [
        "the agents are in round 3, with 4 workers on 2 nodes",
        "round 3 starts with 4 workers on 2 nodes",
        "round 4 starts with 4 workers on 2 nodes: rank 1 failed",
    ], "a round that an agent tells of is told once"
    assert found["gaps"] == [OF_THE_LEADER]
    over = portrait(job("Succeeded"), [pod(0, is_running=False)], Told(RECORD, run, late), NOW_MS)
    assert (over["ranks"], len(over["restarts"]["list"])) == ([], 1)


def test_a_leader_that_is_gone_has_no_ranks_and_does_not_hang() -> None:
    agent = Node("resnet-worker-0", 0).begins().starts(1.0, 3, nodes=2).steps(30.0, 3, 130)
    agent.tell(70.0, "hang", round=3, ranks=[1], sentence="rank 1 is behind", policy="report")
    run = picture([NodeSeen("resnet-worker-0", "kubernetes", events=tuple(agent.events))])
    run = replace(run, stragglers=({"rank": 1, "host": "resnet-worker-0", "slower_by": 1.6},))
    there = portrait(job(), [pod(0), pod(1)], Told(RECORD, run), NOW_MS)
    assert there["hang"]["sentence"] == "rank 1 is behind"
    assert (len(there["ranks"]), len(there["stragglers"])) == (2, 1)
    for pods in ([], [pod(1)], [pod(0, is_running=False, phase="Failed"), pod(1)]):
        found = portrait(job("Suspended"), pods, Told(RECORD, run), NOW_MS)
        assert (found["hang"], found["ranks"], found["stragglers"]) == (None, [], [])
        assert all(node["ranks"] == [] for node in found["nodes"])
        assert "rank 1 is behind" in [one["sentence"] for one in found["timeline"]], "it has happened"
