from __future__ import annotations

from planaria.contract.progress import Record
from planaria.kube.portrait import NO_RANKS, Sizes, portrait
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
    found = portrait(job(), [pod(0), pod(1)], RECORD, Sizes(((NOW_MS - 9, 2),)), NOW_MS)
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
    found = portrait(job(), [pod(0)], RECORD, sizes, NOW_MS)
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
    nodes = portrait(job(), pods, None, Sizes(), NOW_MS)["nodes"]
    assert [(node["state"], node["why_not_ready"]) for node in nodes] == [
        ("pending", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu"),
        ("running", "it runs and is not ready: its log says what it waits for"),
        ("failed, its container ended with 137 OOMKilled", None),
        ("going", None),
    ]
    assert nodes[3]["host"] == "resnet-worker-3"


def test_a_job_without_pods_says_why() -> None:
    found = portrait(job("Invalid", "spec.minReplicas is 0"), [], None, Sizes(), NOW_MS)
    assert [node["why_not_ready"] for node in found["nodes"]] == ["spec.minReplicas is 0"]


def test_a_job_that_has_ended_says_how() -> None:
    found = portrait(
        job("Failed", "resnet-worker-2 failed with exit status 1", completionTime="2026-11-06T21:20:30Z"),
        [],
        None,
        Sizes(((NOW_MS - 60_000, 2),)),
        NOW_MS,
    )
    assert found["outcome"]["outcome"] == "failed"
    assert found["outcome"]["sentence"] == "the job failed: resnet-worker-2 failed with exit status 1"
    assert found["world_over_time"][-1] == [NOW_MS - 30_000, 0]
    assert found["effective"]["seconds"] == 30.0
    assert portrait(job("Succeeded"), [], None, Sizes(), NOW_MS)["outcome"]["outcome"] == "done"


def test_a_status_that_somebody_wrote_by_hand_is_survived() -> None:
    strange = JobSeen("x", "y", "u", 1, False, {"backoffLimit": "many"}, {"startTime": "soon", "restarts": None})
    found = portrait(strange, [], None, Sizes(), NOW_MS)
    assert found["restarts"] == {"used": None, "allowed": None, "list": []}


def test_sizes_are_kept_when_they_change_and_not_for_ever() -> None:
    sizes = Sizes()
    for at in range(10):
        sizes = sizes.with_size(at, at // 2, most=3)
    assert sizes.seen == ((4, 2), (6, 3), (8, 4))
