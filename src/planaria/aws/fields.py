"""Every field of a specs file: its name, what it may hold, and what stands in for it when it is left out. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

BOTH = "both"  # fields of `rdzv` and of `worker`
WORKER = "worker"
REGION = "an AWS region such as us-west-2"
PLACEHOLDER = "<YOUR "  # as in the sample file


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `expected` ends the sentence that refuses a wrong value."""

    name: str
    expected: str
    check: Callable[[object], bool]
    required: bool = False
    default: object = None


def _text(pattern: str, longest: int = 255) -> Callable[[object], bool]:
    whole = re.compile(pattern, re.ASCII)
    return lambda value: isinstance(value, str) and len(value) <= longest and bool(whole.fullmatch(value))


def _texts(pattern: str, *, least: int = 0) -> Callable[[object], bool]:
    one = _text(pattern)
    return lambda value: isinstance(value, list) and len(value) >= least and all(one(item) for item in value)


def _whole(low: int, high: int) -> Callable[[object], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _price(value: object) -> bool:
    if isinstance(value, str):
        return bool(re.fullmatch(_PRICE, value, re.ASCII)) and float(value) > 0
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 1e-6 <= value < 10_000


def _bucket(value: object) -> bool:
    return _text(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")(value) and ".." not in str(value)


# Segments one by one: a pattern that can split one text in many ways takes for ever to refuse it. With the bucket it has
# to fit into the 256 letters of a tag. Some programs take the segments . and .. away.
PREFIX = r"(?!(?:.*/)?\.\.?(?:/|$))/?(?:[\w.-]+(?:/[\w.-]+)*/?)?"
is_region = _text(r"[a-z]{2,4}(-[a-z]+)+-\d")
_PRICE = r"\d{1,4}(\.\d{1,6})?"
_RETENTIONS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653)
_TYPE = r"[a-z][a-z0-9-]*\.[a-z0-9-]+"

TOP_FIELDS: tuple[Field, ...] = (
    Field("worker", "an object", lambda value: isinstance(value, Mapping), required=True),
    Field("rdzv", "an object, or nothing: then the agents hold the store", lambda value: isinstance(value, Mapping)),
    Field("region", REGION, is_region),
    Field(
        "log_retention_days",
        f"a number of days that CloudWatch knows, one of {', '.join(map(str, _RETENTIONS))}",
        lambda value: type(value) is int and value in _RETENTIONS,
        default=30,
    ),
)

FIELDS: Mapping[str, tuple[Field, ...]] = {
    BOTH: (
        Field("instance_type", "an EC2 instance type such as m5.large", _text(_TYPE), required=True),
        Field("accelerator", "'none' or 'gpu'", lambda value: value in ("none", "gpu"), default="none"),
        Field(
            "instance_role",
            "the name or the ARN of an instance profile",
            _text(r"[\w+=,.@-]{1,128}|arn:[a-z-]+:iam::\d{12}:instance-profile/[\w+=,.@/-]+"),
            required=True,
        ),
        Field(
            "subnets", "a list of subnet ids such as subnet-0a1b2c3d", _texts(r"subnet-[0-9a-f]{8,17}", least=1), True
        ),
        Field(
            "security_groups",
            "a list of security group ids such as sg-0a1b2c3d",
            _texts(r"sg-[0-9a-f]{8,17}", least=1),
            required=True,
        ),
        Field("key_pair", "the name of an EC2 key pair", _text(r"[\x20-\x7e]+")),
        Field("ebs_volume_gb", "a number from 8 to 16384", _whole(8, 16_384), default=128),
        Field("image_id", "an image id such as ami-0a1b2c3d", _text(r"ami-[0-9a-f]{8,17}")),
        Field("image_parameter", "the name of an SSM parameter that holds an image id", _text(r"/[\w./-]+", 2048)),
    ),
    WORKER: (
        Field("docker_image", "the name of an image, with its tag or digest", _text(r"[\w][\w./:@-]*"), required=True),
        Field("s3_bucket", "the name of a bucket", _bucket, required=True),
        Field("s3_prefix", "a key prefix of letters, digits and ._-/", _text(PREFIX, 180), default="planaria"),
        Field("efs_file_system_id", "an EFS volume's id such as fs-0a1b2c3d", _text(r"fs-[0-9a-f]{8,40}")),
        Field("max_spot_price", "dollars an hour, such as 0.75", _price),
        Field("instance_types", "a list of further instance types for spot", _texts(_TYPE), default=()),
        Field("on_demand_base", "a number of hosts, at least 0", _whole(0, 10_000), default=0),
        Field("shm_gb", "a number of gigabytes, at least 1", _whole(1, 100_000)),
        Field(
            "launch_flags",
            "a list of flags of planaria run, each with its value in one text, such as --nproc-per-node=8",
            _texts(r"-[^\x00]*"),
            default=(),
        ),
    ),
    "rdzv": (
        Field(
            "etcd_url", "the http or https address of a release archive of etcd", _text(r"https?://[^\s'\"\\$`]+", 2048)
        ),
        Field("etcd_sha256", "that archive's SHA-256, 64 hexadecimal digits", _text(r"[0-9a-f]{64}")),
    ),
}

REPLACED: Mapping[str, str] = {
    "user_data_template": "boot scripts belong to petctl and are the same for everybody",
}
