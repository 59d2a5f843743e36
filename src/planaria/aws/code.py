"""What a job runs, as the user named it: pack what is here, pin what is in S3, leave alone what is in the container."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, replace

from planaria.aws.names import Place
from planaria.aws.plan import Code
from planaria.aws.session import Cloud
from planaria.aws.specs import Specs, read_specs
from planaria.aws.steps import File
from planaria.base.usage import quoted
from planaria.errors import CodeRefused, UsageError
from planaria.ship.limits import PACKED, mib
from planaria.ship.pack import digest_of, pack, told
from planaria.ship.source import ARCHIVES, Inside, Local, Stored, check_kind, check_script, source_of

_SPECS_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Shipped:
    """Where a job's code is, and what has to be uploaded for it."""

    source: str
    sha256: str | None
    script: str | None
    code: Code | None
    notes: tuple[str, ...] = ()


def load_specs(path: str) -> Specs:
    """Return a specs file, checked.

    Raises:
        UsageError: It cannot be read, is no JSON, or has wrong fields.
    """
    try:
        with open(path, encoding="utf-8") as file:
            data = json.loads(file.read(_SPECS_BYTES))
    except OSError as problem:
        raise UsageError(f"--specs_file {quoted(path)}: {problem.strerror}") from problem
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"--specs_file {quoted(path)} is no JSON: {problem}") from problem
    try:
        return read_specs(data)
    except UsageError as problem:
        raise UsageError(
            f"--specs_file {quoted(path)}: {problem.message}", hint="docs/aws.md has every field"
        ) from problem


def ship(text: str, script: str | None, place: Place, job: str, folder: str, *, inside: bool) -> Shipped:
    """Return what is to be run and uploaded; an archive that has to be made for it goes into `folder`. Asks nothing of AWS.

    Raises:
        UsageError: There is no such script or directory, or it cannot be shipped.
    """
    source = source_of(text, inside=inside)
    if isinstance(source, Inside):
        return Shipped(source.path, None, check_script(source, None, script), None)
    if isinstance(source, Stored):
        return Shipped(source.url, None, check_script(source, False, script), None)
    return _ship_local(source, script, place, job, folder)


def ship_whole(text: str, place: Place, folder: str) -> Shipped:
    """Return what is to be uploaded of a script, or of a directory whatever script is run in it later."""
    source = source_of(text)
    if not isinstance(source, Local):
        raise UsageError(f"the source {quoted(text)} is in S3 already, expected a script or a directory here")
    _check_there(source.path)
    return _packed(source, None, place, "uploads", folder)


def _ship_local(source: Local, script: str | None, place: Place, job: str, folder: str) -> Shipped:
    _check_there(source.path)
    return _packed(source, check_script(source, os.path.isdir(source.path), script), place, job, folder)


def _check_there(path: str) -> None:
    if not os.path.exists(path):
        raise UsageError(
            f"there is no script or directory {quoted(path)} here",
            hint="for a path in the container add --no_upload",
        )
    if not os.path.isdir(path) and not os.path.isfile(path):  # a pipe or a device: reading it may never end
        raise UsageError(f"{quoted(path)} is not a regular file", hint="name a script, an archive or a directory")


def _packed(source: Local, script: str | None, place: Place, job: str, folder: str) -> Shipped:
    if os.path.isdir(source.path):
        path, ending = os.path.join(folder, "code.tar.gz"), ".tar.gz"
        packed = pack(source.path, path, script=script)
        file, notes = File(path, packed.packed_bytes, packed.sha256), tuple(told(packed.left_out))
    else:
        file, notes = _as_it_is(source.path), ()
        ending = next((known for known in ARCHIVES if source.path.lower().endswith(known)), ".py")
    key = place.key(job, "code", f"{file.sha256}{ending}")
    return Shipped(f"s3://{place.bucket}/{key}", file.sha256, script, Code(key, file), notes)


def _as_it_is(path: str) -> File:
    """Return a script, or an archive that somebody else packed."""
    check_kind(path)
    size_bytes = os.path.getsize(path)
    if size_bytes > PACKED.total_bytes:
        raise CodeRefused(
            f"{quoted(path)} has {mib(size_bytes)}, and {mib(PACKED.total_bytes)} are taken",
            hint="data belongs on EFS or in S3; an archive of your own may be in S3 already, named by its s3:// address",
        )
    return File(path, size_bytes, digest_of(path))


def pin(shipped: Shipped, cloud: Cloud) -> Shipped:
    """Return code in S3 with the hash that it has now: whoever changes it later changes no job that was submitted.

    Raises:
        UsageError: There is no such object.
    """
    source = source_of(shipped.source, inside=True)
    if shipped.code is not None or not isinstance(source, Stored):
        return shipped
    digest = hashlib.sha256()
    if not cloud.read(source.bucket, source.key, digest.update):
        raise UsageError(f"there is no object {quoted(shipped.source)}")
    return replace(shipped, sha256=digest.hexdigest())
