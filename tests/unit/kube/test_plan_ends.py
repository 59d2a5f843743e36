from __future__ import annotations

import pytest
from kubesim.given import Desk, elastic_spec, plain_spec, running, template

from planaria.kube.ending import SETTLE_S
from planaria.kube.names import MASTER
from planaria.kube.seen import Ended


def _done(spec: dict[str, object]) -> Desk:
    desk = running(spec)
    for name, pod in list(desk.pods.items()):
        if name.startswith("resnet-worker"):
            desk.end(pod.index, 0)
    desk.look()
    assert desk.state == "Succeeded"
    return desk


def test_an_elastic_job_is_done_when_its_workers_are() -> None:
    desk = _done(elastic_spec(start=2))
    assert desk.message == "PyTorchJob resnet successfully completed."
    assert desk.status["completionTime"] == desk.status["conditions"][-1]["lastTransitionTime"]
    assert desk.status["replicaStatuses"]["Worker"] == {"active": 0, "succeeded": 2}


def test_the_last_workers_get_a_moment_to_end_and_no_more() -> None:
    desk = running(elastic_spec(start=2))
    desk.end(0, 0)
    wake = desk.look().wake_after_s
    assert (desk.state, desk.created, wake) == ("Running", ["resnet-worker-0", "resnet-worker-1"], 60.0)
    desk.look(61.0)
    assert desk.state == "Succeeded"


def test_who_fails_after_the_run_is_done_does_not_undo_it() -> None:
    desk = running(elastic_spec(start=3, worker={"restartPolicy": "ExitCode"}))
    desk.end(0, 0)
    desk.end(1, 1)
    desk.look()
    assert desk.state == "Running"
    desk.end(2, 0)
    desk.look()
    assert desk.state == "Succeeded"


ETCD = {"rdzvBackend": "etcd", "rdzvEndpoint": "etcd:2379"}


@pytest.mark.parametrize(("restart", "status"), [("Never", 1), ("ExitCode", 1), ("ExitCode", 137)])
@pytest.mark.parametrize("moment", ["in the same look", "a moment later"])
def test_who_fails_while_others_are_done_fails_a_job_whose_agents_may_not_agree_on_its_end(
    restart: str, status: int, moment: str
) -> None:
    desk = running(elastic_spec(start=2, policy=ETCD, worker={"restartPolicy": restart}))
    desk.end(0, 0)
    if moment == "a moment later":
        desk.look()
        assert desk.state == "Running"
    desk.end(1, status)
    desk.look()
    assert (desk.state, desk.reason) == ("Failed", "JobFailed")
    assert desk.message.startswith(f"PyTorchJob resnet failed: resnet-worker-1 ended with status {status}")
    assert desk.message.endswith(", while others were done.")


def test_an_agent_that_is_ours_by_its_command_agrees_with_the_others() -> None:
    worker = {"restartPolicy": "ExitCode", "template": template(command=["planaria", "run"])}
    desk = running(elastic_spec(start=2, policy=ETCD, worker=worker))
    desk.end(0, 0)
    desk.end(1, 1)
    desk.look()
    assert desk.state == "Succeeded"


def test_what_the_cluster_takes_while_others_are_done_fails_nothing() -> None:
    desk = running(elastic_spec(start=2, policy=ETCD, worker={"restartPolicy": "Never"}))
    desk.end(0, 0)
    desk.change(1, phase="Failed", reason="Evicted", is_running=False)
    desk.look()
    assert desk.state == "Succeeded"


def test_a_master_outside_the_world_that_is_done_is_not_made_again() -> None:
    desk = running(elastic_spec(master=True))
    desk.end(0, 0, MASTER)
    desk.look()
    desk.vanish(0, MASTER)
    assert desk.look().actions == ()
    assert desk.state == "Running"


def test_a_master_outside_the_world_that_was_told_to_end_is_made_again() -> None:
    desk = running(elastic_spec(master=True))
    desk.end(0, 0, MASTER)
    desk.change(0, MASTER, is_going=True)
    desk.look()
    desk.vanish(0, MASTER)
    desk.look()
    assert desk.created[2:] == ["resnet-master-0"]


def test_a_worker_that_never_started_does_not_hold_up_the_end() -> None:
    desk = running(elastic_spec(start=2))
    desk.vanish(1)
    desk.look()
    desk.end(0, 0)
    desk.look()
    assert desk.state == "Succeeded"


def test_a_worker_that_was_told_to_end_says_nothing_about_the_run() -> None:
    desk = running(elastic_spec(start=2))
    desk.end(1, 0)
    desk.change(1, is_going=True, phase="Running")
    desk.look()
    assert desk.state == "Running"


def test_a_master_that_trains_speaks_for_the_run_as_a_worker_does() -> None:
    desk = running(elastic_spec(master=True, policy={"masterTrains": True}))
    desk.end(0, 0, MASTER)
    desk.look()
    assert desk.state == "Running"  # the Worker gets its moment
    desk.end(0, 0)
    desk.look()
    assert desk.state == "Succeeded"


def test_a_plain_job_is_done_when_all_its_pods_are_whoever_deletes_them_afterwards() -> None:
    desk = running(plain_spec(1))
    desk.end(0, 0, MASTER)
    desk.look()
    assert desk.state == "Running"
    desk.vanish(0, MASTER)
    assert desk.look().actions == ()
    desk.end(0, 0)
    desk.look()
    assert desk.state == "Succeeded"


@pytest.mark.parametrize(
    "spec", [plain_spec(1), plain_spec(2, master=False), plain_spec(0)], ids=["both", "workers", "master"]
)
def test_every_pod_of_a_plain_job_has_to_run_and_every_one_has_to_be_done(spec: dict[str, object]) -> None:
    desk = Desk(spec)
    desk.look()
    desk.look()
    assert desk.state == "Created"
    names = sorted(desk.pods)
    desk.run_all().look()
    assert desk.state == "Running"
    for name in names:
        assert desk.state == "Running"
        desk.end(desk.pods[name].index, 0, desk.pods[name].kind)
        desk.look()
    assert desk.state == "Succeeded"


def test_a_permanent_failure_fails_the_job_and_what_still_runs_is_ended() -> None:
    desk = running(elastic_spec(start=2, worker={"restartPolicy": "ExitCode"}))
    desk.end(0, 1)
    desk.look()
    assert desk.state == "Failed"
    assert desk.message == (
        "PyTorchJob resnet failed: resnet-worker-0 ended with status 1 (a worker failed and the restart budget is spent)."
    )
    assert desk.deleted == ["resnet-worker-1"]  # drained; the one that failed stays to be read


def test_never_means_that_the_first_failure_of_its_own_is_the_last_but_not_the_cluster_s() -> None:
    desk = running(elastic_spec(start=2, worker={"restartPolicy": "Never"}))
    desk.change(0, phase="Failed", reason="Evicted", is_running=False)
    desk.look()
    desk.look()
    assert desk.created[2:] == ["resnet-worker-0"]
    desk.run_all().look()
    desk.end(0, 143)
    desk.look()
    assert desk.state == "Failed"


def test_a_master_outside_the_world_that_fails_for_good_fails_the_job() -> None:
    desk = running(elastic_spec(master=True))
    desk.end(0, 1, MASTER)
    desk.look()
    assert desk.state == "Failed"
    assert "resnet-master-0 ended with status 1" in desk.message


def test_backoff_limit_counts_restarts_in_place_and_replacements_alike_and_the_cluster_s_doings_not() -> None:
    desk = running(elastic_spec(start=2, backoffLimit=2))
    desk.change(0, restarts=1, last=Ended(1))
    desk.look()
    desk.vanish(0)  # what it counted is not forgotten
    desk.look()
    desk.change(1, phase="Failed", reason="Evicted", is_running=False)
    desk.look()
    desk.look()
    desk.run_all().look()
    assert (desk.state, desk.status["restarts"]) == ("Running", 1)
    desk.change(1, restarts=1, last=Ended(1))
    desk.look()
    assert (desk.state, desk.status["restarts"]) == ("Running", 2)
    desk.change(1, restarts=2, last=Ended(137, "OOMKilled"))
    desk.look()
    assert (desk.state, desk.reason) == ("Failed", "BackoffLimitExceeded")
    assert desk.message == (
        "PyTorchJob resnet failed: 3 restarts, and backoffLimit is 2; resnet-worker-1 ended with status 137 "
        "(OOMKilled: it needed more memory than it may have)."
    )


def test_a_master_that_is_always_started_again_after_status_0_costs_the_job_nothing() -> None:
    spec = elastic_spec(master=True, backoffLimit=1)
    spec["pytorchReplicaSpecs"]["Master"]["restartPolicy"] = "Always"
    desk = running(spec)
    for restarts in (1, 2, 3):
        desk.change(0, MASTER, restarts=restarts, last=Ended(0, "Completed"), is_running=restarts < 3)
        desk.look()
    assert (desk.state, desk.status["restarts"]) == ("Running", 0)
    desk.change(0, MASTER, stuck="CrashLoopBackOff: back-off 40s")
    desk.vanish(0)
    desk.look()
    assert "master" not in desk.message, "it is none of what the job waits for"
    desk.change(0, MASTER, restarts=5, last=Ended(1), is_running=True, stuck=None)
    desk.look()
    assert desk.message == (
        "PyTorchJob resnet failed: 2 restarts, and backoffLimit is 1; resnet-master-0 ended with status 1 "
        "(a worker failed and the restart budget is spent)."
    )


def test_an_init_container_that_fails_again_and_again_is_named_and_counts() -> None:
    desk = Desk(elastic_spec(backoffLimit=3))
    desk.look()
    fetch = Ended(6, "Error", container="fetch")
    desk.change(0, node="n1", restarts=3, last=fetch, stuck="CrashLoopBackOff: back-off 40s")
    desk.look()
    assert desk.state == "Restarting"
    assert desk.message == (
        "PyTorchJob resnet is restarting, 0 of at least 1 Workers run: the container fetch of resnet-worker-0 ended with "
        "status 6; 3 restarts so far."
    )
    desk.change(0, restarts=4)
    desk.look()
    assert (desk.state, desk.reason) == ("Failed", "BackoffLimitExceeded")
    assert "the container fetch of resnet-worker-0 ended with status 6" in desk.message


def test_running_out_of_memory_is_tried_again_under_every_policy_and_counts() -> None:
    desk = running(elastic_spec(start=2, worker={"restartPolicy": "Never"}, backoffLimit=0))
    desk.end(0, 137, reason="OOMKilled")
    desk.look()
    assert (desk.state, desk.reason) == ("Failed", "BackoffLimitExceeded")


def test_a_deadline_fails_the_job_on_time() -> None:
    desk = running(elastic_spec(activeDeadlineSeconds=100))
    wake = desk.look(50.0).wake_after_s
    assert wake is not None
    assert wake <= 100.0 - 51.0
    desk.look(60.0)
    assert (desk.state, desk.reason) == ("Failed", "DeadlineExceeded")
    assert desk.deleted == ["resnet-worker-0"]


def test_what_ends_with_time_ends_at_the_moment_that_the_operator_is_woken_for() -> None:
    late = running(elastic_spec(activeDeadlineSeconds=100))
    assert late.look(98.0).wake_after_s == 1.0
    late.look(1.0)
    assert late.reason == "DeadlineExceeded"
    done = running(elastic_spec(start=2))
    done.end(0, 0)
    assert done.look().wake_after_s == SETTLE_S
    done.look(SETTLE_S)
    assert done.state == "Succeeded"


def test_who_fails_while_nobody_is_done_is_tried_again_whatever_the_agent() -> None:
    desk = running(elastic_spec(start=2, policy=ETCD, worker={"restartPolicy": "ExitCode"}))
    desk.end(0, 137)
    desk.look()
    assert desk.state == "Running"


def test_a_deadline_wakes_the_operator() -> None:
    desk = running(plain_spec(1, activeDeadlineSeconds=100))
    assert desk.look(49.0).wake_after_s == 50.0


def test_a_limit_that_is_lowered_holds_for_what_was_counted_before() -> None:
    desk = running(elastic_spec())
    desk.change(0, restarts=1)
    desk.look()
    desk.vanish(0)
    desk.look()
    desk.spec["backoffLimit"] = 0
    desk.look()
    assert desk.message == "PyTorchJob resnet failed: 1 restart, and backoffLimit is 0."


@pytest.mark.parametrize(
    ("policy", "pods", "services"),
    [
        ("None", [], []),
        ("", [], []),
        ("Running", ["resnet-master-0"], []),
        ("All", ["resnet-master-0", "resnet-worker-0"], ["resnet-master-0", "resnet-worker-0"]),
    ],
)
def test_what_is_cleaned_up_after_success_is_what_the_policy_says(
    policy: str, pods: list[str], services: list[str]
) -> None:
    desk = _done(elastic_spec(master=True, cleanPodPolicy=policy))
    assert desk.deleted == pods
    left = [name for kind, name in desk.owned if kind == "Service"]
    assert sorted(left) == [name for name in ("resnet-master-0", "resnet-worker-0") if name not in services]
    desk.settle()
    assert desk.look().actions == ()
    assert desk.status["replicaStatuses"]["Worker"]["succeeded"] == 1  # also when its pod is gone


def test_a_job_is_deleted_when_its_time_after_the_end_is_over() -> None:
    desk = _done(elastic_spec(ttlSecondsAfterFinished=60))
    assert desk.look(10.0).wake_after_s == 50.0
    assert not desk.job_deleted
    desk.look(50.0)
    assert desk.job_deleted


def test_a_clock_that_was_set_back_deletes_nothing_early_and_waits_no_longer_than_it_has_to() -> None:
    desk = _done(elastic_spec(ttlSecondsAfterFinished=60))
    assert desk.look(-3600.0).wake_after_s == 60.0


@pytest.mark.parametrize("state", ["Succeeded", "Failed"])
def test_the_end_is_the_end_whatever_happens_then(state: str) -> None:
    desk = running(elastic_spec(worker={"restartPolicy": "ExitCode"}))
    desk.end(0, 0 if state == "Succeeded" else 1)
    desk.look()
    completed = desk.status["completionTime"]
    desk.pods.clear()
    desk.spec["suspend"] = True
    desk.look()
    desk.spec["elasticPolicy"]["minReplicas"] = 7
    desk.look(1e6)
    assert (desk.state, desk.status["completionTime"]) == (state, completed)
    assert desk.created == ["resnet-worker-0"]
