"""Looking at jobs and stopping them: wait, stop, scale, hosts, logs. Against moto's server, with real boto3 over HTTP."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from aws_server import aws
from petctl_desk import Petctl, cloud, fresh_job, petctl

from planaria.aws.names import Names
from planaria.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["aws", "cloud", "petctl"]


def test_wait_shows_progress_and_returns_the_status_of_the_job(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.submit(job)
    run = json.loads(petctl.data("status", job))["run"]
    petctl.on_pause = lambda: petctl.record(job, run, 7)
    assert petctl.type("wait", job) == 7
    assert "2 of 2 hosts in service" in petctl.err
    assert "status 7, the end" in petctl.err
    assert petctl.type("wait", job, "--for", "0") == 7


def test_wait_for_a_job_that_was_stopped_says_so(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.submit(job)
    petctl.type("stop", job)
    with pytest.raises(UsageError, match=f"job '{job}' is stopped and has no result .petctl scale goes on"):
        petctl.type("wait", job)


def incomplete(petctl: Petctl) -> str:
    """Return a job whose run_job was killed before it made the workers' group."""
    job = fresh_job()
    petctl.submit(job)
    petctl.client("autoscaling").delete_auto_scaling_group(
        AutoScalingGroupName=Names(job).worker_group, ForceDelete=True
    )
    return job


def orphaned(petctl: Petctl) -> str:
    job = fresh_job()
    petctl.submit(job)
    petctl.client("ssm").delete_parameter(Name=Names(job).token)
    return job


def stopped(petctl: Petctl) -> str:
    job = fresh_job()
    petctl.submit(job)
    petctl.type("stop", job)
    return job


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (incomplete, "incomplete{}the same run_job goes on with it, petctl kill_job {} removes it"),
        (orphaned, "orphaned{}petctl kill_job {} removes it"),
        (stopped, "stopped{}petctl scale goes on with it, petctl kill_job {} removes it"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_nobody_waits_for_ever_for_a_job_of_which_nothing_comes_by_itself(
    petctl: Petctl, monkeypatch: pytest.MonkeyPatch, make: Callable[[Petctl], str], told: str
) -> None:
    job = make(petctl)
    monkeypatch.setattr("planaria.aws.status.MAKING_S", 3)
    with pytest.raises(UsageError) as caught:
        petctl.type("wait", job)
    assert str(caught.value) == f"job {job!r} is " + told.format(" and has no result (", job) + ")"
    petctl.type("logs", "-f", job)
    assert petctl.err.splitlines()[-1] == f"job {job} is " + told.format(": ", job)
    petctl.type("kill_job", job, "--purge")


def test_a_job_that_is_being_made_is_waited_for(petctl: Petctl) -> None:
    job = incomplete(petctl)
    run = json.loads(petctl.data("status", job))["run"]
    pauses = iter([lambda: petctl.submit(job), lambda: petctl.record(job, run, 4)])
    petctl.on_pause = lambda: next(pauses)() and None
    assert petctl.type("wait", job) == 4


def test_wait_gives_up_after_the_time_it_was_given(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.submit(job)
    assert petctl.type("wait", job, "--for", "3") == 124


def test_stop_drains_to_zero_and_scale_goes_on(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.submit(job, "--min_size", "1", "--max_size", "3")
    assert petctl.type("stop", "--drain", job) == 0
    assert json.loads(petctl.data("status", job))["state"] == "stopped"
    assert json.loads(petctl.data("status", job))["rdzv"]["desired"] == 0
    assert petctl.type("scale", job, "--size", "3") == 0
    found = json.loads(petctl.data("status", job))
    assert (found["state"], found["worker"]["desired"], found["rdzv"]["desired"]) == ("running", 3, 1)
    assert (found["worker"]["min"], found["rdzv"]["min"]) == (1, 1)
    with pytest.raises(UsageError, match="--size is 4, expected a number from 1 to 3"):
        petctl.type("scale", job, "--size", "4")


@pytest.mark.parametrize("words", [["stop"], ["stop", "--no_wait"]])
def test_stop_says_how_a_job_ended_that_was_faster(petctl: Petctl, words: list[str]) -> None:
    job = fresh_job()
    petctl.submit(job)
    petctl.end(job, 3)
    petctl.type(*words, job)
    assert petctl.out == f"job {job} has ended with status 3\n"
    assert json.loads(petctl.data(*words, job)) == {"job": job, "state": "failed"}


def test_ctrl_c_while_stop_waits_says_that_the_store_stays(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.submit(job)

    def interrupt(line: str) -> None:
        if line.startswith(f"{job}: "):  # the first look while it waits
            raise KeyboardInterrupt

    petctl.on_say = interrupt
    with pytest.raises(KeyboardInterrupt):
        petctl.type("stop", job)
    told = f"job {job} goes on draining; its store stays until `petctl stop {job}` has waited"
    assert petctl.err.splitlines()[-1] == told


def test_stop_without_waiting_says_that_the_store_stays(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.submit(job)
    petctl.type("stop", "--no_wait", job)
    assert petctl.out == f"job {job} is draining; its store stays until `petctl stop {job}` has waited\n"
    assert json.loads(petctl.data("status", job))["rdzv"]["desired"] == 1
    petctl.type("stop", job)
    assert json.loads(petctl.data("status", job))["rdzv"]["desired"] == 0


def test_hosts_of_a_job_are_listed_at_once_also_when_there_are_none(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.submit(job)
    rows = json.loads(petctl.data("list_hosts", job))
    assert [row["group"] for row in rows] == [f"{job}_worker"] * 2 + [f"{job}_rdzv"]
    assert all(row["address"] != "-" for row in rows)
    petctl.type("hosts", job)
    head, *lines = petctl.out.splitlines()
    assert head.split() == ["GROUP", "INSTANCE", "STATE", "TYPE", "MARKET", "ZONE", "ADDRESS"]
    assert [line.split() for line in lines] == [list(row.values()) for row in rows]
    petctl.type("stop", job)
    assert json.loads(petctl.data("hosts", job)) == []
    with pytest.raises(UsageError, match="there is no job 'nobody'"):
        petctl.type("hosts", "nobody")


def test_logs_are_those_of_the_run_and_of_one_rank_when_asked(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.submit(job)
    run = json.loads(petctl.data("status", job))["run"]
    now = int(datetime.now(UTC).timestamp() * 1000)  # CloudWatch takes no old lines
    print_lines(petctl, job, f"{run}/i-1", {"[default 0]:one": now, "[default 10]:two": now})
    petctl.type("logs", job)
    assert petctl.out == "[default 0]:one\n[default 10]:two\n"
    petctl.type("logs", "--rank", "0", job)
    assert petctl.out == "[default 0]:one\n"
    petctl.on_pause = lambda: pytest.fail("it waits for a run that is over, since another has its name")
    petctl.type("logs", "-f", "--run", "20200101-000000-aabbcc", job)


def test_logs_are_followed_to_the_end_and_late_lines_of_other_hosts_are_not_lost(petctl: Petctl) -> None:
    job = fresh_job()
    petctl.submit(job)
    run = json.loads(petctl.data("status", job))["run"]
    now = int(datetime.now(UTC).timestamp() * 1000)
    print_lines(petctl, job, f"{run}/i-1", {"new": now})
    happens = [
        lambda: print_lines(petctl, job, f"{run}/i-2", {"late": now - 20_000}),
        lambda: petctl.record(job, run, 0),
    ]
    petctl.on_pause = lambda: None if not happens else happens.pop(0)()
    petctl.type("logs", "-f", job)
    assert petctl.out == "new\nlate\n"


def print_lines(petctl: Petctl, job: str, stream: str, lines: dict[str, int]) -> None:
    place = {"logGroupName": f"/planaria/{job}", "logStreamName": stream}
    petctl.client("logs").create_log_stream(**place)
    events = [{"timestamp": at_ms, "message": line} for line, at_ms in lines.items()]
    petctl.client("logs").put_log_events(**place, logEvents=events)


def test_logs_that_are_gone_are_one_sentence(petctl: Petctl) -> None:
    job = fresh_job()
    with pytest.raises(UsageError, match=f"there are no logs of job '{job}' any more"):
        petctl.type("logs", job, "--run", "20200101-000000-aabbcc")
