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
_LOCK = "lock"


class Folder:
    """A fresh folder. Making it removes those of campaigns that were killed and could not."""

    def __init__(self, parent: str) -> None:
        _sweep(parent)
        self.path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        self._lock = os.open(os.path.join(self.path, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

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
        if name.startswith(_PREFIX) and _is_ours(path) and not _is_at_work(path):
            _remove(path)


def _is_ours(path: str) -> bool:
    with contextlib.suppress(OSError):
        seen = os.lstat(path)
        return stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid()
    return False


def _is_at_work(path: str) -> bool:
    """Tell whether its campaign lives. One without a lock is just being made, or removed."""
    try:
        lock = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _remove(path: str) -> None:
    commits = os.path.join(path, COMMITS)
    if os.path.ismount(commits):
        subprocess.run(["umount", "-l", commits], capture_output=True, check=False)
    remove_tree(path)
