"""Take an archive apart into a fresh folder: whole or not at all, nothing outside of it, and never more than the limits.

The archive is read once, as a stream, and every byte that comes out is counted while it comes: a bomb is refused when it
has filled the limit, not when it has filled the disk. `tarfile` only reads headers here; what is made, we make.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import zlib

from planaria.base.files import remove_tree, write_all
from planaria.base.text import safe_line
from planaria.errors import CodeRefused, FetchFailed
from planaria.ship.limits import UNPACKED, Limits
from planaria.ship.members import Member, Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

    from planaria.ship.members import Kind

_CHUNK_BYTES = 1 << 20
_HEADER_BYTES = 1 << 20  # of one member, extensions included; tarfile keeps them in memory
_GZIP = b"\x1f\x8b"
_DAMAGED = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, OverflowError, RecursionError)


def unpack(archive: str, folder: str, limits: Limits = UNPACKED) -> None:
    """Make `folder`, which is not there yet, with the content of an archive.

    Raises:
        CodeRefused: The archive is damaged, too large, or has a member that must not be made. There is no folder then.
        FetchFailed: The disk did not take it, and there is no folder either.
    """
    draft = f"{folder}.part"
    try:
        os.mkdir(draft, 0o700)
        with open(archive, "rb") as raw:
            _extract(raw, draft, limits)
        os.rename(draft, folder)
    except _DAMAGED as problem:
        remove_tree(draft)
        raise CodeRefused(
            f"the archive is refused: it is damaged, or no .tar.gz or .tar ({safe_line(str(problem), 100)})",
            hint="pack and upload it again",
        ) from problem
    except OSError as problem:
        remove_tree(draft)
        raise FetchFailed(
            f"cannot unpack into {folder}: {problem.strerror}", hint="TMPDIR names another place"
        ) from problem
    except BaseException:
        remove_tree(draft)
        raise


def _extract(raw: IO[bytes], folder: str, limits: Limits) -> None:
    meter = _Meter(raw, limits)
    tree = Tree()
    stream = tarfile.open(fileobj=meter, mode="r|", tarinfo=_Header, encoding="utf-8", errors="surrogateescape")  # type: ignore[call-overload]  # noqa: SIM115  closed below; read() is all it needs
    with stream as tar:
        while (info := tar.next()) is not None:
            tar.members.clear()  # it would keep every header
            member = Member(info.name, _kind(info), info.linkname)
            path = tree.place(member)
            meter.count(len(tree), info.size if member.kind == "file" else 0)
            if path is not None:
                meter.data_follows()
                _make(
                    tar,
                    info,
                    os.path.join(folder, path),
                    os.path.join(folder, tree.original(member)) if info.islnk() else "",
                )
            meter.header_follows()
    meter.drain()
    for path, target in tree.links():
        place = os.path.join(folder, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.symlink(target, place)


def _make(tar: tarfile.TarFile, info: tarfile.TarInfo, path: str, original: str) -> None:
    """Make a directory, a file, or another name of one. Of the mode only the owner's x counts: no setuid bit survives."""
    if info.isdir():
        os.makedirs(path, exist_ok=True)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if original:
        os.link(original, path, follow_symlinks=False)
        return
    content = tar.extractfile(info)
    assert content is not None, "a file has content"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o755 if info.mode & 0o100 else 0o644)
    try:
        while chunk := content.read(_CHUNK_BYTES):
            write_all(descriptor, chunk)
    finally:
        os.close(descriptor)


def _kind(info: tarfile.TarInfo) -> Kind:
    if info.isreg():
        return "file"
    if info.isdir():
        return "directory"
    if info.issym():
        return "link"
    if info.islnk():
        return "hard link"
    if info.isfifo():
        return "fifo"
    return "device" if info.isdev() else "member of an unknown kind"


class _Header(tarfile.TarInfo):
    """A header that is damaged is an error. For `tarfile` it is the end of the archive, and half a tree would look whole."""

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> _Header:
        try:
            found = super().fromtarfile(tar)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]  # the proper end; unknown to the stubs
            raise
        except tarfile.HeaderError as problem:
            raise tarfile.ReadError(str(problem)) from problem
        if found.size < 0:
            raise tarfile.ReadError("a member of negative size")
        return found


class _Meter:
    """The archive as a stream of plain tar, every byte counted."""

    def __init__(self, raw: IO[bytes], limits: Limits) -> None:
        self._raw = raw
        self._limits = limits
        is_packed = raw.read(len(_GZIP)) == _GZIP
        raw.seek(0)
        self._plain: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=raw, mode="rb") if is_packed else raw
        self._taken_bytes = 0
        self._promised_bytes = 0
        self._members = 0
        self._header_left: int | None = _HEADER_BYTES

    def read(self, size: int) -> bytes:
        """Return the next bytes, for `tarfile`."""
        piece = self._plain.read(size)
        self._taken_bytes += len(piece)
        if self._header_left is not None:
            self._header_left -= len(piece)
            if self._header_left < 0:
                raise CodeRefused(f"the archive is refused: a header of more than {_HEADER_BYTES:,} bytes is in it")
        self._check()
        return piece

    def header_follows(self) -> None:
        """Allow as much as a header may have."""
        self._header_left = _HEADER_BYTES

    def data_follows(self) -> None:
        """Allow as much as the limits do."""
        self._header_left = None

    def count(self, members: int, size_bytes: int) -> None:
        """Count a member and what it says its size is: a sparse file is larger than what the archive has of it."""
        self._members = members
        self._promised_bytes += size_bytes
        self._check()

    def drain(self) -> None:
        """Read what comes after the last member, so that the checksum at the end is seen, too."""
        self.data_follows()
        while self.read(_CHUNK_BYTES):
            pass

    def _check(self) -> None:
        content = max(self._taken_bytes, self._promised_bytes)
        if excess := self._limits.excess(self._members, content, self._raw.tell()):
            raise CodeRefused(
                f"the archive is refused: it has {excess}",
                hint="code is unpacked on every node: leave data out of it",
            )
