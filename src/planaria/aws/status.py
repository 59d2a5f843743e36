"""Say how jobs are: in one word, in a table, as data. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from planaria.aws.model import IN_SERVICE, Group, JobSeen

ORPHANED = "orphaned"  # the claim is gone and something is left
REMOVING = "being removed"  # AWS deletes a group of it, which takes minutes
INCOMPLETE = "incomplete"  # claimed, and the workers' group was never made
STARTING = "starting"
RUNNING = "running"
DRAINING = "draining"
STOPPED = "stopped"  # at zero hosts without a result: `scale` goes on with it
ENDING = "ending"  # there is a result, and there are hosts
DONE = "done"
FAILED = "failed"

MAKING_S = 120.0  # run_job is done by then, or was killed


def state_of(job: JobSeen) -> str:
    """Return how a job is, in one word."""
    hosts = sum(len(group.members) for group in (job.worker, job.store) if group)
    if job.result is not None:
        if hosts:
            return ENDING
        return DONE if job.result.status == 0 else FAILED
    if any(group.going for group in (job.worker, job.store) if group):
        return REMOVING
    if job.claim is None:
        return ORPHANED
    if job.worker is None:
        return INCOMPLETE
    if job.worker.wanted == 0:
        return DRAINING if job.worker.members else STOPPED
    return RUNNING if job.worker.in_service >= max(job.worker.low, 1) else STARTING


class Idle:
    """Tells whether nothing more comes of a job by itself. One that is incomplete may be being made at this moment."""

    def __init__(self) -> None:
        self._incomplete_at: float | None = None

    def is_so(self, job: JobSeen, now: float) -> bool:
        """Judge what was seen at `now`."""
        state = state_of(job)
        if state != INCOMPLETE:
            self._incomplete_at = None
            return state in (STOPPED, ORPHANED)
        if self._incomplete_at is None:
            self._incomplete_at = now
        return now - self._incomplete_at >= MAKING_S


def what_next(job: JobSeen) -> str:
    """Return what somebody can do about a job of which nothing more comes by itself."""
    ways = {STOPPED: "petctl scale goes on with it", INCOMPLETE: "the same run_job goes on with it"}
    removal = f"petctl kill_job {job.job} removes it"
    way = ways.get(state_of(job))
    return f"{way}, {removal}" if way else removal


def is_expired(job: JobSeen, now: str) -> bool:
    """Tell whether a job's time is over; `now` is UTC in the form of the tag."""
    return bool(job.expires) and job.expires <= now


def is_litter(job: JobSeen, now: str) -> str | None:
    """Return why `gc` removes a job, or None."""
    state = state_of(job)
    if state == ORPHANED:
        return "nothing claims it"
    if state in (DONE, FAILED, ENDING):  # ending it stays, if the hosts' role may not take the groups to zero
        return f"its run has ended with status {job.result.status if job.result else '?'}"
    if is_expired(job, now):
        return f"it expired at {job.expires}"
    return None


def job_data(job: JobSeen) -> dict[str, object]:
    """Return a job for `--json`."""
    return {
        "job": job.job,
        "run": job.run,
        "state": state_of(job),
        "owner": job.owner,
        "expires": job.expires,
        "result": None if job.result is None else asdict(job.result),
        "files": None if job.place is None else f"s3://{job.place.bucket}/{job.place.key(job.job, job.run, '')}",
        "worker": _group_data(job.worker),
        "rdzv": _group_data(job.store),
    }


def _group_data(group: Group | None) -> dict[str, object] | None:
    if group is None:
        return None
    return {
        "group": group.name,
        "min": group.low,
        "desired": group.wanted,
        "max": group.high,
        "in_service": group.in_service,
        "hosts": [asdict(member) for member in group.members],
    }


def job_rows(jobs: Sequence[JobSeen]) -> list[list[str]]:
    """Return the table of `list`."""
    rows = [["JOB", "RUN", "STATE", "HOSTS", "RESULT", "OWNER", "EXPIRES"]]
    for job in jobs:
        hosts = f"{job.worker.in_service}/{job.worker.wanted}" if job.worker else "-"
        result = "-" if job.result is None else str(job.result.status)
        rows.append([job.job, job.run or "-", state_of(job), hosts, result, job.owner or "-", job.expires or "-"])
    return rows


def group_rows(job: JobSeen) -> list[list[str]]:
    """Return the table of `status`: a row for each group."""
    rows = [["GROUP", "MIN", "DESIRED", "MAX", "IN SERVICE", "OTHERS"]]
    for group in (job.worker, job.store):
        if group is not None:
            states = [member.state for member in group.members if member.state != IN_SERVICE]
            others = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states))) or "-"
            numbers = (group.low, group.wanted, group.high, group.in_service)
            rows.append([group.name, *map(str, numbers), others])
    return rows


def progress(job: JobSeen) -> str:
    """Return one line about a job that somebody waits for."""
    parts = [f"{job.job}: {state_of(job)}"]
    if job.worker is not None:
        parts.append(f"{job.worker.in_service} of {job.worker.wanted} hosts in service")
    if job.result is not None:
        parts.append(f"status {job.result.status}" + (f", {job.result.reason}" if job.result.reason else ""))
    return ", ".join(parts)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows in columns, ending in a newline."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines) + "\n"
