"""What becomes of a job that is suspended, whose spec is wrong or changed, or that is deleted."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from kubesim.given import Desk, elastic_spec, plain_spec, running, template

from planaria.base.value import replace
from planaria.kube.logline import Metric
from planaria.kube.model import Now
from planaria.kube.plan import decide, to_try, tried
from planaria.kube.seen import JobSeen, World


def test_a_suspended_job_has_no_pods_keeps_its_place_in_the_search_and_comes_back() -> None:
    desk = running(elastic_spec())
    desk.grow({1: 10.0, 2: 19.0, 3: 27.0}, looks=4)
    desk.spec["suspend"] = True
    desk.look()
    assert desk.state == "Suspended"
    assert sorted(desk.deleted) == ["resnet-worker-0", "resnet-worker-1", "resnet-worker-2"]
    assert "startTime" not in desk.status
    desk.settle()
    desk.look()
    desk.spec["suspend"] = False
    desk.look()
    assert desk.state == "Created"
    assert desk.created[3:] == ["resnet-worker-0", "resnet-worker-1", "resnet-worker-2"]
    desk.run_all().look()
    assert desk.state == "Running"


def test_a_trial_goes_on_after_a_suspension_of_any_length() -> None:
    desk = running(elastic_spec())
    desk.sample(1, 10.0)
    desk.look(100.0)
    desk.world.clear()
    desk.run_all().look()
    assert desk.status["targetReplicas"] == 2
    desk.spec["suspend"] = True
    desk.look()
    desk.settle()
    desk.look(86_400.0)
    desk.spec["suspend"] = False
    desk.look()
    desk.run_all().look(30.0)
    desk.look()
    assert (desk.state, desk.status["targetReplicas"]) == ("Running", 2)
    assert desk.block["elasticCondition"] == "Continue"


def test_a_plain_job_that_is_resumed_runs_anew_with_all_its_ranks() -> None:
    desk = Desk(plain_spec(2))
    desk.look()
    desk.run_all().look()
    desk.end(0, 0)
    desk.look()
    desk.spec["suspend"] = True
    desk.look()
    desk.pods.clear()
    desk.look()
    desk.spec["suspend"] = False
    desk.created.clear()
    desk.look()
    assert sorted(desk.created) == ["resnet-master-0", "resnet-worker-0", "resnet-worker-1"]


def test_a_job_can_start_suspended() -> None:
    desk = Desk(elastic_spec(suspend=True))
    assert desk.look().actions == ()
    assert desk.state == "Suspended"
    desk.spec["suspend"] = False
    desk.look()
    assert (desk.state, desk.created) == ("Created", ["resnet-worker-0"])


def test_the_deadline_is_counted_from_the_last_start() -> None:
    desk = running(elastic_spec(activeDeadlineSeconds=100))
    desk.spec["suspend"] = True
    desk.look()
    desk.settle()
    desk.spec["suspend"] = False
    desk.look(1000.0)
    desk.run_all().look(90.0)
    assert desk.state == "Running"


def test_a_wrong_spec_is_shown_as_a_condition_and_nothing_is_made_until_it_is_mended() -> None:
    desk = Desk(elastic_spec(least=4, most=3))
    assert desk.look().actions == ()
    assert (desk.state, desk.reason) == ("Invalid", "InvalidSpec")
    assert desk.message == "spec.elasticPolicy.minReplicas expects at most maxReplicas (3), got 4"
    desk.spec["elasticPolicy"]["minReplicas"] = 1
    desk.look()
    assert (desk.state, desk.created) == ("Created", ["resnet-worker-0"])


def test_what_others_find_wrong_is_a_condition_too() -> None:
    desk = Desk(elastic_spec())
    desk.world["problems"] = ("spec.elasticPolicy.metric.pattern does not match its sample",)
    assert desk.look().actions == ()
    assert (desk.state, desk.message) == ("Invalid", "spec.elasticPolicy.metric.pattern does not match its sample")


def test_what_cannot_change_is_named_and_nothing_is_made_until_it_is_undone_while_the_pods_go_on() -> None:
    desk = running(elastic_spec(start=2))
    desk.spec["elasticPolicy"]["maxReplicas"] = 5
    desk.look()
    assert (desk.state, desk.reason) == ("Invalid", "ImmutableFieldChanged")
    assert desk.message == (
        "spec.elasticPolicy.maxReplicas was changed from 3, which a job with pods cannot do: undo it, or suspend the job first"
    )
    desk.vanish(0)
    assert desk.look().actions == ()
    desk.spec["elasticPolicy"]["maxReplicas"] = 3
    desk.look()
    assert (desk.state, desk.created[2:]) == ("Running", ["resnet-worker-0"])


def test_a_run_that_ends_while_its_spec_is_wrong_ends_well() -> None:
    desk = running(elastic_spec())
    desk.spec["elasticPolicy"]["nProcPerNode"] = 8
    desk.look()
    desk.end(0, 0)
    desk.look()
    assert desk.state == "Succeeded"


def test_a_suspended_job_may_change_everything() -> None:
    desk = running(elastic_spec())
    desk.spec["suspend"] = True
    desk.look()
    desk.settle()
    desk.look()
    desk.spec |= {"suspend": False}
    desk.spec["elasticPolicy"]["maxReplicas"] = 5
    desk.look()
    assert desk.state == "Created"


@pytest.mark.parametrize("spec", [elastic_spec(master=True), plain_spec(1)], ids=["elastic", "plain"])
def test_a_template_that_was_refused_is_mended_by_another_while_pods_of_the_other_kind_run(
    spec: dict[str, Any],
) -> None:
    desk = Desk(copy.deepcopy(spec))
    desk.look()
    del desk.pods["resnet-worker-0"]  # it was refused
    desk.world["refusals"] = {("Pod", "resnet-worker-0"): "Pod resnet-worker-0 was refused: 4GB is no quantity"}
    desk.run_all().look()
    del desk.pods["resnet-worker-0"]
    assert desk.reason == "CreateRefused"
    desk.spec["pytorchReplicaSpecs"]["Worker"]["template"] = template(image="trainer:2")
    desk.world.clear()
    desk.created.clear()
    desk.look()
    assert (desk.reason, desk.created) == ("WorkersMissing", ["resnet-worker-0"])
    desk.run_all().look()
    assert desk.state == "Running"
    desk.vanish(0)
    desk.spec["pytorchReplicaSpecs"]["Worker"]["template"] = template(image="trainer:3")
    assert desk.look().actions == ()
    assert (desk.state, desk.reason) == ("Invalid", "ImmutableFieldChanged"), "it has had pods of this one"


def test_the_size_of_a_plain_job_is_in_its_master_though_it_never_had_a_worker() -> None:
    desk = Desk(plain_spec(1))
    desk.look()
    del desk.pods["resnet-worker-0"]
    desk.run_all().look()
    del desk.pods["resnet-worker-0"]
    desk.spec["pytorchReplicaSpecs"]["Worker"]["replicas"] = 2
    desk.look()
    assert (desk.state, desk.reason) == ("Invalid", "ImmutableFieldChanged")


def test_a_job_whose_pods_are_still_going_may_not() -> None:
    desk = running(elastic_spec())
    desk.spec["suspend"] = True
    desk.look()
    desk.spec |= {"suspend": False}
    desk.spec["elasticPolicy"]["maxReplicas"] = 5
    desk.look()
    assert (desk.state, desk.reason) == ("Invalid", "ImmutableFieldChanged")


def test_a_job_that_is_being_deleted_is_left_to_the_garbage_collector() -> None:
    job = JobSeen("resnet", "default", "u", 1, True, elastic_spec(), {"state": "Running"})
    decision = decide(job, World(), Now(1.0, "t"))
    assert (decision.actions, decision.status) == ((), {"state": "Running"})


def test_a_kind_that_was_taken_out_of_the_spec_is_named_and_its_pods_go_on() -> None:
    desk = running(plain_spec(1))
    del desk.spec["pytorchReplicaSpecs"]["Master"]
    assert desk.look().actions == ()
    assert (desk.state, desk.reason) == ("Invalid", "ImmutableFieldChanged")
    assert "spec.pytorchReplicaSpecs.Master.template was changed" in desk.message


def test_a_job_that_runs_and_makes_no_sense_any_more_is_left_alone_until_it_is_mended() -> None:
    desk = running(elastic_spec(1, 2, 2, activeDeadlineSeconds=100))
    desk.spec["elasticPolicy"]["minReplicas"] = 3
    desk.spec["suspend"] = True
    for _ in range(3):
        desk.end(0, 0)
        assert desk.look(100.0).actions == ()
        assert (desk.state, desk.reason) == ("Invalid", "InvalidSpec")
    assert len(desk.pods) == 2
    desk.spec["elasticPolicy"]["minReplicas"] = 1
    desk.spec["suspend"] = False
    desk.end(1, 0)
    desk.look()
    assert desk.state == "Succeeded", "it ended meanwhile, and that comes before its deadline"


METRIC = {"pattern": "took (?P<time>[0-9]+) ms", "unit": "ms"}


@pytest.mark.parametrize(
    ("policy", "is_tried"),
    [
        ({"metric": METRIC}, True),
        ({"metric": {"unit": "ms"}}, False),
        ({}, False),
        ({"metric": METRIC, "minGain": -1}, False),
        ({"metric": METRIC | {"unit": "h"}}, False),
        ({"metric": "Time"}, False),
    ],
)
def test_only_a_pattern_of_somebody_else_in_a_good_spec_is_tried(policy: dict[str, Any], is_tried: bool) -> None:
    found = to_try(JobSeen("resnet", "n", "u", 1, False, elastic_spec(policy=policy), {}))
    assert found == (Metric(METRIC["pattern"], unit="ms") if is_tried else None)


def test_a_trial_says_what_is_wrong_or_nothing_or_why_it_is_not_known_yet() -> None:
    world = World(free=None)
    assert tried(world, None, "") == replace(world, untried="it is being tried")
    assert tried(world, None, "no process could be started") == replace(world, untried="no process could be started")
    assert tried(world, "", "") == world
    assert tried(world, "it is slow", "") == replace(world, problems=("it is slow",))
