"""The folder of a campaign: sockets, scratch and commits of its nodes. It is locked as long as its campaign lives."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import subprocess
import tempfile

from planaria.base.files import remove_tree

COMMITS = "commits"
_PREFIX = "pch-"


class Folder:
    """A fresh folder. Making it removes those of campaigns that were killed and could not."""

    def __init__(self, parent: str) -> None:
        _sweep(parent)
        while True:
            self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
            with contextlib.suppress(FileNotFoundError):
                self._lock = _open(self.path)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
                if os.path.exists(self.path):
                    return
                os.close(self._lock)  # another campaign took it for a killed one's: it was not locked yet

    def part(self, name: str) -> str:
        """Return a path in it."""
        return os.path.join(self.path, name)

    def close(self) -> None:
        """Remove it."""
        _remove(self.path)
        os.close(self._lock)


def _sweep(parent: str) -> None:
    for name in os.listdir(parent):
        path = os.path.join(parent, name)
        if name.startswith(_PREFIX) and _is_ours(path):
            _remove_if_left(path)


def _is_ours(path: str) -> bool:
    with contextlib.suppress(OSError):
        seen = os.lstat(path)
        return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid()
    return False


def _remove_if_left(path: str) -> None:
    """Remove a folder whose campaign does not live: who lives holds its lock."""
    with contextlib.suppress(OSError):
        lock = _open(path)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
        finally:
            os.close(lock)


def _open(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _remove(path: str) -> None:
    commits = os.path.join(path, COMMITS)
    if os.path.ismount(commits):
        subprocess.run(["umount", "-l", commits], capture_output=True, check=False)
    remove_tree(path)
