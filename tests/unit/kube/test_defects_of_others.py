"""What controllers of elastic jobs got wrong before: every one of these has stopped somebody's job."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from kubesim.given import Desk, elastic_spec, plain_spec, running, template

from planaria.kube.model import Create, Now
from planaria.kube.names import MASTER
from planaria.kube.plan import decide
from planaria.kube.seen import Ended, JobSeen, World

LINEAR = {1: 10.0, 2: 19.0, 3: 27.0, 4: 34.0}


def test_doubling_does_not_jump_over_the_maximum() -> None:
    desk = running(elastic_spec(1, 3, 1))
    targets = desk.grow(LINEAR)
    assert max(targets) == 3
    assert (desk.block["elasticCondition"], desk.block["currentReplicas"]) == ("ReachMaxReplicas", 3)


def test_an_operator_that_starts_in_the_middle_knows_what_was_measured() -> None:
    desk = running(elastic_spec(1, 3, 1))
    desk.grow(LINEAR, looks=3)
    reborn = _reborn(desk)
    assert reborn.grow(LINEAR, looks=4) == desk.grow(LINEAR, looks=4)
    assert reborn.status["scaling"]["figures"] == desk.status["scaling"]["figures"]


def _reborn(desk: Desk) -> Desk:
    """Another operator finds the same objects, and nothing else."""
    other = Desk(desk.spec)
    other.status, other.pods, other.owned = dict(desk.status), dict(desk.pods), dict(desk.owned)
    other.now_s, other.step, other.world = desk.now_s, desk.step, dict(desk.world)
    return other


def test_a_job_that_starts_above_its_minimum_has_no_last_size_and_needs_none() -> None:
    desk = running(elastic_spec(1, 4, 2))
    assert "lastReplicas" not in desk.block
    assert desk.grow(LINEAR)[-1] == 4


def test_no_room_after_a_step_back_leads_down_and_never_up_to_the_larger_last_size() -> None:
    desk = running(elastic_spec(1, 4, 1))
    assert desk.grow({1: 10.0, 2: 19.0, 3: 19.1, 4: 19.2})[-1] == 2
    assert desk.block["lastReplicas"] > 2
    desk.vanish(1)
    desk.look()
    desk.change(1, unschedulable="no room")
    for _ in range(3):
        desk.look(100.0)
    assert desk.status["targetReplicas"] == 1
    assert desk.deleted[-1] == "resnet-worker-1"


def _stepped_back() -> Desk:
    """Return a job that tried 2 Workers, for which there was no room."""
    asks = template(resources={"limits": {"nvidia.com/gpu": 1}})
    desk = running(elastic_spec(1, 3, 1, worker={"template": asks}))
    desk.world["free"] = {"nvidia.com/gpu": 1.0}
    desk.grow(LINEAR, looks=2)
    assert desk.status["targetReplicas"] == 2
    desk.look()
    desk.change(1, phase="Pending", node="", is_running=False, is_ready=False, unschedulable="no room")
    desk.world["free"] = {"nvidia.com/gpu": 0.0}
    desk.look()
    desk.look(100.0)
    assert (desk.status["targetReplicas"], desk.block["elasticCondition"]) == (1, "Stop")
    assert desk.block["message"] == "There exists pending pods, return to the last replicas"
    return desk


@pytest.mark.parametrize(
    ("free", "size"),
    [
        ({"nvidia.com/gpu": 0.0}, 1),
        ({"nvidia.com/gpu": 0.0, "cpu": 64.0}, 1),  # not what it asks for
        ({"nvidia.com/gpu": 1.0}, 2),
        ({"nvidia.com/gpu": 0.0, "nodes": 1.0}, 2),  # another one may fit where the others did not
        (None, 1),
    ],
    ids=["nothing", "something else", "what it asks for", "a node", "nobody knows"],
)
def test_a_job_that_stepped_back_grows_again_soon_when_there_is_room(free: dict[str, float] | None, size: int) -> None:
    desk = _stepped_back()
    desk.world["free"] = free
    assert desk.grow(LINEAR, looks=1) == [size]  # the pause without room is 300 seconds, and 30 with


def test_room_that_was_told_of_once_is_not_told_of_again() -> None:
    desk = _stepped_back()
    desk.world["free"] = {"nvidia.com/gpu": 1.0}
    desk.look()
    assert desk.status["operator"]["free"] == {"nvidia.com/gpu": 1.0}
    assert desk.status["scaling"]["room"] is True


def test_a_job_that_stepped_back_tries_again_after_a_pause_also_when_nobody_sees_room() -> None:
    assert 2 in _stepped_back().grow(LINEAR, looks=5)


def test_a_job_that_has_no_room_at_its_minimum_is_not_forgotten() -> None:
    desk = running(elastic_spec(1, 3, 1))
    desk.vanish(0)
    desk.look()
    desk.change(0, unschedulable="no room")
    for _ in range(10):
        desk.look(1000.0)
    assert desk.state == "BelowMin"
    desk.run_all().look()
    assert desk.state == "Running"
    assert desk.grow(LINEAR)[-1] == 3


def test_two_decisions_about_two_jobs_share_nothing() -> None:
    spec = elastic_spec()
    before, alone = copy.deepcopy(spec), running(elastic_spec())
    one, other = running(spec), running(spec)
    for _ in range(12):
        one.grow(LINEAR, looks=1)
        other.look(100.0)
        alone.grow(LINEAR, looks=1)
    assert other.status["targetReplicas"] == 1
    assert other.status["scaling"]["figures"] == []
    assert (one.status, spec) == (alone.status, before)


def test_a_job_of_the_same_name_before_this_one_leaves_nothing_behind() -> None:
    old = running(elastic_spec())
    old.grow(LINEAR)
    fresh = JobSeen("resnet", "elsewhere", "another-uid", 1, False, elastic_spec(), {})
    decision = decide(fresh, World(), Now(old.now_s, "t"))
    assert decision.status["targetReplicas"] == 1
    [pod] = [action for action in decision.actions if action.kind == "Pod"]
    assert {"name": "PET_RDZV_ID", "value": "another-uid"} in pod.body["spec"]["containers"][0]["env"]


@pytest.mark.parametrize(
    "stuck", [None, "ImagePullBackOff: no such image", "CreateContainerConfigError: no such secret"]
)
def test_a_pod_that_starts_slowly_has_a_node_and_is_not_taken_for_one_without_room(stuck: str | None) -> None:
    desk = running(elastic_spec(1, 3, 1))
    desk.grow(LINEAR, looks=1)
    desk.look(100.0)
    assert desk.status["targetReplicas"] == 2
    desk.change(1, node="n2", stuck=stuck)
    desk.world.pop("metrics")
    desk.look(600.0)
    assert (desk.status["targetReplicas"], desk.block["elasticCondition"]) == (2, "Continue")
    assert desk.deleted == []


def test_a_job_without_a_policy_is_a_plain_one_and_nobody_falls_over_it() -> None:
    desk = running(plain_spec(2))
    assert (desk.state, "elasticScaling" in desk.status) == ("Running", False)
    desk = running(plain_spec(1, enableElastic=True))
    assert (desk.state, "targetReplicas" in desk.status) == ("Running", False)


def test_bounds_that_are_missing_come_from_the_workers_and_the_master_gets_none_of_it() -> None:
    spec = elastic_spec(master=True, start=2)
    spec["elasticPolicy"] = {"maxReplicas": 4}
    desk = running(spec)
    assert desk.status["operator"]["fixed"]["elasticPolicy.minReplicas"] == "2"
    assert desk.status["replicaStatuses"]["Master"]["active"] == 1
    assert desk.status["targetReplicas"] == 2
    told = {}
    for action in Desk(spec).decide().actions:
        if isinstance(action, Create) and action.kind == "Pod":
            told[action.name] = {one["name"]: one.get("value") for one in action.body["spec"]["containers"][0]["env"]}
    assert not [name for name in told["resnet-master-0"] if name.startswith("PET_")]
    assert [told[f"resnet-worker-{index}"]["PET_NNODES"] for index in (0, 1)] == ["2:4", "2:4"]


def test_no_pod_is_restarted_by_a_resize() -> None:
    desk = running(elastic_spec(1, 4, 1))
    uids = {}
    for _ in range(12):
        desk.grow(LINEAR, looks=1)
        uids |= {name: pod.uid for name, pod in desk.pods.items() if name not in uids}
    assert {name: pod.uid for name, pod in desk.pods.items()} == uids
    assert desk.deleted == []


def test_a_pod_that_is_done_holds_up_nobody() -> None:
    desk = running(elastic_spec(1, 3, 3))
    desk.end(0, 0)
    decision = desk.look()
    assert decision.actions == ()
    assert decision.wake_after_s is not None
    desk.end(1, 0)
    desk.end(2, 0)
    desk.look()
    assert desk.state == "Succeeded"


@pytest.mark.parametrize("written", [3, 0, 7])
def test_who_writes_replicas_says_where_to_start_and_never_fights_with_the_search(written: int) -> None:
    desk = running(elastic_spec(1, 3, 1))
    desk.grow(LINEAR, looks=3)
    desk.spec["pytorchReplicaSpecs"]["Worker"]["replicas"] = written
    desk.generation += 1
    desk.look()
    assert desk.status["targetReplicas"] == min(3, max(1, written))
    assert desk.status["observedGeneration"] == 2
    assert desk.grow(LINEAR)[-1] == 3
    assert desk.spec["pytorchReplicaSpecs"]["Worker"]["replicas"] == written


def test_replacements_of_pods_that_run_out_of_memory_again_and_again_come_to_an_end() -> None:
    desk = running(elastic_spec(worker={"restartPolicy": "ExitCode"}, backoffLimit=3))
    for _ in range(4):
        desk.end(0, 137, reason="OOMKilled")
        desk.look()
        desk.look(300.0)
        desk.look(300.0)
        if desk.state == "Failed":
            break
        desk.run_all().look()
    assert (desk.state, desk.reason) == ("Failed", "BackoffLimitExceeded")


def test_a_pod_that_never_got_a_node_does_not_keep_a_finished_jobrunning() -> None:
    desk = running(elastic_spec(1, 3, 2))
    desk.vanish(1)
    desk.look()
    desk.change(1, unschedulable="no room")
    desk.end(0, 0)
    desk.look()
    assert desk.state == "Succeeded"


def test_a_success_waits_for_the_writers_beside_it() -> None:
    desk = running(plain_spec(1))
    desk.end(0, 0, MASTER)
    desk.look()
    assert (desk.state, desk.deleted) == ("Running", [])


def test_losing_a_worker_is_no_failure_while_enough_are_left() -> None:
    desk = running(elastic_spec(1, 3, 3))
    desk.change(2, is_running=False, restarts=1, last=Ended(1), stuck="CrashLoopBackOff")
    desk.look()
    assert desk.state == "Running"


DEFECTS = {
    "K1 doubling jumps over the maximum": "test_doubling_does_not_jump_over_the_maximum",
    "K2 what was measured is lost with the operator": "test_an_operator_that_starts_in_the_middle_knows_what_was_measured",
    "K3 no last size": "test_a_job_that_starts_above_its_minimum_has_no_last_size_and_needs_none",
    "K4 a return goes up": "test_no_room_after_a_step_back_leads_down_and_never_up_to_the_larger_last_size",
    "K5 a search that stopped is never taken up again": "test_a_job_that_stepped_back_grows_again_soon_when_there_is_room",
    "K5 without room at the minimum": "test_a_job_that_has_no_room_at_its_minimum_is_not_forgotten",
    "K6 one sample, warm-up and all, decides": "test_samples_of_the_warm_up_are_not_counted",
    "K6 two percent are a success": "test_a_gain_of_two_percent_for_twice_the_workers_is_no_success",
    "K7 long steps are dropped": "test_steps_of_thirty_seconds_and_of_hours_count",
    "K8 lines are misread": "test_a_line_of_the_usual_kind_is_never_misread",
    "K8 a line stops the operator": "test_no_line_makes_reading_fail",
    "K9 errors are taken for logs": "test_logs_are_read_until_agents_push_and_a_job_whose_logs_are_away_says_so",
    "K9 a log is followed for ever": "test_reading_is_bounded_in_bytes_lines_and_age",
    "K10 jobs share what is written without a lock": "test_two_decisions_about_two_jobs_share_nothing",
    "K11 jobs of one name are mixed": "test_jobs_of_one_name_in_two_namespaces_have_nothing_in_common",
    "K11 what is measured of them is mixed": "test_what_jobs_of_one_name_in_two_namespaces_push_is_not_mixed",
    "K11 a job takes over what one before it left": "test_a_job_of_the_same_name_before_this_one_leaves_nothing_behind",
    "K12 a slow pull is a lack of room": "test_a_pod_that_starts_slowly_has_a_node_and_is_not_taken_for_one_without_room",
    "K13 a conflict is only logged": "test_a_conflict_leaves_no_status_that_says_what_was_not_done",
    "K14 a plain job stops the operator": "test_a_job_without_a_policy_is_a_plain_one_and_nobody_falls_over_it",
    "K15 bounds come from the Master": "test_bounds_that_are_missing_come_from_the_workers_and_the_master_gets_none_of_it",
    "K16 a resize restarts by a wrong count": "test_no_pod_is_restarted_by_a_resize",
    "K17 a pod that is done is waited for": "test_a_pod_that_is_done_holds_up_nobody",
    "K18 writers of replicas fight": "test_who_writes_replicas_says_where_to_start_and_never_fights_with_the_search",
    "K19 a run is named after its job": "test_elastic_workers_hear_how_to_meet_and_nothing_that_changes_with_their_number",
    "K19 an etcd is needed": "test_workers_meet_in_the_cluster_itself_unless_told_otherwise",
    "K20 the cost of a size is no matter": "test_a_size_that_wastes_its_workers_is_left_though_it_is_faster",
    "K20 no deadline": "test_a_deadline_fails_the_job_on_time",
}  # fairness, priority and preemption are the scheduler's


@pytest.mark.parametrize("defect", DEFECTS)
def test_every_defect_has_a_test_that_shows_its_absence(defect: str) -> None:
    texts = [path.read_text() for path in Path(__file__).parent.glob("test_*.py")]
    assert any(f"\ndef {DEFECTS[defect]}(" in text for text in texts)
