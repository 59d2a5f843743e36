"""Shared memory that a job leaves: files of ours in /dev/shm that were not there before, and that nobody holds."""

from __future__ import annotations

import contextlib
import os
import re

from planaria.base.linux import read_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

FOLDER = "/dev/shm"  # noqa: S108  nothing is made in it
_MAPPED = re.compile(rb" (/[^\n]*?)(?: \(deleted\))?\n")
_STEM = re.compile(r"[^\W\d_]*")


def names(folder: str = FOLDER) -> frozenset[str]:
    """Return the files of this user."""
    found = set()
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            with contextlib.suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                    found.add(entry.name)
    return frozenset(found)


def left(before: Collection[str], usual: Collection[str], folder: str = FOLDER) -> tuple[str, ...]:
    """Return what is new since `before`, and held by no living process: that would be somebody else's.

    Files that begin with the same letters as a `usual` one are those that the undisturbed job leaves as well.
    """
    stems = {_stem(name) for name in usual}
    fresh = {os.path.join(folder, name) for name in names(folder).difference(before) if _stem(name) not in stems}
    return tuple(sorted(fresh.difference(_held()) if fresh else ()))


def _stem(name: str) -> str:
    found = _STEM.match(os.path.basename(name))
    return found[0] if found is not None else ""


def _held() -> set[str]:
    """Return every file that a process has mapped or open, as far as we may know."""
    found: set[str] = set()
    for pid in (name for name in os.listdir("/proc") if name.isdecimal()):
        found.update(map(os.fsdecode, _MAPPED.findall(read_file(f"/proc/{pid}/maps", 16 << 20))))
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    found.add(os.readlink(f"/proc/{pid}/fd/{number}"))
    return found
