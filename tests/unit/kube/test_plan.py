from __future__ import annotations

import pytest
from kubesim.given import UID, Desk, elastic_spec, plain_spec, running

from planaria.kube.model import Create
from planaria.kube.names import MASTER
from planaria.kube.seen import Ended, Metrics


def test_an_elastic_job_gets_its_rights_its_objects_and_its_pods_in_the_order_in_which_they_are_needed() -> None:
    made = [(action.kind, action.name) for action in Desk(elastic_spec(master=True)).look().actions]
    assert made == [
        ("ServiceAccount", "resnet-agent"),
        ("Role", "resnet-agent"),
        ("RoleBinding", "resnet-agent"),
        ("Secret", f"resnet-token-{UID}"),
        ("ConfigMap", "resnet-progress"),
        ("ConfigMap", "resnet-run"),
        ("Lease", "resnet-run"),
        ("Service", "resnet-master-0"),
        ("Pod", "resnet-master-0"),
        ("Service", "resnet-worker-0"),
        ("Pod", "resnet-worker-0"),
    ]


def test_a_job_whose_pattern_is_not_tried_yet_gets_nothing_and_says_what_it_waits_for() -> None:
    desk = Desk(elastic_spec())
    desk.world["untried"] = "it is being tried"
    told = "PyTorchJob resnet waits until its elasticPolicy.metric.pattern was tried: it is being tried."
    decision = desk.look()
    assert (decision.actions, decision.events) == ((), ())
    assert (desk.state, desk.reason, desk.message) == ("Created", "PatternUntried", told)
    assert "startTime" not in desk.status, "its deadline begins with its pods"
    del desk.world["untried"]
    decision = desk.look()
    assert [event.reason for event in decision.events][:1] == ["JobCreated"]
    assert desk.created == ["resnet-worker-0"]


def test_a_job_that_runs_goes_on_while_another_pattern_is_tried_and_one_that_was_wrong_stays_so() -> None:
    desk = running(elastic_spec())
    desk.world["untried"] = "it is being tried"
    desk.look()
    assert desk.state == "Running"
    desk.world["problems"] = ("it does not match its sample",)
    desk.look()
    del desk.world["problems"]
    desk.look()
    assert (desk.state, desk.reason) == ("Invalid", "PatternUntried")
    del desk.world["untried"]
    desk.look()
    assert desk.state == "Running"
    assert desk.deleted == []


def test_a_plain_job_gets_pods_and_services_only() -> None:
    made = [(action.kind, action.name) for action in Desk(plain_spec(1)).look().actions]
    assert made == [
        ("Service", "resnet-master-0"),
        ("Pod", "resnet-master-0"),
        ("Service", "resnet-worker-0"),
        ("Pod", "resnet-worker-0"),
    ]


def test_what_is_missing_is_made_again_and_nothing_else_is() -> None:
    desk = running(elastic_spec())
    del desk.owned["ConfigMap", "resnet-run"]
    assert [(action.kind, action.name) for action in desk.look().actions] == [("ConfigMap", "resnet-run")]
    assert desk.look().actions == ()


def test_the_status_is_what_people_know_it_to_be() -> None:
    desk = running(elastic_spec(master=True))
    condition = desk.status["conditions"][-1]
    assert (condition["type"], condition["status"], condition["reason"], condition["message"]) == (
        "Running",
        "True",
        "JobRunning",
        "PyTorchJob resnet is running.",
    )
    assert desk.status["replicaStatuses"] == {"Master": {"active": 1}, "Worker": {"active": 1}}
    assert desk.block == {
        "continue": True,
        "currentReplicas": 1,
        "elasticCondition": "Start",
        "startTime": "2023-11-14T22:13:21Z",
    }
    assert desk.status["observedGeneration"] == 1
    assert desk.status["selector"] == "group-name=training.kubedl.io,job-name=resnet,replica-type=worker"


def test_a_failed_pod_comes_back_under_its_own_name_when_the_old_one_is_gone() -> None:
    desk = running(elastic_spec(start=2, worker={"restartPolicy": "ExitCode"}))
    desk.end(0, 137)
    desk.look()
    assert (desk.deleted, desk.created[2:]) == (["resnet-worker-0"], [])
    assert desk.state == "Running"  # the other one is enough
    desk.look()
    assert desk.created[2:] == ["resnet-worker-0"]
    assert desk.status["restarts"] == 1


def test_a_pod_that_fails_again_and_again_is_replaced_later_and_later_and_can_be_read_meanwhile() -> None:
    desk = running(elastic_spec(worker={"restartPolicy": "ExitCode"}))
    waits = []
    for _ in range(5):
        desk.end(0, 137)
        at_s, deleted = desk.now_s, len(desk.deleted)
        while len(desk.deleted) == deleted:
            decision = desk.look(0.5)
            assert decision.wake_after_s is not None or decision.actions
        waits.append(round(desk.now_s - at_s))
        desk.look(0.5)
        desk.run_all().look(0.5)
    assert waits == [0, 10, 20, 40, 80]


def test_a_pod_that_lived_long_is_replaced_at_once() -> None:
    desk = running(elastic_spec(worker={"restartPolicy": "ExitCode"}))
    for _ in range(4):
        desk.end(0, 137, lived_s=3600.0)
        desk.look()
        desk.look()
        desk.run_all().look()
    assert len(desk.created) == 5


def test_a_pod_that_somebody_deleted_is_made_again_at_once_and_counts_as_no_restart() -> None:
    desk = running(elastic_spec(start=2))
    desk.vanish(0)
    desk.look()
    assert desk.created[2:] == ["resnet-worker-0"]
    assert desk.status["restarts"] == 0


def test_a_pod_that_drains_keeps_its_place_until_it_is_gone() -> None:
    desk = running(elastic_spec(start=2))
    desk.change(0, is_going=True)
    desk.look()
    assert desk.created[2:] == []
    desk.settle()
    desk.look()
    assert desk.created[2:] == ["resnet-worker-0"]


@pytest.mark.parametrize("how", ["the node is lost", "its grace is long over"])
def test_the_next_index_takes_the_place_of_a_pod_that_nobody_will_hear_of(how: str) -> None:
    desk = running(elastic_spec(start=2))
    desk.change(0, is_going=True, node="n2", grace_s=60.0)
    if how == "the node is lost":
        desk.world["lost_nodes"] = frozenset({"n2"})
        desk.look()
    else:
        desk.look()
        waited_s = 0.0
        while not desk.created[2:]:
            assert waited_s < 92.0
            wake = desk.look(0.0).wake_after_s
            assert wake is not None
            desk.look(wake)
            waited_s += wake
        assert waited_s > 90.0
    assert desk.created[2:] == ["resnet-worker-2"]
    desk.run_all().look()
    desk.settle()  # the old one left; its name is free and nobody needs it
    assert [action.kind for action in desk.look().actions] == ["Service"]  # its service goes
    assert sorted(desk.pods) == ["resnet-worker-1", "resnet-worker-2"]


def test_a_pod_on_a_lost_node_is_left_alone_as_long_as_nobody_takes_it() -> None:
    desk = running(elastic_spec(start=2))
    desk.world["lost_nodes"] = frozenset({"n1"})
    assert desk.look().actions == ()


def test_scaling_down_takes_who_serves_least_then_the_highest_index() -> None:
    desk = running(elastic_spec(start=3))
    desk.spec["pytorchReplicaSpecs"]["Worker"]["replicas"] = 2
    desk.generation += 1
    desk.look()
    assert desk.deleted == ["resnet-worker-2"]
    desk = running(elastic_spec(start=3))
    desk.change(1, is_ready=False)
    desk.spec["pytorchReplicaSpecs"]["Worker"]["replicas"] = 2
    desk.look()
    assert desk.deleted == ["resnet-worker-1"]
    assert desk.look().actions == ()  # it drains


def test_the_owner_s_spec_is_never_an_output() -> None:
    desk = running(elastic_spec())
    desk.grow({1: 10.0, 2: 19.0, 3: 27.0})
    assert desk.spec == elastic_spec()


def test_below_the_minimum_the_job_waits_says_why_and_comes_back() -> None:
    desk = running(elastic_spec(least=2, start=2))
    desk.vanish(1)
    desk.look()
    desk.change(1, unschedulable="0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")
    desk.look()
    assert desk.state == "BelowMin"
    assert desk.reason == "Unschedulable"
    assert desk.message == (
        "PyTorchJob resnet waits, 1 of at least 2 Workers run: resnet-worker-1 finds no room "
        "(0/2 nodes are available: 2 Insufficient nvidia.com/gpu.)."
    )
    desk.look(3600.0)
    assert desk.state == "BelowMin"
    desk.run_all().look()
    assert desk.state == "Running"


@pytest.mark.parametrize(
    ("fields", "reason", "words"),
    [
        (
            {"stuck": "ImagePullBackOff: no such image"},
            "ContainerWaiting",
            "cannot start (ImagePullBackOff: no such image)",
        ),
        ({"unschedulable": "no room"}, "Unschedulable", "finds no room (no room)"),
    ],
)
def test_a_job_that_never_ran_says_what_is_in_its_way(fields: dict[str, str], reason: str, words: str) -> None:
    desk = Desk(elastic_spec())
    desk.look()
    assert desk.state == "Created"
    desk.change(0, **fields)
    desk.look()
    assert (desk.state, desk.reason) == ("BelowMin", reason)
    assert words in desk.message


def test_what_the_server_refuses_to_create_is_said_in_a_condition() -> None:
    desk = Desk(elastic_spec())
    desk.world["refusals"] = {
        ("Pod", "resnet-worker-0"): "Pod resnet-worker-0 was refused: spec.containers[0].image: Required value"
    }
    desk.look()
    assert (desk.state, desk.reason) == ("BelowMin", "CreateRefused")


@pytest.mark.parametrize("kind", ["Pod", "Service"])
def test_a_quota_ends_a_trial_after_the_grace_with_the_servers_words(kind: str) -> None:
    desk = Desk(elastic_spec())
    assert desk.grow({1: 10.0, 2: 20.0, 3: 30.0}, looks=3) == [1, 2, 3]
    desk.vanish(2)  # it was never made
    why = f"{kind} resnet-worker-2 was refused: exceeded quota: few"
    desk.world = {"refusals": {("Role", "resnet-agent"): "another", (kind, "resnet-worker-2"): why}}

    def look(after_s: float) -> int:
        desk.look(after_s)
        desk.pods.pop("resnet-worker-2", None)
        return int(desk.status["targetReplicas"])

    assert [look(1.0), look(30.0), look(29.0)] == [3, 3, 3]
    assert look(1.0) == 2
    assert desk.block["message"] == f"{why}, return to the last replicas"
    assert desk.state == "Running"
    desk.world = {}
    assert look(1.0) == 2
    assert "crowded" not in desk.status["operator"]


def test_what_is_refused_of_others_ends_no_trial() -> None:
    desk = Desk(elastic_spec(master=True))
    assert desk.grow({1: 10.0, 2: 20.0, 3: 30.0}, looks=3) == [1, 2, 3]
    desk.world = {"refusals": {("Role", "resnet-agent"): "a", ("Pod", "resnet-master-0"): "b"}}
    for _ in range(5):
        desk.vanish(2)
        desk.look(30.0)
    assert desk.status["targetReplicas"] == 3


def test_a_container_that_crashes_again_and_again_is_shown_as_restarting_with_its_status() -> None:
    desk = running(elastic_spec())
    desk.change(0, is_running=False, restarts=3, last=Ended(2, "Error"), stuck="CrashLoopBackOff")
    desk.look()
    assert desk.state == "Restarting"
    assert desk.message == (
        "PyTorchJob resnet is restarting, 0 of at least 1 Workers run: resnet-worker-0 ended with status 2 "
        "(a flag, variable or script is wrong; nothing was started); 3 restarts so far."
    )


def test_names_that_somebody_else_has_are_waited_for() -> None:
    desk = Desk(elastic_spec())
    desk.world["foreign"] = frozenset({("Pod", "resnet-worker-0"), ("Service", "resnet-worker-0")})
    decision = desk.look()
    assert desk.created == []
    assert decision.wake_after_s == 5.0
    assert desk.message.endswith("the Pod resnet-worker-0 is there and not of this job.")
    desk.world.clear()
    desk.look()
    assert desk.created == ["resnet-worker-0"]


def test_a_name_that_somebody_has_holds_up_that_place_alone() -> None:
    desk = Desk(elastic_spec(master=True))
    desk.world["foreign"] = frozenset({("Pod", "resnet-master-0"), ("Pod", "resnet-worker-x")})
    desk.look()
    assert desk.created == ["resnet-worker-0"]


def test_a_failure_that_is_over_is_not_what_the_job_waits_for() -> None:
    desk = running(elastic_spec(least=2, start=2, worker={"restartPolicy": "ExitCode"}))
    desk.end(0, 137)
    desk.look()
    desk.look()
    desk.run_all()
    desk.vanish(1)
    desk.look()
    desk.change(1, unschedulable="no room")
    desk.look()
    assert (desk.state, desk.reason) == ("BelowMin", "Unschedulable")


def test_what_the_cluster_took_is_told_as_such_and_is_no_failure() -> None:
    desk = running(elastic_spec())
    desk.change(0, phase="Failed", reason="Evicted", is_running=False)
    for _ in range(3):  # taken, made again, starting
        desk.look()
        assert (desk.state, desk.reason) == ("BelowMin", "WorkersMissing")
        assert desk.message == (
            "PyTorchJob resnet waits, 0 of at least 1 Workers run: resnet-worker-0 was taken by the cluster (Evicted); "
            "it is replaced."
        )
    desk.run_all().look()
    assert desk.state == "Running"


def test_a_job_that_runs_without_one_of_its_first_workers_says_which_and_waits_for_no_more_than_a_trial() -> None:
    desk = Desk(elastic_spec(1, 3, 3))
    desk.look()
    desk.run_all().change(2, is_running=False, stuck="ImagePullBackOff: no such image")
    desk.look()
    assert desk.state == "Running"
    assert "message" not in desk.block
    assert desk.look(1799.0).wake_after_s == pytest.approx(1.0)
    for stuck in ("ErrImagePull: 404", "ImagePullBackOff: no such image", "ImagePullBackOff: no such image"):
        desk.change(2, stuck=stuck)
        desk.look()
        assert desk.block["elasticCondition"] == "Stop"
        told = "Inconclusive: 2 of 3 Workers ran within 1800 s, resnet-worker-2 (ImagePullBackOff) does not"
        assert desk.block["message"] == told
    desk.run_all().look()
    assert desk.block["elasticCondition"] == "ReachMaxReplicas"


@pytest.mark.parametrize(
    "theirs",
    [
        ("ConfigMap", "resnet-run"),
        ("ConfigMap", "resnet-progress"),
        ("Lease", "resnet-run"),
        ("Role", "resnet-agent"),
        ("RoleBinding", "resnet-agent"),
        ("ServiceAccount", "resnet-agent"),
    ],
)
def test_no_pod_is_made_that_would_use_what_is_another_s(theirs: tuple[str, str]) -> None:
    desk = Desk(elastic_spec(1, 2, 2))
    desk.world["foreign"] = frozenset({theirs})
    decision = desk.look()
    assert theirs not in {(action.kind, action.name) for action in decision.actions if isinstance(action, Create)}
    assert desk.created == []
    assert decision.wake_after_s == 5.0
    assert (desk.state, desk.reason) == ("BelowMin", "NameTaken")
    assert desk.message.endswith(f"the {theirs[0]} {theirs[1]} is there and not of this job.")
    desk.world["foreign"] = frozenset()
    desk.look()
    assert len(desk.created) == 2
    desk.run_all().look()
    desk.world["foreign"] = frozenset({theirs})
    assert desk.look().actions == (), "those that run go on"


def test_a_plain_job_counts_pods() -> None:
    desk = running(plain_spec(1))
    desk.change(0, is_running=False, ended=Ended(1, "Error"))  # the kubelet is about to restart it
    desk.look()
    assert desk.message.startswith(
        "PyTorchJob resnet is restarting, 1 of at least 2 pods run: resnet-worker-0 ended with status 1"
    )
    assert desk.status["replicaStatuses"]["Worker"] == {"active": 0}


def test_the_comings_and_goings_of_others_are_not_written_down() -> None:
    desk = running(elastic_spec())
    before = dict(desk.status)
    for amount in (5.0, 0.0, 9.0):
        desk.world["free"] = {"nodes": amount}
        desk.look()
    assert desk.status == before


def test_a_search_says_when_to_look_again() -> None:
    assert running(elastic_spec(policy={"cooldownSeconds": 30})).look(10.0).wake_after_s == pytest.approx(19.0)


def test_a_master_outside_the_world_is_kept_and_its_end_is_no_success() -> None:
    desk = running(elastic_spec(master=True))
    desk.end(0, 0, MASTER)
    desk.look()
    assert desk.state == "Running"
    assert desk.look().actions == ()
    assert desk.status["replicaStatuses"]["Master"] == {"active": 0, "succeeded": 1}


def test_a_master_that_fails_for_now_is_replaced_and_the_workers_go_on() -> None:
    desk = running(elastic_spec(master=True))
    desk.end(0, 143, MASTER)
    desk.look()
    desk.look()
    assert desk.created[2:] == ["resnet-master-0"]
    assert desk.state == "Running"


def test_the_token_is_fresh_for_a_job_without_one_and_stays() -> None:
    desk = Desk(elastic_spec())
    [secret] = [action for action in desk.look().actions if action.kind == "Secret"]
    assert isinstance(secret, Create)
    assert secret.body["stringData"] == {"token": "fresh-token"}
    assert "fresh-token" not in str(desk.status)
    assert desk.look().actions == ()


def test_a_search_grows_the_job_while_it_pays_and_the_status_says_so() -> None:
    desk = running(elastic_spec())
    assert desk.grow({1: 10.0, 2: 19.0, 3: 27.0}, looks=5) == [1, 2, 3, 3, 3]
    assert (desk.block["elasticCondition"], desk.block["continue"]) == ("ReachMaxReplicas", False)
    assert desk.deleted == []


def test_metrics_that_do_not_come_are_told_of() -> None:
    desk = running(elastic_spec(policy={"trialTimeoutSeconds": 60}))
    desk.world["metrics"] = Metrics(trouble="the pattern took too long")
    desk.look(61.0)
    desk.look(61.0)
    assert "the pattern took too long" in desk.block["message"]


def test_events_are_told_once() -> None:
    desk = Desk(elastic_spec())
    told = [(event.reason, event.message) for event in desk.look().events]
    assert told == [("JobCreated", "PyTorchJob resnet is created."), ("ScalingStart", "1 Workers wanted")]
    assert desk.look().events == ()
    desk.run_all()
    assert [event.reason for event in desk.look().events] == ["JobRunning"]
    desk.sample(1, 10.0)
    grown = desk.look(100.0).events[-1]
    assert grown.message == "2 Workers wanted: Pytorch job continues to be scaled"
    desk.change(0, phase="Failed", reason="Evicted", is_running=False)
    assert [(event.reason, event.is_warning) for event in desk.look().events] == [
        ("WorkersMissing", True),
        ("PodTaken", True),
    ]
