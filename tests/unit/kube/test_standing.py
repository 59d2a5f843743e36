"""What a job says that is not over: the obstacle that is there now, not what once happened."""

from __future__ import annotations

import pytest
from kubesim.given import Desk, elastic_spec, running, template

from planaria.kube.seen import Ended

NO_ROOM = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."


@pytest.mark.parametrize("how", ["evicted", "failed"])
@pytest.mark.parametrize("later_s", [1.0, 120.0, 3600.0])
def test_what_a_replacement_waits_for_comes_before_why_it_is_there(how: str, later_s: float) -> None:
    desk = running(elastic_spec(least=2, start=2, worker={"restartPolicy": "ExitCode"}))
    if how == "evicted":
        desk.change(1, phase="Failed", reason="Evicted", is_running=False)
    else:
        desk.end(1, 137)
    desk.look()
    desk.look()
    desk.change(1, unschedulable=NO_ROOM)
    desk.look(later_s)
    assert (desk.state, desk.reason) == ("BelowMin", "Unschedulable")
    assert desk.message == (
        f"PyTorchJob resnet waits, 1 of at least 2 Workers run: resnet-worker-1 finds no room ({NO_ROOM})."
    )


def test_a_failure_is_told_until_its_replacement_runs() -> None:
    desk = running(elastic_spec(worker={"restartPolicy": "ExitCode"}))
    desk.end(0, 137)
    for _ in range(4):  # failed, being made again, starting
        desk.look()
        assert desk.state == "Restarting"
        assert "resnet-worker-0 ended with status 137" in desk.message
    desk.run_all().look()
    assert desk.state == "Running"


def test_a_pod_of_a_larger_size_that_failed_once_is_no_reason_of_today() -> None:
    desk = running(elastic_spec(start=3, worker={"restartPolicy": "ExitCode"}))
    desk.end(2, 137)
    desk.spec["pytorchReplicaSpecs"]["Worker"]["replicas"] = 1
    desk.look()
    desk.look()
    desk.settle()
    desk.look()
    assert sorted(desk.pods) == ["resnet-worker-0"]
    desk.vanish(0)
    desk.look()
    assert (desk.state, desk.reason) == ("BelowMin", "WorkersMissing")
    desk.change(0, unschedulable="no room")
    desk.look()
    assert (desk.state, desk.reason) == ("BelowMin", "Unschedulable")
    assert "resnet-worker-2" not in desk.message
    desk.look(601.0)
    assert "attempts" not in desk.status["operator"]


def test_a_failure_and_an_obstacle_are_both_told() -> None:
    desk = running(elastic_spec(least=2, start=2))
    desk.change(0, is_running=False, restarts=1, last=Ended(1, "Error"), stuck="CrashLoopBackOff: back-off 10s")
    desk.vanish(1)
    desk.look()
    desk.change(1, unschedulable="no room")
    desk.look()
    assert desk.state == "Restarting"
    assert "resnet-worker-0 ended with status 1" in desk.message
    assert desk.message.endswith("1 restart so far. Besides, resnet-worker-1 finds no room (no room).")


def test_a_container_that_failed_and_now_lacks_its_image_says_that() -> None:
    desk = running(elastic_spec())
    desk.change(0, is_running=False, restarts=1, last=Ended(1, "Error"), stuck="ImagePullBackOff: no such image")
    desk.look()
    assert (desk.state, desk.reason) == ("BelowMin", "ContainerWaiting")


def _ours(**rest: object) -> Desk:
    """The kubelet asks the agents of this one: nobody else knows its backend."""
    return running(elastic_spec(policy={"rdzvBackend": "kubernetes"}, **rest))  # type: ignore[arg-type]


def test_a_job_whose_workers_run_and_do_not_train_says_so_after_a_while_and_comes_back() -> None:
    desk = _ours()
    desk.change(0, is_ready=False)
    wake = desk.look().wake_after_s
    assert desk.state == "Running"  # they meet: that is usual after a resize
    assert wake is not None
    assert wake <= 120.0
    desk.look(119.0)
    assert desk.state == "Running"
    desk.look(1.0)
    assert (desk.state, desk.reason) == ("BelowMin", "NotTraining")
    assert desk.message == (
        "PyTorchJob resnet waits, 1 of at least 1 Workers run and 0 train: "
        "the log of resnet-worker-0 says what they wait for."
    )
    desk.look(3600.0)
    assert desk.state == "BelowMin"
    desk.run_all().look()
    assert desk.state == "Running"
    desk.change(0, is_ready=False)
    desk.look()
    assert desk.state == "Running"  # the count begins anew


def _with_a_lost_majority(desk: Desk) -> Desk:
    desk.change(0, is_going=True, node="n2", is_ready=False)
    desk.world["lost_nodes"] = frozenset({"n2"})
    desk.look()
    desk.run_all()
    desk.change(1, is_ready=False)
    desk.look()
    desk.look(120.0)
    assert (desk.state, desk.reason) == ("BelowMin", "NotTraining")
    return desk


def test_a_replacement_that_waits_for_a_majority_that_is_lost_is_not_calledrunning() -> None:
    assert _with_a_lost_majority(_ours()).message.endswith(
        "the log of resnet-worker-1 says what they wait for; "
        "resnet-worker-0 is on n2, which is lost; if that machine is off for good, delete its Node."
    )


def test_where_the_agents_do_not_meet_through_the_cluster_nobody_is_told_to_delete_a_node() -> None:
    spec = elastic_spec(
        policy={"rdzvBackend": "etcd", "rdzvEndpoint": "etcd:2379"},
        worker={"template": template(command=["planaria", "run"])},
    )
    assert _with_a_lost_majority(running(spec)).message.endswith("resnet-worker-0 is on n2, which is lost.")


def test_a_job_runs_as_soon_as_its_first_workers_train_and_not_before() -> None:
    desk = Desk(elastic_spec(least=2, start=2))
    desk.look()
    desk.run_all()
    desk.change(0, is_ready=False)
    desk.look()
    assert desk.state == "Created"
    desk.run_all().look()
    assert desk.state == "Running"


def test_a_worker_that_was_restarted_is_restarting_until_it_trains() -> None:
    desk = _ours()
    desk.change(0, is_running=False, is_ready=False, restarts=1, last=Ended(1, "Error"))
    desk.look()
    desk.change(0, is_running=True)
    desk.look()
    assert (desk.state, desk.message) == ("Restarting", "PyTorchJob resnet is restarting: its Workers run and meet.")
    desk.run_all().look()
    assert desk.state == "Running"


@pytest.mark.parametrize(
    "spec",
    [
        elastic_spec(policy={"rdzvBackend": "etcd", "rdzvEndpoint": "etcd:2379"}),
        elastic_spec(worker={"template": template(readinessProbe={"exec": {"command": ["true"]}})}),
    ],
    ids=["whose agent it is, nobody knows", "the probes are the user's"],
)
def test_readiness_says_nothing_where_the_kubelet_does_not_ask_our_agent(spec: dict[str, object]) -> None:
    desk = running(spec)
    desk.change(0, is_ready=False)
    desk.look()
    desk.look(3600.0)
    assert desk.state == "Running"


def test_a_run_that_is_done_waits_for_nobody_to_train() -> None:
    desk = running(elastic_spec(start=2))
    desk.end(0, 0)
    desk.change(1, is_ready=False)
    desk.look()
    assert desk.state == "Running"
