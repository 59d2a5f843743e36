"""Ask AWS what it holds of our jobs. It only reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from planaria.aws.model import JobSeen, Result, jobs_of, result_of
from planaria.aws.names import JOB_TAG, RUN_TAG, TOKEN_PREFIX, Names, tags_of
from planaria.aws.plan import look_at
from planaria.aws.session import Cloud
from planaria.aws.specs import Host
from planaria.aws.steps import Call, Kind
from planaria.errors import AwsError, UsageError
from planaria.ship.refusals import is_denied

_TAGGED = [{"Name": "tag-key", "Values": [JOB_TAG]}]


def see_all(cloud: Cloud) -> list[JobSeen]:
    """Return every job of this region of which anything is left, by name."""
    groups = list(
        cloud.pages(Call("autoscaling", "describe_auto_scaling_groups", {"Filters": _TAGGED}), "AutoScalingGroups")
    )
    templates = list(cloud.pages(Call("ec2", "describe_launch_templates", {"Filters": _TAGGED}), "LaunchTemplates"))
    path = [{"Key": "Path", "Option": "Recursive", "Values": [TOKEN_PREFIX.rstrip("/")]}]
    listed = cloud.pages(Call("ssm", "describe_parameters", {"ParameterFilters": path}), "Parameters")
    claims: dict[str, Mapping[str, str]] = {}
    for parameter in list(listed):
        job, _, last = str(parameter["Name"]).removeprefix(TOKEN_PREFIX).partition("/")
        tags = _claim_tags(cloud, Names(job)) if last == "token" else None
        if tags is not None:
            claims[job] = tags
    found = jobs_of(groups, templates, claims)
    return [_with_result_if_allowed(found[job], cloud) for job in sorted(found)]


def is_claimed(cloud: Cloud, job: JobSeen) -> bool:
    """Tell whether a job's run has its claim. It is asked for by its name: a list of everything may lag behind."""
    tags = _claim_tags(cloud, Names(job.job))
    return tags is not None and tags.get(RUN_TAG) == job.run


def see(cloud: Cloud, job: str) -> JobSeen:
    """Return what is there of one job.

    Raises:
        UsageError: There is nothing.
    """
    found = look_for(cloud, job)
    if found is None:
        raise nobody(job, cloud)
    return found


def nobody(job: str, cloud: Cloud) -> UsageError:
    """Return the error of whoever asks for a job that is not there."""
    return UsageError(f"there is no job {job!r} in {cloud.region}", hint="petctl list shows all jobs of a region")


def look_for(cloud: Cloud, job: str) -> JobSeen | None:
    """Return what is there of one job, or None."""
    names = Names(job)
    wanted = [names.worker_group, names.store_group]
    groups = cloud.call(Call("autoscaling", "describe_auto_scaling_groups", {"AutoScalingGroupNames": wanted}))
    tagged = [*_TAGGED, {"Name": "launch-template-name", "Values": wanted}]
    templates = cloud.call(Call("ec2", "describe_launch_templates", {"Filters": tagged}))
    tags = _claim_tags(cloud, names)
    found = jobs_of(groups["AutoScalingGroups"], templates["LaunchTemplates"], {} if tags is None else {job: tags})
    return _with_result(found[job], cloud) if job in found else None


def _claim_tags(cloud: Cloud, names: Names) -> Mapping[str, str] | None:
    answer = cloud.ask(look_at(Kind.CLAIM, names.token))
    return None if answer is None else tags_of(answer.get("TagList"))


def _with_result(job: JobSeen, cloud: Cloud) -> JobSeen:
    return replace(job, result=read_result(job, cloud))


def _with_result_if_allowed(job: JobSeen, cloud: Cloud) -> JobSeen:
    """Return a job, also one of somebody whose bucket is closed to us: then nobody here knows how it ended."""
    try:
        return _with_result(job, cloud)
    except AwsError as problem:
        if is_denied(problem.code):
            return job
        raise


def image_of(cloud: Cloud, host: Host) -> str | None:
    """Return the image of a host: the one that is named, or what the SSM parameter says now; None where there is none."""
    if host.image_id is not None:
        return host.image_id
    answer = cloud.ask(Call("ssm", "get_parameter", {"Name": host.image_parameter}))
    return None if answer is None else str(answer["Parameter"]["Value"])


def read_result(job: JobSeen, cloud: Cloud) -> Result | None:
    """Return how a job's run ended, or None while it has not."""
    place = job.place
    if place is None or not job.run:
        return None
    content = bytearray()
    if not cloud.read(place.bucket, place.key(job.job, job.run, "result.json"), content.extend):
        return None
    try:
        return result_of(json.loads(content))
    except ValueError:
        return None
