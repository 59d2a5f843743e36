from __future__ import annotations

import pytest

from planaria.aws.model import Group, JobSeen, Member, Result, jobs_of, result_of
from planaria.aws.status import group_rows, is_litter, job_data, job_rows, progress, state_of, table

TAGS = {
    "planaria:job": "j", "planaria:run": "r1", "planaria:owner": "ann", "planaria:expires": "2026-03-08T12:00:00Z",
    "planaria:place": "bucket/jobs", "planaria:nodes": "1:4",
}  # fmt: skip
BEFORE, AFTER = "2026-03-01T00:00:00Z", "2026-03-09T00:00:00Z"


def group(*states: str, wanted: int = 2, low: int = 1, going: bool = False) -> Group:
    members = tuple(Member(f"i-{place}", state, "Healthy", "a", "m5.large") for place, state in enumerate(states))
    return Group("j_worker", low, wanted, 4, members, TAGS, going)


def job(worker: Group | None, *, claim: bool = True, status: int | None = None) -> JobSeen:
    result = None if status is None else Result(status, "why", "2026-03-02T00:00:00Z", "i-0")
    return JobSeen("j", TAGS if claim else None, worker, result=result)


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        (job(None), "incomplete"),
        (job(None, claim=False), "orphaned"),
        (job(group("InService"), claim=False), "orphaned"),
        (job(group("Terminating", going=True)), "being removed"),
        (job(group(going=True), claim=False), "being removed"),
        (job(group("Pending:Wait", "Pending:Wait")), "starting"),
        (job(group("InService", "Pending:Wait")), "running"),
        (job(group("Terminating:Wait", wanted=0, low=0)), "draining"),
        (job(group(wanted=0, low=0)), "stopped"),
        (job(group("Terminating:Wait", wanted=0), status=0), "ending"),
        (job(group(wanted=0), status=0), "done"),
        (job(group(wanted=0), status=1), "failed"),
    ],
)
def test_a_job_is_in_one_state(seen: JobSeen, state: str) -> None:
    assert state_of(seen) == state
    assert job_data(seen)["state"] == state


def test_what_a_result_file_says_moves_no_cursor() -> None:
    """Whoever may write to the bucket wrote it, and `wait` and `status` print it."""
    told = result_of({"status": 1, "reason": "\x1b[2Jgone\nno", "recorded_at": "\x9b1A", "instance": "i-\u202e0"})
    assert told == Result(1, r"\x1b[2Jgone\nno", r"\x9b1A", r"i-\u202e0")


def test_gc_takes_what_ended_or_expired_or_is_claimed_by_nobody() -> None:
    assert is_litter(job(group("InService")), BEFORE) is None
    assert is_litter(job(group("InService")), AFTER) == "it expired at 2026-03-08T12:00:00Z"
    assert is_litter(job(group(wanted=0), status=3), BEFORE) == "its run has ended with status 3"
    assert is_litter(job(group("InService"), status=3), BEFORE) == "its run has ended with status 3"
    assert is_litter(job(None, claim=False), BEFORE) == "nothing claims it"
    assert is_litter(job(group(wanted=0, low=0)), BEFORE) is None  # stopped: somebody may go on with it


def test_tables_and_progress_say_how_many_hosts_work() -> None:
    seen = job(group("InService", "Terminating:Wait"), status=5)
    assert table(job_rows([seen])).split("\n")[1].split() == [
        "j",
        "r1",
        "ending",
        "1/2",
        "5",
        "ann",
        "2026-03-08T12:00:00Z",
    ]
    assert group_rows(seen)[1] == ["j_worker", "1", "2", "4", "1", "1 Terminating:Wait"]
    assert progress(seen) == "j: ending, 1 of 2 hosts in service, status 5, why"
    assert seen.nodes == (1, 4)


def test_a_launch_template_alone_is_enough_to_find_what_is_left_of_a_job() -> None:
    tags = [{"Key": key, "Value": value} for key, value in TAGS.items()]
    found = jobs_of([], [{"LaunchTemplateName": "j_rdzv", "Tags": tags}], {})
    assert (found["j"].run, state_of(found["j"])) == ("r1", "orphaned")


@pytest.mark.parametrize("data", [None, [], {}, {"status": "0"}, "text"])
def test_a_file_that_is_no_result_is_none(data: object) -> None:
    assert result_of(data) is None
