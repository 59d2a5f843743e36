"""What a plan is made of: calls of the AWS API with how to see that they are done and how to take them back. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a step makes."""

    CLAIM = "claim"  # the SSM parameter with the token; it can be made once, so who made it has the job's name
    LOG_GROUP = "log group"
    RETENTION = "log retention"
    CODE = "code"
    DESCRIPTION = "description"
    TEMPLATE = "launch template"
    GROUP = "auto scaling group"


# What may be there before a run and stay after it: logs of earlier runs, and code that is named by its hash.
SHARED = frozenset({Kind.LOG_GROUP, Kind.RETENTION, Kind.CODE})


@dataclass(frozen=True, slots=True)
class Call:
    """One call, as boto3 spells it."""

    service: str
    method: str
    request: Mapping[str, object]

    def __str__(self) -> str:
        return f"{self.service}.{self.method}"


@dataclass(frozen=True, slots=True)
class Token:
    """Stands in a request for the job's token, which is made when the plan is carried out and never shown."""


@dataclass(frozen=True, slots=True)
class AsStarted:
    """Stands in a request for the smallest size the job was started for, where nobody has asked AWS which that is."""


@dataclass(frozen=True, slots=True)
class File:
    """Stands in a request for a file's content, which is named by its hash: what has another by then is not sent."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Script:
    """Stands in a request for user data. The API wants base64, people want to read it."""

    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to be made."""

    kind: Kind
    name: str
    do: Call
    look: Call | None  # None: to be done each time, since it can be done twice
    undo: Call | None  # None: what another step takes back takes this back too, or it is a size


ANY_RUN = "any"  # in the place of a run's name: whichever has the job's name now


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything one command changes, in order."""

    job: str  # empty where it is about none, as an upload
    run: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look at one thing found."""

    there: bool
    run: str | None = None  # whose it is, where its tags say so
    job: str | None = None
    going: bool = False  # it is being deleted
    hosts: int = 0  # of a group
