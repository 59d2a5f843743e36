"""Look at a job until something is so: say what changes, and bear with AWS when it does not answer for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from planaria.aws.desk import Desk
from planaria.aws.model import JobSeen
from planaria.aws.status import progress
from planaria.aws.survey import see
from planaria.errors import AwsError

PATIENCE_S = 600.0  # without an answer; who waits for days meets a broken network now and then

T = TypeVar("T")


def await_job(desk: Desk, is_so: Callable[[JobSeen], bool], *, until: float | None = None) -> JobSeen | None:
    """Return the job once it is so; None where that was not the case by `until`.

    Raises:
        UsageError: There is no such job, or no more.
        AwsError: The first look failed, or AWS has not answered for too long.
    """
    last = ""
    job = see(desk.cloud, desk.options.job)
    while True:
        line = progress(job)
        if line != last:
            desk.say(line)
            last = line
        if is_so(job):
            return job
        if until is not None and desk.now() >= until:
            return None
        desk.pause(desk.options.every)
        job = patiently(desk, lambda: see(desk.cloud, desk.options.job))


def patiently(desk: Desk, look: Callable[[], T]) -> T:
    """Look, again and again while nobody answers. For looks after a first one that went well."""
    until = desk.now() + PATIENCE_S
    while True:
        try:
            return look()
        except AwsError as problem:
            if not problem.retryable or desk.now() >= until:
                raise
            desk.say(f"{problem.message}; looking again")
        desk.pause(desk.options.every)
