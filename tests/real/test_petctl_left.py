"""What is left and what is taken away: gc, names in use, Ctrl-C and kill_job while a job is made. Against moto's server."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from aws_proxy import Proxy
from aws_server import aws
from petctl_desk import Petctl, cloud, fresh_job, petctl

from planaria.aws.apply import remove
from planaria.aws.flags import read
from planaria.aws.names import Names
from planaria.aws.plan import plan_removal
from planaria.aws.steps import Call
from planaria.errors import AwsError, UsageError

__all__ = ["aws", "cloud", "petctl"]

PROGRAM = Path(__file__).parents[2] / "aws/petctl.py"
TIMEOUT_S = 60


def test_gc_removes_what_ended_what_expired_and_what_nothing_claims_and_nothing_else(petctl: Petctl) -> None:
    ended, expired, orphaned, alive = (fresh_job() for _ in range(4))
    for job in (ended, orphaned, alive):
        petctl.submit(job, "--expires", "1000")
    petctl.submit(expired, "--expires", "1")
    petctl.end(ended, 1)
    petctl.client("autoscaling").set_desired_capacity(  # as if its hosts might not change the group
        AutoScalingGroupName=Names(ended).worker_group, DesiredCapacity=1
    )
    petctl.client("ssm").delete_parameter(Name=Names(orphaned).token)
    petctl.now = petctl.now.replace(hour=14)
    petctl.type("gc", "--list")
    assert {ended, expired, orphaned, alive} & set(petctl.out.split()) == {ended, expired, orphaned}
    assert petctl.left(ended)
    petctl.type("gc")
    for job in (ended, expired, orphaned):
        assert petctl.left(job) == [f"logs /planaria/{job}"]
    assert len(petctl.left(alive)) == 9
    petctl.type("list")
    assert alive in petctl.out
    assert ended not in petctl.out
    petctl.type("kill_job", alive)


def test_a_name_in_use_is_refused_and_the_job_that_has_it_is_left_alone(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.submit(job)
    before = petctl.left(job)
    with pytest.raises(UsageError, match=f"--name '{job}' is in use: run .* of ann is running"):
        petctl.submit(job)
    assert petctl.left(job) == before


def test_what_somebody_else_made_is_never_removed_whatever_its_name(petctl: Petctl) -> None:
    job = fresh_job()
    name = Names(job).worker_group
    petctl.client("ec2").create_launch_template(
        LaunchTemplateName=name, LaunchTemplateData={"InstanceType": "t3.micro"}
    )
    with pytest.raises(UsageError, match=f"launch template {name} is not of job {job}: it lacks the tag"):
        petctl.type("kill_job", job)
    with pytest.raises(UsageError, match=f"launch template {name} is there already.*nothing of this run is left"):
        petctl.submit(job)
    assert (petctl.left(job), petctl.files(job)) == ([f"template {name}"], [])
    petctl.client("ec2").delete_launch_template(LaunchTemplateName=name)


def test_gc_leaves_a_job_alone_whose_claim_the_list_of_all_has_not_yet(
    petctl: Petctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = fresh_job()
    petctl.submit(job, "--expires", "1000")
    before = petctl.left(job)
    pages = petctl.cloud.pages
    monkeypatch.setattr(
        petctl.cloud, "pages", lambda call, field: [] if call.method == "describe_parameters" else pages(call, field)
    )
    petctl.type("gc")
    assert job not in petctl.out
    assert petctl.left(job) == before
    petctl.type("kill_job", job, "--purge")


def test_a_job_that_is_killed_while_it_is_made_is_not_said_to_be_started_and_leaves_nothing(petctl: Petctl) -> None:
    job = fresh_job()

    def kill(line: str) -> None:
        if line == f"making launch template {Names(job).worker_group}":
            petctl.on_say = lambda _: None
            petctl.type("kill_job", job, "--purge")

    petctl.on_say = kill
    with pytest.raises(UsageError, match=f"job '{job}' was removed while it was made; nothing of this run is left"):
        petctl.submit(job)
    assert petctl.left(job) == []


def test_ctrl_c_while_things_are_taken_back_says_who_removes_them(
    petctl: Petctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = fresh_job()
    call = petctl.cloud.call

    def interrupted(order: Call) -> object:
        if order.method in ("create_launch_template", "delete_log_group"):
            raise KeyboardInterrupt
        return call(order)

    with monkeypatch.context() as patch:
        patch.setattr(petctl.cloud, "call", interrupted)
        with pytest.raises(KeyboardInterrupt):
            petctl.submit(job)
    told = petctl.err.splitlines()[-1]
    assert told.startswith("that was interrupted, and something may be left: the same command again goes on, and ")
    petctl.submit(job)
    assert len(petctl.left(job)) == 9
    petctl.type("kill_job", job, "--purge")


def test_gc_goes_on_after_a_job_that_cannot_be_removed_and_says_which(petctl: Petctl) -> None:
    stuck, easy = fresh_job(), fresh_job()
    for job in (stuck, easy):
        petctl.submit(job, "--expires", "1000")
        petctl.end(job, 0)
    name = Names(stuck).worker_group
    petctl.client("ec2").delete_launch_template(LaunchTemplateName=name)
    tags = [{"Key": "planaria:run", "Value": json.loads(petctl.data("status", stuck))["run"]}]
    petctl.client("ec2").create_launch_template(
        LaunchTemplateName=name,
        LaunchTemplateData={"InstanceType": "t3.micro"},
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags}],
    )
    with pytest.raises(AwsError, match=f"{stuck} could not be removed: launch template {name} is not of job"):
        petctl.type("gc")
    assert easy in petctl.out.split()
    assert stuck not in petctl.out.split()
    assert petctl.left(easy) == [f"logs /planaria/{easy}"]
    petctl.client("ec2").delete_launch_template(LaunchTemplateName=name)
    petctl.type("kill_job", stuck)


def test_gc_leaves_a_run_alone_that_began_after_it_looked(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.submit(job)
    before = petctl.left(job)
    hands = petctl.desk(read(["gc"])).hands
    assert not remove(plan_removal(job, "20200101-000000-aabbcc", logs=False), hands, wait=True)
    assert petctl.left(job) == before


def test_a_bug_of_ours_takes_back_what_was_made_and_is_not_called_an_interruption(
    petctl: Petctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, call = fresh_job(), petctl.cloud.call

    def broken(order: Call) -> object:
        assert order.method != "create_launch_template"
        return call(order)

    monkeypatch.setattr(petctl.cloud, "call", broken)
    with pytest.raises(AssertionError):
        petctl.submit(job)
    assert "stopped by AssertionError: taking back what was made" in petctl.err
    assert petctl.left(job) == petctl.files(job) == []


@pytest.mark.parametrize("place", range(9))
def test_ctrl_c_takes_back_what_was_made_also_the_call_that_it_met(
    petctl: Petctl, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    job = fresh_job()
    made = itertools.count()
    call = petctl.cloud.call

    def interrupted(order: Call) -> object:
        answer = call(order)
        if order.method.startswith(("put", "create")) and next(made) == place:
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr(petctl.cloud, "call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        petctl.submit(job)
    assert "interrupted: taking back what was made" in petctl.err
    assert petctl.left(job) == petctl.files(job) == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_program_after_it_has_taken_back_what_was_made(
    petctl: Petctl, number: int, status: int
) -> None:
    """It comes while the answer to a launch template is on its way: that one was made, and is taken back too."""
    job, proxy = fresh_job(), Proxy(petctl.aws.endpoint)
    was_made, is_told = threading.Event(), threading.Event()

    def hold(what: str) -> None:
        if what == "CreateLaunchTemplate":
            was_made.set()
            is_told.wait(TIMEOUT_S)

    proxy.passed = hold
    variables = {**petctl.aws.environment, "PATH": os.environ["PATH"], "AWS_ENDPOINT_URL": proxy.endpoint}
    words = ["run_job", "--size", "2", "--specs_file", str(petctl.specs_file), "--name", job, str(petctl.script)]
    try:
        with subprocess.Popen([sys.executable, PROGRAM, *words], env=variables, stderr=subprocess.PIPE) as process:
            try:
                assert was_made.wait(TIMEOUT_S)
                assert f"template {Names(job).store_group}" in petctl.left(job)
                process.send_signal(number)
                _, said = process.communicate(timeout=TIMEOUT_S)
            finally:
                process.kill()
    finally:
        is_told.set()
        proxy.close()
    assert process.returncode == status, said
    assert b"petctl: interrupted: taking back what was made\n" in said
    assert petctl.left(job) == petctl.files(job) == []
