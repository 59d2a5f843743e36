"""Make one archive of a directory: the same bytes from the same content, whoever packs it, whenever and in whatever order.

Nothing is shipped unsaid and nothing is left out unsaid: what stays behind comes back with its reason.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import tarfile

from planaria.base.usage import quoted
from planaria.base.value import Value
from planaria.errors import CodeRefused, UsageError
from planaria.ship.ignore import FILE, rules, verdict
from planaria.ship.limits import PACKED, Limits, mib
from planaria.ship.members import leads_out, path_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import IO

    from planaria.ship.ignore import Rule

_VENV_MARK = "pyvenv.cfg"
_SHOWN = 3


class LeftOut(Value):
    """A path that is not shipped, and why."""

    path: str
    why: str


class Packed(Value):
    """An archive, and what is not in it."""

    sha256: str
    packed_bytes: int
    left_out: tuple[LeftOut, ...]


class _Entry(Value):
    path: str
    kind: str
    size: int = 0
    is_program: bool = False
    target: str = ""


def pack(directory: str, archive: str, *, script: str | None = None, limits: Limits = PACKED) -> Packed:
    """Write a .tar.gz of a directory to `archive`; return its hash and what was left out. `script` has to be in it.

    Raises:
        UsageError: The directory cannot be shipped: one sentence about the first thing in the way.
    """
    root = os.path.realpath(directory)
    given = rules(_petignore(root, directory))
    entries: list[_Entry] = []
    left_out: list[LeftOut] = []
    for found in _walk(root, "", given):
        if isinstance(found, LeftOut):
            left_out.append(found)
        else:
            entries.append(found)
    _check(directory, entries, left_out, script, limits)
    with open(archive, "wb") as out:
        sink = _Sink(out)
        written = _write(root, entries, sink)
    if excess := limits.excess(len(entries), written, sink.size_bytes):
        raise CodeRefused(f"the directory {quoted(directory)} has {excess}", hint=f"leave data out by a line in {FILE}")
    return Packed(sink.digest(), sink.size_bytes, tuple(left_out))


def digest_of(path: str) -> str:
    """Return the SHA-256 of a file.

    Raises:
        UsageError: It cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as problem:
        raise UsageError(f"cannot read {quoted(path)}: {problem.strerror}") from problem


def told(left_out: tuple[LeftOut, ...]) -> list[str]:
    """Return a line for each reason why something was left out, with the first few paths."""
    by_reason: dict[str, list[str]] = {}
    for item in left_out:
        by_reason.setdefault(item.why, []).append(item.path)
    lines = []
    for why, paths in by_reason.items():
        more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
        lines.append(f"left out ({why}): {', '.join(quoted(path) for path in paths[:_SHOWN])}{more}")
    return lines


def _petignore(root: str, shown: str) -> str:
    try:
        os.listdir(root)
        with open(os.path.join(root, FILE), encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except FileNotFoundError:
        if os.path.isdir(root):
            return ""
        raise UsageError(f"there is no directory {quoted(shown)}") from None
    except NotADirectoryError:
        raise UsageError(f"{quoted(shown)} is not a directory") from None
    except OSError as problem:
        raise UsageError(f"cannot read {quoted(problem.filename or shown)}: {problem.strerror}") from problem


def _walk(root: str, below: str, given: tuple[Rule, ...]) -> Iterator[_Entry | LeftOut]:
    """Give every path below `root` once, parents first, in the order of their bytes."""
    try:
        found = sorted(os.listdir(os.path.join(root, below)), key=os.fsencode)
    except OSError as problem:
        raise _unreadable(below, problem) from problem
    for name in found:
        path = f"{below}{name}"
        status = os.lstat(os.path.join(root, path))
        is_directory = stat.S_ISDIR(status.st_mode)
        why = _why_not(root, path, is_directory, given)
        if why:
            yield LeftOut(path, why)
        elif is_directory:
            yield _Entry(path_of(path), "directory")
            yield from _walk(root, f"{path}/", given)
        else:
            yield _leaf(root, path, status)


def _why_not(root: str, path: str, is_directory: bool, given: tuple[Rule, ...]) -> str:
    rule = verdict(given, path, is_directory=is_directory)
    if rule is not None:
        return "" if rule.keeps else rule.why
    if is_directory and os.path.lexists(os.path.join(root, path, _VENV_MARK)):
        return "a virtual environment"
    return ""


def _leaf(root: str, path: str, status: os.stat_result) -> _Entry | LeftOut:
    if stat.S_ISREG(status.st_mode):
        return _Entry(path_of(path), "file", status.st_size, bool(status.st_mode & 0o100))
    if stat.S_ISLNK(status.st_mode):
        return _Entry(path_of(path), "link", target=os.readlink(os.path.join(root, path)))
    return LeftOut(path, "neither file, directory nor link")


def _check(directory: str, entries: list[_Entry], left_out: list[LeftOut], script: str | None, limits: Limits) -> None:
    shown = quoted(directory)
    files = [entry for entry in entries if entry.kind == "file"]
    if not files:
        raise CodeRefused(f"the directory {shown} has nothing to ship", hint=_left_out_hint(left_out))
    links = {entry.path: entry.target for entry in entries if entry.kind == "link"}
    for path, target in links.items():
        if leads_out(path, links):
            raise CodeRefused(
                f"{quoted(path)} in {shown} is a link out of the directory, to {quoted(target)}, and leads nowhere on a node",
                hint=f"put a copy in its place, make it relative, or leave it out by a line in {FILE}",
            )
    total = sum(entry.size for entry in files)
    if total > limits.total_bytes or len(entries) > limits.members:
        largest = sorted(files, key=lambda entry: -entry.size)[:_SHOWN]
        raise CodeRefused(
            f"the directory {shown} has {mib(total)} in {len(files):,} files to ship, and {mib(limits.total_bytes)} in"
            f" {limits.members:,} are taken; the largest: "
            + ", ".join(f"{quoted(entry.path)} ({mib(entry.size)})" for entry in largest),
            hint=f"leave data out by a line in {FILE}: it belongs on a volume or in S3",
        )
    if script is not None and script not in {entry.path for entry in entries if entry.kind != "directory"}:
        raise CodeRefused(f"there is no script {quoted(script)} in {shown}", hint=_left_out_hint(left_out, script))


def _left_out_hint(left_out: list[LeftOut], script: str = "") -> str:
    reasons = [item for item in left_out if not script or script == item.path or script.startswith(f"{item.path}/")]
    return "; ".join(f"{quoted(item.path)} is left out: {item.why}" for item in reasons[:_SHOWN])


def _write(root: str, entries: list[_Entry], sink: _Sink) -> int:
    """Write the archive; return how large it is unpacked. Neither time, owner nor order of the disk is in it."""
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=sink, mtime=0) as plain,
        tarfile.open(
            fileobj=plain, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape"
        ) as tar,
    ):
        for entry in entries:
            info = tarfile.TarInfo(entry.path)
            info.mode = 0o755 if entry.kind == "directory" or entry.is_program else 0o644
            if entry.kind == "file":
                _add_file(tar, info, os.path.join(root, entry.path), entry)
                continue
            info.type = tarfile.DIRTYPE if entry.kind == "directory" else tarfile.SYMTYPE
            info.linkname = entry.target
            tar.addfile(info)
        tar.close()
        return plain.tell()


def _add_file(tar: tarfile.TarFile, info: tarfile.TarInfo, path: str, entry: _Entry) -> None:
    info.size = entry.size
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if os.fstat(file.fileno()).st_size != entry.size:
                raise CodeRefused(
                    f"{quoted(entry.path)} changed while it was read", hint="try again when nobody writes"
                )
            tar.addfile(info, file)
    except OSError as problem:
        raise _unreadable(entry.path, problem) from problem


def _unreadable(path: str, problem: OSError) -> UsageError:
    return CodeRefused(
        f"cannot read {quoted(path or '.')}: {problem.strerror or problem}",
        hint=f"make it readable, or leave it out by a line in {FILE}",
    )


class _Sink:
    """A file that is hashed while it is written."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def write(self, content: bytes) -> int:
        """Write all of it."""
        self._hash.update(content)
        self.size_bytes += len(content)
        return self._out.write(content)

    def flush(self) -> None:
        """Do as a file does."""
        self._out.flush()

    def digest(self) -> str:
        """Return the hash of what was written."""
        return self._hash.hexdigest()
