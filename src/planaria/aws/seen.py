"""Read what the API answers to a look at one thing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from planaria.aws.names import JOB_TAG, RUN_TAG, mappings, tags_of
from planaria.aws.steps import Kind, Seen
from planaria.ship.refusals import MISSING_OBJECT

# How each service says that there is nothing of this name.
MISSING = frozenset(
    {
        "InvalidResourceId",
        "ParameterNotFound",
        "ResourceNotFoundException",
        "NoSuchBucket",
        *MISSING_OBJECT,
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidLaunchTemplateId.NotFound",
    }
)
_GROUP_MISSING = "not found"  # auto scaling has one code, ValidationError, for everything


def is_missing(code: str, message: str) -> bool:
    """Tell whether an error says that what was asked for is not there."""
    return code in MISSING or (code == "ValidationError" and _GROUP_MISSING in message.lower())


def seen(kind: Kind, answer: Mapping[str, object]) -> Seen:
    """Return what an answer without an error says."""
    match kind:
        case Kind.CLAIM:
            return _by_tags(tags_of(answer.get("TagList")))
        case Kind.LOG_GROUP:
            tags = answer.get("tags")
            return _by_tags({str(k): str(v) for k, v in tags.items()} if isinstance(tags, Mapping) else {})
        case Kind.CODE | Kind.DESCRIPTION:
            return _by_tags(tags_of(answer.get("TagSet")))
        case Kind.TEMPLATE:
            found = mappings(answer.get("LaunchTemplates"))
            return _by_tags(tags_of(found[0].get("Tags"))) if found else Seen(False)
        case Kind.GROUP:
            found = mappings(answer.get("AutoScalingGroups"))
            return _group(found[0]) if found else Seen(False)
        case _:
            raise AssertionError(f"nobody looks at {kind}")


def _group(group: Mapping[str, object]) -> Seen:
    hosts = len(mappings(group.get("Instances")))
    return replace(_by_tags(tags_of(group.get("Tags"))), going="Status" in group, hosts=hosts)


def _by_tags(tags: Mapping[str, str]) -> Seen:
    return Seen(True, tags.get(RUN_TAG), tags.get(JOB_TAG))
