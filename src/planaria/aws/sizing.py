"""Decide what `scale` and `stop` change. Pure: `--dry-run` prints what this returns for a job that nobody has looked at."""

from __future__ import annotations

from planaria.aws.model import Group, JobSeen
from planaria.aws.names import Names
from planaria.aws.plan import look_at
from planaria.aws.status import DONE, ENDING, FAILED, state_of
from planaria.aws.steps import ANY_RUN, AsStarted, Call, Kind, Plan, Step
from planaria.errors import UsageError


def plan_scale(job: str, size: int, seen: JobSeen | None) -> Plan:
    """Return the steps that give a job so many workers, the store before them; `seen` is None where nobody has looked.

    Raises:
        UsageError: The job cannot have that size, or any.
    """
    if size < 1:
        raise UsageError(f"--size is {size}, expected at least 1", hint="petctl stop goes to zero")
    names = Names(job)
    if seen is None:
        return _plan(job, _sized(names.store_group, 1, low=1), _sized(names.worker_group, size, low=AsStarted()))
    worker = _sizable(seen, size)
    low = None if seen.nodes is None else seen.nodes[0]  # `stop` has set it to zero
    steps = [_sized(worker.name, size, low=low)]
    return _plan(job, *([] if seen.store is None else [_sized(seen.store.name, 1, low=1)]), *steps)


def _sizable(job: JobSeen, size: int) -> Group:
    """Return the workers' group of a job that may have this size."""
    if state_of(job) in (DONE, FAILED, ENDING):
        raise UsageError(f"job {job.job!r} has ended, with status {job.result.status if job.result else '?'}")
    if job.worker is None:
        raise UsageError(f"job {job.job!r} has no workers' group", hint=f"petctl kill_job {job.job} removes it")
    low, high = job.nodes or (job.worker.low, job.worker.high)
    if not low <= size <= high:
        raise UsageError(f"--size is {size}, expected a number from {low} to {high}, which the job was started for")
    return job.worker


def plan_stop(job: str, seen: JobSeen | None) -> Plan:
    """Return the steps to zero hosts, the workers first: agents that drain still need the store."""
    names = Names(job)
    groups = [names.worker_group, names.store_group]
    if seen is not None:
        groups = [group.name for group in (seen.worker, seen.store) if group is not None]
    return _plan(job, *(_sized(group, 0, low=0) for group in groups))


def _plan(job: str, *steps: Step) -> Plan:
    return Plan(job, ANY_RUN, steps)


def _sized(group: str, size: int, *, low: object) -> Step:
    """Return the step that gives a group its size. The lower bound stays as it is where there is none to be given."""
    request: dict[str, object] = {"AutoScalingGroupName": group, "DesiredCapacity": size}
    if low is not None:
        request["MinSize"] = low
    return Step(
        Kind.GROUP, group, Call("autoscaling", "update_auto_scaling_group", request), look_at(Kind.GROUP, group), None
    )
