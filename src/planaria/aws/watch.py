"""`status`, `list`, `hosts`, `wait`, `logs`: look at jobs. Nothing here changes anything."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from planaria.aws.desk import Desk
from planaria.aws.names import Names
from planaria.aws.seen import is_missing
from planaria.aws.status import (
    DONE,
    FAILED,
    Idle,
    group_rows,
    job_data,
    job_rows,
    state_of,
    table,
    what_next,
)
from planaria.aws.steps import Call
from planaria.aws.survey import see, see_all
from planaria.aws.tail import Tail, is_of_rank
from planaria.aws.waiting import await_job, patiently
from planaria.contract import exit_status
from planaria.errors import AwsError, UsageError


def list_jobs(desk: Desk) -> int:
    """Print all jobs of the region."""
    jobs = see_all(desk.cloud)
    desk.answer(table(job_rows(jobs)), [job_data(job) for job in jobs])
    return 0


def status(desk: Desk) -> int:
    """Print one job."""
    job = see(desk.cloud, desk.options.job)
    text = table(job_rows([job])) + "\n" + table(group_rows(job))
    if job.result is not None and job.result.reason:
        text += f"\n{job.result.reason} ({job.result.host}, {job.result.ended})\n"
    desk.answer(text, job_data(job))
    return 0


def hosts(desk: Desk) -> int:
    """Print the hosts of a job with their addresses, at once: a job without hosts has an empty table."""
    job = see(desk.cloud, desk.options.job)
    members = [(group.name, member) for group in (job.worker, job.store) if group for member in group.members]
    found = _instances(desk, sorted({group for group, _ in members}))
    data = [
        {
            "group": group,
            "instance": member.instance,
            "state": member.state,
            "type": member.kind or str(found.get(member.instance, {}).get("InstanceType", "")),
            "market": str(found.get(member.instance, {}).get("InstanceLifecycle", "on-demand")),
            "zone": member.zone,
            "address": str(found.get(member.instance, {}).get("PrivateIpAddress", "-")),
        }
        for group, member in members
    ]
    names = ("group", "instance", "state", "type", "market", "zone", "address")
    desk.answer(table([[name.upper() for name in names], *([row[name] for name in names] for row in data)]), data)
    return 0


def _instances(desk: Desk, groups: list[str]) -> dict[str, dict[str, object]]:
    """Return the instances of groups by their ids. One that went meanwhile is not among them, and that is no error."""
    if not groups:
        return {}
    request = {"Filters": [{"Name": "tag:aws:autoscaling:groupName", "Values": groups}]}
    reservations = desk.cloud.pages(Call("ec2", "describe_instances", request), "Reservations")
    return {instance["InstanceId"]: instance for reservation in reservations for instance in reservation["Instances"]}


def wait(desk: Desk) -> int:
    """Wait for a job's end; return its status."""
    until = None if desk.options.for_s is None else desk.now() + desk.options.for_s
    idle = Idle()
    job = await_job(desk, lambda job: job.result is not None or idle.is_so(job, desk.now()), until=until)
    if job is None:
        desk.say(f"job {desk.options.job} has not ended within {desk.options.for_s:g} s")
        return exit_status.NO_ROUND
    if job.result is None:
        raise UsageError(
            f"job {job.job!r} is {state_of(job)} and has no result",
            hint=what_next(job),
        )
    desk.answer(f"job {job.job} has ended with status {job.result.status}\n", job_data(job))
    return job.result.status


def logs(desk: Desk) -> int:
    """Print what the workers of a run print; with `-f` until the run has ended, or nothing more comes of it by itself."""
    options = desk.options
    run = options.run or see(desk.cloud, options.job).run
    tail, idle = Tail(), Idle()
    over = not options.follow or _is_over(desk, run, idle)  # looked at first, so that its last lines are not missed
    _show_new(desk, run, tail)
    while not over:
        desk.pause(options.every)
        over = patiently(desk, lambda: _is_over(desk, run, idle))
        patiently(desk, lambda: _show_new(desk, run, tail))
    return 0


def _is_over(desk: Desk, run: str, idle: Idle) -> bool:
    try:
        job = see(desk.cloud, desk.options.job)
    except UsageError:  # it was removed meanwhile
        return True
    if job.run != run or state_of(job) in (DONE, FAILED):
        return True
    if idle.is_so(job, desk.now()):
        desk.say(f"job {job.job} is {state_of(job)}: {what_next(job)}")
        return True
    return False


def _show_new(desk: Desk, run: str, tail: Tail) -> None:
    group = Names(desk.options.job).log_group
    request = {"logGroupName": group, "logStreamNamePrefix": f"{run}/", "interleaved": True, **tail.start()}
    rank = desk.options.rank
    for event in _events(desk, Call("logs", "filter_log_events", request)):
        message = str(event["message"]).rstrip("\n")
        if not tail.is_new(event) or (rank is not None and not is_of_rank(message, rank)):
            continue
        desk.show(
            json.dumps({"stream": event["logStreamName"], "message": message}) + "\n"
            if desk.options.json
            else message + "\n"
        )


def _events(desk: Desk, call: Call) -> Iterator[Mapping[str, object]]:
    try:
        yield from desk.cloud.pages(call, "events")
    except AwsError as problem:
        if not is_missing(problem.code, problem.detail):
            raise
        raise UsageError(f"there are no logs of job {desk.options.job!r} any more") from problem
