"""Files that somebody else has named: opened only if they are that one's own, so that nobody makes root read what is root's.

A folder of runs is walked name by name, and no link in it is followed: whoever may write there could have put it there. What
lies in a node's folder, and what its journal names elsewhere, counts if it belongs to the owner of that folder, who has to be
the only one that may write to it.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Self

from planaria.base.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # a pipe with nobody behind it keeps nobody waiting
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 8
_ROOT = 0


class Folder(Value):
    """The folder of a node. `top` is what the user of this dashboard named; what is below it anybody may have made."""

    top: str
    path: str

    def names(self) -> list[str]:
        """Return the way from the top to it."""
        return [name for name in os.path.relpath(self.path, self.top).split("/") if name != "."]

    def below(self, path: str) -> list[str] | None:
        """Return the way from it to a file; None when that is elsewhere."""
        start = f"{self.path}/"
        return path[len(start) :].split("/") if path.startswith(start) else None


def open_of(folder: Folder, names: Sequence[str]) -> int | None:
    """Open a plain file in the folder of a node; None when it cannot be had, or is not its owner's."""
    with _Walk() as walk:
        try:
            owner = walk.enter(folder)
            return walk.open_file(names, owner)
        except (OSError, ValueError):
            return None


def open_named(folder: Folder, path: str) -> int | None:
    """Open a plain file that the journal of a node names, wherever it is; None when it is not the owner's of that folder."""
    names = folder.below(path)
    if names is not None:
        return open_of(folder, names)
    with _Walk() as walk:
        try:
            owner = walk.enter(folder)
            return walk.open_far(path, owner)
        except (OSError, ValueError):
            return None


def read_end(descriptor: int, most: int) -> bytes | None:
    """Return the last bytes of an open file, and close it; None when it cannot be read."""
    try:
        return os.pread(descriptor, most, max(0, os.fstat(descriptor).st_size - most))
    except OSError:
        return None
    finally:
        os.close(descriptor)


class _Walk:
    """Goes from folder to folder, holding the one where it is."""

    def __init__(self) -> None:
        self._at = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._at >= 0:
            os.close(self._at)

    def enter(self, folder: Folder) -> int:
        """Go to the folder of a node; return whose it is. Raises OSError."""
        self._step(os.open(folder.top, _FOLDER))
        for name in folder.names():
            self._go(name)
        seen = os.fstat(self._at)
        if seen.st_mode & _OTHERS_MAY_WRITE:
            raise OSError(errno.EPERM, "others may write there")
        return seen.st_uid

    def open_file(self, names: Sequence[str], owner: int) -> int:
        """Open a file below. Raises OSError."""
        *folders, last = names
        for name in folders:
            self._go(name)
        return _checked(os.open(_plain(last), _FILE | os.O_NOFOLLOW, dir_fd=self._at), owner)

    def open_far(self, path: str, owner: int) -> int:
        """Open a file by its whole path, on which root alone may have put links: some have one at /home. Raises OSError."""
        *folders, last = [name for name in path.split("/") if name]
        if not path.startswith("/"):
            raise OSError(errno.EINVAL, "it is no whole path")
        self._step(os.open("/", _FOLDER))
        links = 0
        while folders:
            name = folders.pop(0)
            seen = os.stat(_plain(name), dir_fd=self._at, follow_symlinks=False)
            if not stat.S_ISLNK(seen.st_mode):
                self._go(name)
                continue
            links += 1
            if seen.st_uid != _ROOT or links > _MOST_LINKS:
                raise OSError(errno.ELOOP, "a link of somebody's is on the way")
            target = os.readlink(name, dir_fd=self._at)
            if target.startswith("/"):
                self._step(os.open("/", _FOLDER))
            folders[:0] = [part for part in target.split("/") if part]
        return _checked(os.open(_plain(last), _FILE | os.O_NOFOLLOW, dir_fd=self._at), owner)

    def _go(self, name: str) -> None:
        self._step(os.open(_plain(name), _FOLDER | os.O_NOFOLLOW, dir_fd=self._at))

    def _step(self, descriptor: int) -> None:
        if self._at >= 0:
            os.close(self._at)
        self._at = descriptor


def _plain(name: str) -> str:
    if name in ("", ".", "..") or "/" in name:
        raise OSError(errno.EINVAL, "it is no plain name")
    return name


def _checked(descriptor: int, owner: int) -> int:
    seen = os.fstat(descriptor)
    if not stat.S_ISREG(seen.st_mode) or seen.st_uid != owner:
        os.close(descriptor)
        raise OSError(errno.EPERM, "it is no plain file of that owner's")
    return descriptor
