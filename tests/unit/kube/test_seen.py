from __future__ import annotations

from typing import Any

import pytest

from planaria.kube import capacity
from planaria.kube.seen import Ended, job_seen, pod_seen, world_seen

Json = dict[str, Any]


def _pod(name: str = "resnet-worker-1", *, owner: str = "u", status: Json | None = None, **meta: object) -> Json:
    labels = {"job-name": "resnet", "replica-type": "worker", "replica-index": "1"}
    reference = {"kind": "PyTorchJob", "name": "resnet", "uid": owner, "controller": True}
    return {
        "metadata": {"name": name, "uid": "p1", "labels": labels, "ownerReferences": [reference], **meta},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "side"}, {"name": "pytorch"}],
            "terminationGracePeriodSeconds": 60,
        },
        "status": status or {"phase": "Pending"},
    }


def _trainer(state: Json, **rest: object) -> Json:
    return {
        "phase": "Running",
        "containerStatuses": [{"name": "side", "state": {"running": {}}}, {"name": "pytorch", "state": state, **rest}],
    }


JOB = job_seen({"metadata": {"name": "resnet", "namespace": "ns", "uid": "u", "generation": 4}, "spec": {}})


def test_a_job_is_read() -> None:
    assert (JOB.name, JOB.namespace, JOB.uid, JOB.generation, JOB.is_going) == ("resnet", "ns", "u", 4, False)
    going = {"metadata": {"name": "x", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert job_seen(going).is_going


def test_the_container_that_trains_speaks_for_its_pod() -> None:
    seen = pod_seen(_pod(status=_trainer({"running": {}}, restartCount=2)))
    assert seen is not None
    assert (seen.kind, seen.index, seen.is_running, seen.restarts, seen.node, seen.grace_s) == (
        "Worker",
        1,
        True,
        2,
        "n1",
        60.0,
    )


def test_how_a_container_ended_is_read_with_how_long_it_lived() -> None:
    terminated = {
        "exitCode": 137,
        "reason": "OOMKilled",
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:01:30Z",
    }
    seen = pod_seen(_pod(status=_trainer({"terminated": terminated}, lastState={"terminated": {"exitCode": 1}})))
    assert seen is not None
    assert seen.ended == Ended(137, "OOMKilled", lived_s=90.0)
    assert seen.last == Ended(1)


@pytest.mark.parametrize(
    ("status", "unschedulable", "stuck"),
    [
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no gpu"}
                ]
            },
            "no gpu",
            None,
        ),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulerError"}]}, None, None),
        (_trainer({"waiting": {"reason": "ContainerCreating"}}), None, None),
        (_trainer({"waiting": {"reason": "ImagePullBackOff", "message": "gone"}}), None, "ImagePullBackOff: gone"),
        ({"initContainerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]}, None, "ErrImagePull"),
    ],
)
def test_only_the_scheduler_says_that_there_is_no_room(
    status: Json, unschedulable: str | None, stuck: str | None
) -> None:
    seen = pod_seen(_pod(status=status))
    assert seen is not None
    assert (seen.unschedulable, seen.stuck) == (unschedulable, stuck)


def test_what_others_own_is_foreign_even_under_the_job_s_own_name() -> None:
    world = world_seen(
        JOB, [_pod(), _pod("resnet-worker-2", owner="an earlier one")], [("Service", _pod("resnet-worker-1"))]
    )
    assert [pod.name for pod in world.pods] == ["resnet-worker-1"]
    assert world.foreign == {("Pod", "resnet-worker-2")}
    assert world.owned == {("Service", "resnet-worker-1"): "p1"}


def _node(name: str, ready: str = "True", **rest: object) -> Json:
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}], **rest}}


@pytest.mark.parametrize(
    ("nodes", "lost"),
    [
        (None, set()),
        ([_node("n1")], set()),
        ([_node("n1", "Unknown")], {"n1"}),
        ([_node("n1", "False")], {"n1"}),
        ([], {"n1"}),
    ],
)
def test_a_node_that_is_gone_or_not_ready_is_lost(nodes: list[Json] | None, lost: set[str]) -> None:
    assert world_seen(JOB, [_pod()], nodes=nodes).lost_nodes == lost


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", 1.0),
        ("500m", 0.5),
        ("1.5Gi", 1.5 * 2**30),
        ("2k", 2000.0),
        ("1e3", 1000.0),
        (3, 3.0),
        ("5E", 5e18),
        ("7n", 7e-9),
    ],
)
def test_quantities_are_read(text: str | int, number: float) -> None:
    assert capacity.quantity(text) == pytest.approx(number)


def test_what_is_left_is_what_ready_nodes_have_less_what_pods_ask_for() -> None:
    nodes = [
        _node("n1", allocatable={"cpu": "4", "nvidia.com/gpu": "2"}),
        _node("n2", "False", allocatable={"cpu": "64"}),
    ]
    asks = {"resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "2"}, "requests": {"cpu": "500m"}}}
    own, other = ({"ownerReferences": [{"controller": True, "uid": uid}]} for uid in ("own", "other"))
    pods = [
        {"metadata": own, "spec": {"nodeName": "n1", "containers": [asks]}, "status": {"phase": "Running"}},
        {"metadata": other, "spec": {"nodeName": "n1", "containers": [asks]}, "status": {"phase": "Running"}},
        {"metadata": {}, "spec": {"nodeName": "n1", "containers": [asks]}, "status": {"phase": "Succeeded"}},
        {"metadata": {}, "spec": {"containers": [asks]}, "status": {"phase": "Pending"}},
        {"metadata": own, "spec": {"nodeName": "n2", "containers": [asks]}, "status": {"phase": "Running"}},
    ]
    left = capacity.left(nodes, pods)
    assert left.free == {"nodes": 1.0, "cpu": 3.0, "nvidia.com/gpu": 0.0, "pods": -2.0}
    assert left.beside("own") == {"nodes": 1.0, "cpu": 3.5, "nvidia.com/gpu": 1.0, "pods": -1.0}
    assert capacity.left(nodes, pods[1:]).beside("own") == left.beside("own"), "an own pod that ends is no room"
    assert left.beside("a new one") == left.free


@pytest.mark.parametrize(
    ("before", "after", "answer"),
    [
        ({"gpu": 0.0}, {"gpu": 1.0}, True),
        ({"gpu": 1.0}, {"gpu": 1.0}, False),
        ({"gpu": 1.0}, {"gpu": 0.0}, False),
        ({}, {"gpu": 1.0}, True),
        ({"cpu": 1.0, "gpu": 0.0}, {"cpu": 0.5, "gpu": 1.0}, True),
    ],
)
def test_more_of_anything_is_worth_asking_again(
    before: dict[str, float], after: dict[str, float], answer: bool
) -> None:
    assert capacity.grew(before, after) is answer


def _failed(init: Json, phase: str = "Failed") -> Json:
    waiting = {"name": "pytorch", "state": {"waiting": {"reason": "PodInitializing"}}}
    first = {"name": "fetch", "state": {"terminated": {"exitCode": 0}}}
    return {
        "phase": phase,
        "initContainerStatuses": [first, {"name": "init", "state": init}],
        "containerStatuses": [waiting],
    }


def test_a_pod_that_failed_before_its_trainer_started_says_which_container_did() -> None:
    terminated = {"terminated": {"exitCode": 3, "reason": "Error"}}
    seen = pod_seen(_pod(status=_failed(terminated)))
    assert seen is not None
    assert seen.ended == Ended(3, "Error", container="init")
    waits = pod_seen(_pod(status=_failed(terminated, "Pending")))  # the kubelet starts it again
    assert waits is not None
    assert waits.ended is None
    taken = pod_seen(_pod(status=_failed({"waiting": {}})))
    assert taken is not None
    assert taken.ended is None


def test_restarts_of_init_containers_are_those_of_the_pod_and_those_of_sidecars_are_not() -> None:
    status = _failed({"waiting": {"reason": "CrashLoopBackOff"}}, "Pending")
    terminated = {"exitCode": 3, "reason": "Error"}
    status["initContainerStatuses"][1] |= {"restartCount": 4, "lastState": {"terminated": terminated}}
    side = {"name": "proxy", "restartCount": 9, "lastState": {"terminated": terminated | {"exitCode": 5}}}
    status["initContainerStatuses"].insert(0, side)
    pod = _pod(status=status)
    pod["spec"]["initContainers"] = [{"name": "proxy", "restartPolicy": "Always"}, {"name": "fetch"}, {"name": "init"}]
    seen = pod_seen(pod)
    assert seen is not None
    assert (seen.restarts, seen.last) == (4, Ended(3, "Error", container="init"))
    status["containerStatuses"] = [{"name": "pytorch", "restartCount": 1, "lastState": {"terminated": {"exitCode": 7}}}]
    seen = pod_seen(pod)
    assert seen is not None
    assert (seen.restarts, seen.last) == (5, Ended(7))
