"""`scale` and `stop`: more hosts, fewer hosts, none. Hosts that go are drained by the group's hook."""

from __future__ import annotations

from planaria.aws.desk import Desk
from planaria.aws.model import Group, JobSeen
from planaria.aws.sizing import plan_scale, plan_stop
from planaria.aws.status import DRAINING, STOPPED, state_of
from planaria.aws.steps import Plan
from planaria.aws.survey import see
from planaria.aws.waiting import await_job


def scale(desk: Desk) -> int:
    """Change the number of hosts within the sizes the job was started for."""
    job, size = desk.options.job, desk.options.size
    unseen = plan_scale(job, size, None)  # a size that no job can have is refused before AWS is asked
    if desk.options.dry_run:
        return _show(desk, unseen)
    for step in plan_scale(job, size, see(desk.cloud, job)).steps:
        desk.cloud.call(step.do)
    desk.answer(f"job {job} goes to {size} hosts\n", {"job": job, "size": size})
    return 0


def stop(desk: Desk) -> int:
    """Bring a job to zero hosts, the workers first, and wait until they have drained."""
    name = desk.options.job
    if desk.options.dry_run:
        return _show(desk, plan_stop(name, None))
    job = see(desk.cloud, name)
    _to_zero(desk, job, job.worker)
    if desk.options.no_wait:
        later = _later(name) if job.store is not None else ""
        told, state = (f"is draining{later}", DRAINING) if job.result is None else (_end(job), state_of(job))
        desk.answer(f"job {name} {told}\n", {"job": name, "state": state})
        return 0
    try:
        job = await_job(desk, lambda job: job.worker is None or not job.worker.members) or job
    except KeyboardInterrupt:
        desk.say(f"job {name} goes on draining" + (_later(name) if job.store is not None else ""))
        raise
    _to_zero(desk, job, job.store)
    desk.answer(f"job {name} {_end(job)}\n", {"job": name, "state": state_of(job)})
    return 0


def _to_zero(desk: Desk, job: JobSeen, group: Group | None) -> None:
    for step in plan_stop(job.job, job).steps:
        if group is not None and step.name == group.name:
            desk.cloud.call(step.do)


def _show(desk: Desk, plan: Plan) -> int:
    desk.say("a group that the job does not have is passed over")  # a dry run asks nothing, so it cannot know
    desk.show_plan(plan)
    return 0


def _later(job: str) -> str:
    return f"; its store stays until `petctl stop {job}` has waited"


def _end(job: JobSeen) -> str:
    """Return what became of a job that has no workers any more: it may have ended before it was stopped, or meanwhile."""
    if job.result is not None:
        return f"has ended with status {job.result.status}"
    state = state_of(job)
    return "has drained; petctl scale goes on with it" if state == STOPPED else f"is {state}"
