"""How everything that belongs to a job is called. Pure: from a job's name alone `kill_job` knows all of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from planaria.aws.hosts import run_key
from planaria.errors import UsageError

JOB_TAG = "planaria:job"
RUN_TAG = "planaria:run"
OWNER_TAG = "planaria:owner"
EXPIRES_TAG = "planaria:expires"
PLAN_TAG = "planaria:plan"  # of the claim: what was to be made; the same command again goes on with it
PLACE_TAG = "planaria:place"  # of the claim and the groups: BUCKET/PREFIX
NODES_TAG = "planaria:nodes"  # of the worker group: MIN:MAX, as the job was started

LOG_PREFIX = "/planaria/"
TOKEN_PREFIX = "/planaria/"  # noqa: S105  where the tokens are, not one of them
RUN_FORMAT = "%Y%m%d-%H%M%S"

# Letters that a group, a launch template, a log group, an SSM parameter, an S3 key and a container all allow.
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Names:
    """What a job's resources are called."""

    job: str

    @property
    def worker_group(self) -> str:
        """Return the name of the workers' auto scaling group and launch template."""
        return f"{self.job}_worker"

    @property
    def store_group(self) -> str:
        """Return the name of etcd's auto scaling group and launch template."""
        return f"{self.job}_rdzv"

    @property
    def token(self) -> str:
        """Return the name of the SSM parameter with the job's token. Who makes it has claimed the job's name."""
        return f"{TOKEN_PREFIX}{self.job}/token"

    @property
    def log_group(self) -> str:
        """Return the name of the log group."""
        return f"{LOG_PREFIX}{self.job}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a job's files are."""

    bucket: str
    prefix: str

    def text(self) -> str:
        """Return the place as its tag has it."""
        return f"{self.bucket}/{self.prefix}"

    def key(self, job: str, run: str, name: str) -> str:
        """Return the key of a file of one run."""
        return run_key(self.prefix, job, run, name)


def place_of(text: str) -> Place:
    """Return the place that a tag names."""
    bucket, _, prefix = text.partition("/")
    return Place(bucket, prefix)


def check_job(name: str) -> str:
    """Return a job's name.

    Raises:
        UsageError: It cannot be the name of all that is called after it.
    """
    if not _JOB.fullmatch(name):
        raise UsageError(
            f"--name is {name!r}, expected 1 to 63 letters, digits, dots, dashes and underscores, the first a letter or digit"
        )
    return name


def check_run(name: str) -> str:
    """Return the name of a run; raise UsageError where it cannot be one."""
    if not _JOB.fullmatch(name):
        raise UsageError(f"--run is {name!r}, expected a run's name as `petctl list` shows it")
    return name


def run_name(now: datetime, noise: str) -> str:
    """Return the name of a new run: when it was submitted, and some noise for two in one second."""
    return f"{now.strftime(RUN_FORMAT)}-{noise}"


def expiry(now: datetime, hours: float) -> str:
    """Return the value of the tag that says from when on `gc` may end the job."""
    return stamp(now + timedelta(hours=hours))


def stamp(now: datetime) -> str:
    """Return a time as that tag has it: of two, the later one sorts behind the other."""
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")


def tags(job: str, run: str, owner: str, expires: str) -> dict[str, str]:
    """Return the tags of everything that is made for one run."""
    return {JOB_TAG: job, RUN_TAG: run, OWNER_TAG: owner, EXPIRES_TAG: expires}


def owner_name(text: str) -> str:
    """Return an owner as a tag's value may have it."""
    return re.sub(r"[^A-Za-z0-9_.:/=+@-]", "-", text)[:128] or "unknown"


def tag_list(values: Mapping[str, str]) -> list[dict[str, str]]:
    """Return tags as most services want them."""
    return [{"Key": key, "Value": value} for key, value in values.items()]


def tags_of(listed: object) -> dict[str, str]:
    """Return tags as most services answer them."""
    return {str(pair["Key"]): str(pair.get("Value", "")) for pair in mappings(listed)}


def mappings(value: object) -> list[Mapping[str, object]]:
    """Return the objects of a list in an answer; an answer without it has none."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []
