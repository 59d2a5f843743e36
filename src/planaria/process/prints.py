"""Fingerprints of files: whether one is still what it was when somebody read it."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Print = tuple[int, ...]
    """What changes when a file is edited or replaced; empty when there is none."""


def main_of(target: str) -> str:
    """Return the file that is run for a script or a folder, links followed. Of a folder it is one: others come and go there."""
    path = os.path.realpath(target)
    return os.path.join(path, "__main__.py") if os.path.isdir(path) else path


def take(path: str) -> Print:
    """Return the fingerprint of a file as it is now."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def first_changed(prints: Iterable[tuple[str, Print]]) -> str:
    """Return the first file that is not what it was; empty: all are."""
    return next((file for file, before in prints if take(file) != before), "")
