"""`kill_job` and `gc`: take jobs apart."""

from __future__ import annotations

from planaria.aws.apply import remove
from planaria.aws.desk import Desk
from planaria.aws.model import JobSeen
from planaria.aws.names import stamp
from planaria.aws.plan import plan_removal
from planaria.aws.status import ORPHANED, is_litter, state_of
from planaria.aws.steps import ANY_RUN
from planaria.aws.survey import is_claimed, nobody, see_all
from planaria.errors import AwsError, UsageError


def kill_job(desk: Desk) -> int:
    """End a job at once and remove what it has. It needs no specs file, and goes on where another call stopped."""
    options = desk.options
    plan = plan_removal(options.job, ANY_RUN, logs=options.purge)
    if options.dry_run:
        desk.show_plan(plan)
        return 0
    if not remove(plan, desk.hands, wait=not options.no_wait):
        raise nobody(options.job, desk.cloud)
    desk.answer(f"job {options.job} is removed\n", {"job": options.job, "removed": True})
    return 0


def gc(desk: Desk) -> int:
    """Remove jobs that nobody needs any more. One that cannot be removed does not keep the others."""
    options = desk.options
    if options.dry_run:
        # Which jobs would take a look, and a dry run asks nothing: this is what would happen to each of them.
        desk.say("this is what happens to each JOB; `petctl gc --list` asks AWS which they are")
        desk.show_plan(plan_removal("JOB", ANY_RUN, logs=False))
        return 0
    now = stamp(desk.utc())
    litter = [(job, why) for job in see_all(desk.cloud) if (why := _why_litter(job, now, desk)) is not None]
    kept: dict[str, str] = {}
    for job, why in litter:
        desk.say(f"{job.job}: {why}")
        if not options.list and (problem := _swept(job, desk)):
            kept[job.job] = problem
    names = [job.job for job, _ in litter]
    removed = [] if options.list else [name for name in names if name not in kept]
    shown = names if options.list else removed
    desk.answer("".join(f"{name}\n" for name in shown), {"removed": removed, "found": names})
    if kept:
        raise AwsError("; ".join(f"{name} could not be removed: {problem}" for name, problem in kept.items()))
    return 0


def _why_litter(job: JobSeen, now: str, desk: Desk) -> str | None:
    """Return why a job is to go. That nothing claims it is believed only after a second look."""
    why = is_litter(job, now)
    return None if why is not None and state_of(job) == ORPHANED and is_claimed(desk.cloud, job) else why


def _swept(job: JobSeen, desk: Desk) -> str | None:
    """Remove one job, as it was seen; return what kept it."""
    try:
        remove(plan_removal(job.job, job.run or ANY_RUN, logs=False), desk.hands, wait=True)
    except (AwsError, UsageError) as problem:
        return str(problem)
    return None
