"""`scale` and `stop`: more hosts, fewer hosts, none. Hosts that go are drained by the group's hook."""

from __future__ import annotations

from planaria.aws.desk import Desk
from planaria.aws.model import JobSeen
from planaria.aws.names import Names
from planaria.aws.plan import look_at
from planaria.aws.status import DONE, DRAINING, ENDING, FAILED, STOPPED, state_of
from planaria.aws.steps import ANY_RUN, Call, Kind, Plan, Step
from planaria.aws.survey import see
from planaria.aws.waiting import await_job
from planaria.errors import UsageError


def scale(desk: Desk) -> int:
    """Change the number of hosts within the sizes the job was started for."""
    options, names = desk.options, Names(desk.options.job)
    if options.size < 1:
        raise UsageError(f"--size is {options.size}, expected at least 1", hint="petctl stop goes to zero")
    steps = (_sized(names.store_group, 1, low=1), _sized(names.worker_group, options.size))
    if options.dry_run:
        desk.show_plan(Plan(names.job, ANY_RUN, steps))
        return 0
    job = see(desk.cloud, names.job)
    _check_size(job, options.size)
    if job.nodes is not None:  # `stop` has set it to zero
        steps = (steps[0], _sized(names.worker_group, options.size, low=job.nodes[0]))
    for step, group in zip(steps, (job.store, job.worker), strict=True):
        if group is not None:
            desk.cloud.call(step.do)
    desk.answer(f"job {names.job} goes to {options.size} hosts\n", {"job": names.job, "size": options.size})
    return 0


def _check_size(job: JobSeen, size: int) -> None:
    if state_of(job) in (DONE, FAILED, ENDING):
        raise UsageError(f"job {job.job!r} has ended, with status {job.result.status if job.result else '?'}")
    if job.worker is None:
        raise UsageError(f"job {job.job!r} has no workers' group", hint=f"petctl kill_job {job.job} removes it")
    low, high = job.nodes or (job.worker.low, job.worker.high)
    if not low <= size <= high:
        raise UsageError(f"--size is {size}, expected a number from {low} to {high}, which the job was started for")


def stop(desk: Desk) -> int:
    """Bring a job to zero hosts, the workers first, and wait until they have drained."""
    options, names = desk.options, Names(desk.options.job)
    steps = (_sized(names.worker_group, 0, low=0), _sized(names.store_group, 0, low=0))
    if options.dry_run:
        desk.show_plan(Plan(names.job, ANY_RUN, steps))
        return 0
    job = see(desk.cloud, names.job)
    if job.worker is not None:
        desk.cloud.call(steps[0].do)
    if options.no_wait:
        later = _later(names.job) if job.store is not None else ""
        told, state = (f"is draining{later}", DRAINING) if job.result is None else (_end(job), state_of(job))
        desk.answer(f"job {names.job} {told}\n", {"job": names.job, "state": state})
        return 0
    try:
        job = await_job(desk, lambda job: job.worker is None or not job.worker.members) or job
    except KeyboardInterrupt:
        desk.say(f"job {names.job} goes on draining" + (_later(names.job) if job.store is not None else ""))
        raise
    if job.store is not None:
        desk.cloud.call(steps[1].do)  # agents that drain still need the store
    desk.answer(f"job {names.job} {_end(job)}\n", {"job": names.job, "state": state_of(job)})
    return 0


def _later(job: str) -> str:
    return f"; its store stays until `petctl stop {job}` has waited"


def _end(job: JobSeen) -> str:
    """Return what became of a job that has no workers any more: it may have ended before it was stopped, or meanwhile."""
    if job.result is not None:
        return f"has ended with status {job.result.status}"
    state = state_of(job)
    return "has drained; petctl scale goes on with it" if state == STOPPED else f"is {state}"


def _sized(group: str, size: int, *, low: int | None = None) -> Step:
    """Return the step that gives a group its size. The lower bound follows only where it is in the way."""
    request: dict[str, object] = {"AutoScalingGroupName": group, "DesiredCapacity": size}
    if low is not None:
        request["MinSize"] = low
    return Step(
        Kind.GROUP, group, Call("autoscaling", "update_auto_scaling_group", request), look_at(Kind.GROUP, group), None
    )
