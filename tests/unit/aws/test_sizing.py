"""What `scale` and `stop` ask for, by what there is of a job. Plans for a job that nobody has looked at: test_plan.py."""

from __future__ import annotations

import pytest

from planaria.aws.model import Group, JobSeen, Member, Result
from planaria.aws.sizing import plan_scale, plan_stop
from planaria.aws.steps import Plan
from planaria.errors import UsageError

CLAIM = {"planaria:job": "j", "planaria:run": "r1"}


def group(name: str, *, nodes: str = "2:4", hosts: int = 0) -> Group:
    members = tuple(Member(f"i-{place}", "InService", "Healthy", "a", "m5.large") for place in range(hosts))
    return Group(name, 0, hosts, 4, members, {"planaria:nodes": nodes} if nodes else {})


def job(worker: Group | None = None, store: Group | None = None, status: int | None = None) -> JobSeen:
    return JobSeen("j", CLAIM, worker, store, None if status is None else Result(status, "why", "", "i-0"))


def sizes(plan: Plan) -> list[dict[str, object]]:
    return [dict(step.do.request) for step in plan.steps]


def sized(name: str, size: int, **more: int) -> dict[str, object]:
    return {"AutoScalingGroupName": name, "DesiredCapacity": size, **more}


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        (job(group("j_worker")), [sized("j_worker", 3, MinSize=2)]),
        (
            job(group("j_worker"), group("j_rdzv")),
            [sized("j_rdzv", 1, MinSize=1), sized("j_worker", 3, MinSize=2)],
        ),
        (job(group("j_worker", nodes="")), [sized("j_worker", 3)]),  # somebody took the tag away
    ],
)
def test_scale_gives_the_groups_that_there_are_the_bounds_of_the_start(
    seen: JobSeen, wanted: list[dict[str, object]]
) -> None:
    assert sizes(plan_scale("j", 3, seen)) == wanted


@pytest.mark.parametrize(
    ("seen", "size", "sentence"),
    [
        (None, 0, "--size is 0, expected at least 1"),
        (job(group("j_worker")), 5, "--size is 5, expected a number from 2 to 4, which the job was started for"),
        (job(group("j_worker")), 1, "--size is 1, expected a number from 2 to 4"),
        (job(group("j_worker"), status=0), 3, "job 'j' has ended, with status 0"),
        (job(group("j_worker", hosts=2), status=3), 3, "job 'j' has ended, with status 3"),
        (job(), 3, "job 'j' has no workers' group"),
    ],
)
def test_scale_refuses_what_the_job_cannot_have(seen: JobSeen | None, size: int, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        plan_scale("j", size, seen)


def test_stop_takes_the_workers_to_zero_and_then_the_store_where_there_is_one() -> None:
    workers = sized("j_worker", 0, MinSize=0)
    assert sizes(plan_stop("j", job(group("j_worker"), group("j_rdzv")))) == [workers, sized("j_rdzv", 0, MinSize=0)]
    assert sizes(plan_stop("j", job(group("j_worker")))) == [workers]
    assert sizes(plan_stop("j", job())) == []
