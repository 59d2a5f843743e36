"""Files that somebody else has named: read only if they are that one's own, so that nobody makes root read what is root's."""

from __future__ import annotations

import os

from planaria.insight.gather import open_plain


def owner_of(path: str) -> int:
    """Return the user whose a folder is; -1: nobody's."""
    try:
        return os.stat(path).st_uid
    except OSError:
        return -1


def read_part(path: str, owner: int, most: int, *, from_end: bool) -> bytes | None:
    """Return at most so many bytes of a plain file, from its beginning or of its end; None when it cannot be had."""
    try:
        descriptor = open_plain(path)
    except (OSError, ValueError):
        return None
    try:
        seen = os.fstat(descriptor)
        if seen.st_uid != owner:
            return None
        return os.pread(descriptor, most, max(0, seen.st_size - most) if from_end else 0)
    except OSError:
        return None
    finally:
        os.close(descriptor)
