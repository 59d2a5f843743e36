"""Read a specs file: which instances, disks, networks and images a job's hosts are made of. Pure.

`FIELDS` is the one list of what may stand there; the JSON schema and `docs/aws.md` are held against it by tests. Every
mistake in a file is told at once, each in one sentence that begins with the field's path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from planaria.aws.fields import (
    BOTH,
    FIELDS,
    PLACEHOLDER,
    REPLACED,
    TOP_FIELDS,
    WORKER,
    Field,
)
from planaria.aws.launching import problem_of
from planaria.errors import UsageError

Accelerator = Literal["none", "gpu"]

ETCD = "https://github.com/etcd-io/etcd/releases/download/v3.5.21/etcd-v3.5.21-linux-{arch}.tar.gz"
ETCD_SHA256 = {
    "amd64": "adddda4b06718e68671ffabff2f8cee48488ba61ad82900e639d108f2148501c",
    "arm64": "95bf6918623a097c0385b96f139d90248614485e781ec9bee4768dbb6c79c53f",
}
# AWS keeps the newest image's id under these names. The one with GPU drivers also has docker and NVIDIA's runtime for it.
PLAIN_IMAGE = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{arch}"
GPU_IMAGE = "/aws/service/deeplearning/ami/{arch}/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id"

_ARM = re.compile(r"(a1|[a-z]+\d+g[a-z]*|p\d+e-gb\d+)\.")
_GPU = re.compile(r"(?!g4ad)(g|gr|p)\d")  # g4ad has others, without CUDA
_OLD_GPU = re.compile(r"(g[23]s?|p[23](dn)?)\.")  # of before 2018, which NVIDIA's open driver does not know
_ECR = re.compile(
    r"(\d{12})\.dkr\.ecr(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/([^:@]+)(?::([\w.-]+))?(?:@(sha256:[0-9a-f]{64}))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What one kind of host is made of."""

    instance_type: str
    accelerator: Accelerator
    instance_role: str
    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]
    key_pair: str | None
    ebs_volume_gb: int
    image_id: str | None
    image_parameter: str

    @property
    def arch(self) -> Literal["x86_64", "arm64"]:
        """Return the instruction set, as image parameters spell it."""
        return arch_of(self.instance_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker(Host):
    """Hosts that run the job's container."""

    docker_image: str
    s3_bucket: str
    s3_prefix: str
    efs_file_system_id: str | None
    max_spot_price: str | None
    instance_types: tuple[str, ...]
    on_demand_base: int
    shm_gb: int | None
    launch_flags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(Host):
    """The host that runs etcd."""

    etcd_url: str
    etcd_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Specs:
    """A whole specs file, checked."""

    worker: Worker
    rdzv: Store | None
    region: str | None
    log_retention_days: int
    warnings: tuple[str, ...] = ()


def read_specs(data: object) -> Specs:
    """Return what a specs file says.

    Raises:
        UsageError: One sentence for each field that is wrong, missing or unknown.
    """
    problems: list[str] = []
    top = _section("", data, TOP_FIELDS, problems)
    worker, rdzv = (
        # What is no object was told above.
        _section(name, top[name], FIELDS[BOTH] + FIELDS[name], problems) if isinstance(top.get(name), Mapping) else {}
        for name in (WORKER, "rdzv")
    )
    if not problems:
        problems += _across("worker", worker) + (_across("rdzv", rdzv) if rdzv else [])
    if problems:
        raise UsageError("\n".join(problems))
    make: Callable[..., Specs] = Specs  # the fields were checked above, one by one
    return make(
        worker=_worker(worker),
        rdzv=_store(rdzv) if rdzv else None,
        region=top["region"],
        log_retention_days=top["log_retention_days"],
        warnings=tuple(_warnings("worker", worker) + (_warnings("rdzv", rdzv) if rdzv else [])),
    )


@dataclass(frozen=True, slots=True)
class Registered:
    """An image in a registry of AWS."""

    account: str
    region: str
    repository: str
    tag: str | None
    digest: str | None


def registered(docker_image: str) -> Registered | None:
    """Return where in ECR an image is; None where it is elsewhere."""
    found = _ECR.fullmatch(docker_image)
    if found is None:
        return None
    account, region, repository, tag, digest = found.groups()
    return Registered(account, region, repository, None if digest else tag or "latest", digest)


def arch_of(instance_type: str) -> Literal["x86_64", "arm64"]:
    """Return the instruction set of an instance type, which its name tells."""
    return "arm64" if _ARM.match(instance_type) else "x86_64"


def has_gpus(instance_type: str) -> bool:
    """Tell whether an instance type has NVIDIA GPUs: the families g and p have, whatever their generation."""
    return bool(_GPU.match(instance_type))


def _section(path: str, data: object, fields: tuple[Field, ...], problems: list[str]) -> dict[str, object]:
    """Return a section with defaults filled in; what is wrong with it goes to `problems`."""
    name = path or "the specs file"
    if not isinstance(data, Mapping):
        what = "is missing" if data is None else f"is {_kind(data)}"
        problems.append(f"{name} {what}, expected an object with {', '.join(f.name for f in fields if f.required)}")
        return {}
    known = {field.name: field for field in fields}
    strange = [str(key) for key in data if key not in known and not str(key).startswith("//")]
    problems.extend(_unknown(path, key, list(known)) for key in strange)
    found: dict[str, object] = {}
    for field in fields:
        value = data.get(field.name)
        found[field.name] = field.default if value is None else value
        problem = _problem(field, data, f"{path}.{field.name}".lstrip("."))
        if problem:
            problems.append(problem)
    return found


def _problem(field: Field, data: Mapping[str, object], path: str) -> str | None:
    value = data.get(field.name)
    if value is None:
        return f"{path} is missing, expected {field.expected}" if field.required else None
    if not isinstance(value, Mapping) and PLACEHOLDER in str(value):
        return f"{path} still has the sample's {PLACEHOLDER}…>, expected {field.expected}"
    return None if field.check(value) else f"{path} is {_shown(value)}, expected {field.expected}"


def _unknown(path: str, key: str, known: list[str]) -> str:
    where = f"{path}.{key}".lstrip(".")
    if key in REPLACED:
        return f"{where} is not a field any more: {REPLACED[key]}"
    near = get_close_matches(key, known, n=1)
    return f"{where} is unknown, " + (f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}")


def _across(path: str, section: Mapping[str, object]) -> list[str]:
    """Return what is wrong between fields that are each right by themselves."""
    kind, accelerator = str(section["instance_type"]), section["accelerator"]
    problems = []
    if accelerator == "gpu" and not has_gpus(kind):
        problems.append(f"{path}.accelerator is 'gpu', expected 'none' for {kind}, which has no NVIDIA GPU")
    problems.extend(
        f"{path}.instance_types has {other!r}, expected types that can stand in for {kind}: "
        "the same instruction set, and GPUs or not"
        for other in _list(section.get("instance_types"))
        if arch_of(other) != arch_of(kind) or has_gpus(other) != has_gpus(kind)
    )
    problems.extend(
        f"{path}.{field} is only for spot instances, expected max_spot_price beside it"
        for field in ("instance_types", "on_demand_base")
        if section.get(field) and section.get("max_spot_price") is None
    )
    problems.extend(
        f"{path}.launch_flags {problem}"
        for flag in _list(section.get("launch_flags"))
        if (problem := problem_of(flag)) is not None
    )
    if (section.get("etcd_url") is None) != (section.get("etcd_sha256") is None):
        problems.append(f"{path}.etcd_url and {path}.etcd_sha256 go together, expected both or neither")
    return problems


def _warnings(path: str, section: Mapping[str, object]) -> list[str]:
    kind = str(section["instance_type"])
    if section["accelerator"] == "gpu":
        is_chosen = section["image_id"] or section["image_parameter"]
        what = "which the drivers of AWS's image do not know: name an image with older ones as image_id"
        return [f"{path}.instance_type {kind} has old GPUs, {what}"] if _OLD_GPU.match(kind) and not is_chosen else []
    if not has_gpus(kind):
        return []
    what = "the image has no drivers, and the job will use the CPU only"
    return [f"{path}.accelerator is 'none' though {kind} has GPUs: {what}"]


def _host(section: Mapping[str, object]) -> dict[str, object]:
    kind = str(section["instance_type"])
    template = GPU_IMAGE if section["accelerator"] == "gpu" else PLAIN_IMAGE
    return {
        "instance_type": kind,
        "accelerator": section["accelerator"],
        "instance_role": section["instance_role"],
        "subnets": _list(section["subnets"]),
        "security_groups": _list(section["security_groups"]),
        "key_pair": section["key_pair"],
        "ebs_volume_gb": section["ebs_volume_gb"],
        "image_id": section["image_id"],
        "image_parameter": section["image_parameter"] or template.format(arch=arch_of(kind)),
    }


def _worker(section: Mapping[str, object]) -> Worker:
    price = section["max_spot_price"]
    make: Callable[..., Worker] = Worker
    return make(
        **_host(section),
        docker_image=section["docker_image"],
        s3_bucket=section["s3_bucket"],
        s3_prefix=str(section["s3_prefix"]).strip("/"),
        efs_file_system_id=section["efs_file_system_id"],
        max_spot_price=price if price is None or isinstance(price, str) else f"{price:.6f}".rstrip("0").rstrip("."),
        instance_types=_list(section["instance_types"]),
        on_demand_base=section["on_demand_base"],
        shm_gb=section["shm_gb"],
        launch_flags=_list(section["launch_flags"]),
    )


def _store(section: Mapping[str, object]) -> Store:
    arch = "arm64" if arch_of(str(section["instance_type"])) == "arm64" else "amd64"
    make: Callable[..., Store] = Store
    return make(
        **_host(section),
        etcd_url=section["etcd_url"] or ETCD.format(arch=arch),
        etcd_sha256=section["etcd_sha256"] or ETCD_SHA256[arch],
    )


def _list(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, (list, tuple)) else ()


def _kind(value: object) -> str:
    names = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list"}
    return names.get(type(value), "an object")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
