"""What AWS holds of our jobs, as values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from planaria.aws.names import (
    EXPIRES_TAG,
    JOB_TAG,
    NODES_TAG,
    OWNER_TAG,
    PLACE_TAG,
    RUN_TAG,
    Place,
    mappings,
    place_of,
    tags_of,
)
from planaria.base.text import safe_line

IN_SERVICE = "InService"


@dataclass(frozen=True, slots=True)
class Member:
    """An instance of a group."""

    instance: str
    state: str
    health: str
    zone: str
    kind: str


@dataclass(frozen=True, slots=True)
class Group:
    """An auto scaling group of ours."""

    name: str
    low: int
    wanted: int
    high: int
    members: tuple[Member, ...]
    tags: Mapping[str, str]
    going: bool = False

    @property
    def in_service(self) -> int:
        """Return how many hosts work."""
        return sum(member.state == IN_SERVICE for member in self.members)


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended, as its first host to know wrote it down."""

    status: int
    reason: str
    ended: str
    host: str


@dataclass(frozen=True, slots=True)
class JobSeen:
    """Everything that was found under one job's name."""

    job: str
    claim: Mapping[str, str] | None = None  # its tags
    worker: Group | None = None
    store: Group | None = None
    result: Result | None = None
    orphan_tags: Mapping[str, str] = field(default_factory=dict)  # of a launch template, where there is nothing better

    @property
    def tags(self) -> Mapping[str, str]:
        """Return the tags that say most."""
        if self.claim is not None:
            return self.claim
        group = self.worker or self.store
        return self.orphan_tags if group is None else group.tags

    @property
    def run(self) -> str:
        """Return the name of the run."""
        return self.tags.get(RUN_TAG, "")

    @property
    def owner(self) -> str:
        """Return whose it is."""
        return self.tags.get(OWNER_TAG, "")

    @property
    def expires(self) -> str:
        """Return from when on `gc` may end it."""
        return self.tags.get(EXPIRES_TAG, "")

    @property
    def place(self) -> Place | None:
        """Return where its files are."""
        text = self.tags.get(PLACE_TAG)
        return None if text is None else place_of(text)

    @property
    def nodes(self) -> tuple[int, int] | None:
        """Return the smallest and largest number of nodes the job was started for."""
        text = self.worker.tags.get(NODES_TAG, "") if self.worker else ""
        low, _, high = text.partition(":")
        return (int(low), int(high)) if low.isdigit() and high.isdigit() else None


def group_of(answer: Mapping[str, object]) -> Group:
    """Return a group as the API describes it."""
    return Group(
        name=str(answer["AutoScalingGroupName"]),
        low=_int(answer.get("MinSize")),
        wanted=_int(answer.get("DesiredCapacity")),
        high=_int(answer.get("MaxSize")),
        members=tuple(_member(item) for item in mappings(answer.get("Instances"))),
        tags=tags_of(answer.get("Tags")),
        going="Status" in answer,
    )


def _member(answer: Mapping[str, object]) -> Member:
    return Member(
        instance=str(answer.get("InstanceId", "")),
        state=str(answer.get("LifecycleState", "")),
        health=str(answer.get("HealthStatus", "")),
        zone=str(answer.get("AvailabilityZone", "")),
        kind=str(answer.get("InstanceType", "")),
    )


def result_of(data: object) -> Result | None:
    """Return a result file's content, safe to print whoever wrote it; None where it is none."""
    if not isinstance(data, Mapping) or not isinstance(data.get("status"), int):
        return None
    return Result(
        status=data["status"],
        reason=safe_line(str(data.get("reason", ""))),
        ended=safe_line(str(data.get("recorded_at", ""))),
        host=safe_line(str(data.get("instance", ""))),
    )


def jobs_of(
    groups: list[Mapping[str, object]], templates: list[Mapping[str, object]], claims: Mapping[str, Mapping[str, str]]
) -> dict[str, JobSeen]:
    """Return what was found, by job: groups and launch templates by their tags, claims by their names."""
    found: dict[str, JobSeen] = {job: JobSeen(job, claim=tags) for job, tags in claims.items()}
    for answer in groups:
        group = group_of(answer)
        job = group.tags.get(JOB_TAG, "")
        if job:
            before = found.get(job, JobSeen(job))
            is_worker = group.name.endswith("_worker")
            found[job] = replace(before, worker=group) if is_worker else replace(before, store=group)
    for template in templates:
        tags = tags_of(template.get("Tags"))
        job = tags.get(JOB_TAG, "")
        if job:
            found[job] = replace(found.get(job, JobSeen(job)), orphan_tags=tags)
    return found


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
