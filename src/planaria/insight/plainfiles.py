"""Open files that somebody else has named or laid out, so that nobody makes another user, root above all, read what is not his.

A folder counts for as much as its owner. Below it no link is followed, and everything has to be the same owner's: who may write
into somebody's folder, or has put a link there, cannot have his own files taken for that owner's, nor choose others to be read.
"""

from __future__ import annotations

import os
import stat

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_within(folder: str, *names: str) -> int | None:
    """Open a plain file for reading, which the names lead to from a folder; None when it cannot be had.

    The folder, what lies between and the file have one owner, none of them is a link, and only that owner, or the group, may
    write to the folders. The last part of `folder` is not followed, either: the one who names it resolves it.
    """
    try:
        return opened_within(folder, *names)
    except (OSError, ValueError):
        return None


def opened_within(folder: str, *names: str) -> int:
    """Open the same.

    Raises:
        OSError: It cannot be opened, or is not to be trusted.
        ValueError: A name has a character that no name has.
    """
    here = os.open(folder, _FOLDER)
    try:
        owner = _owner_of(here)
        for name in names[:-1]:
            inner = os.open(_own_name(name), _FOLDER, dir_fd=here)
            os.close(here)
            here = inner
            if _owner_of(here) != owner:
                raise OSError(0, "its folders are not of one owner")
        return _plain(os.open(_own_name(names[-1]), _FILE, dir_fd=here), owner)
    finally:
        os.close(here)


def open_plain(path: str, owner: int | None = None) -> int:
    """Open a plain file for reading, which is no link: a pipe with nobody at its other end would keep us waiting.

    Raises:
        OSError: It cannot be opened, is none, or is not the `owner`'s.
    """
    return _plain(os.open(path, _FILE), owner)


def owner_of(folder: str) -> int | None:
    """Return whose a folder is; None for one that is none, is a link, or that everybody may write to."""
    try:
        here = os.open(folder, _FOLDER)
    except (OSError, ValueError):
        return None
    try:
        return _owner_of(here)
    except OSError:
        return None
    finally:
        os.close(here)


def _own_name(name: str) -> str:
    if "/" in name or name in ("", ".", ".."):
        raise OSError(0, "it is no name of a file")
    return name


def _owner_of(descriptor: int) -> int:
    seen = os.fstat(descriptor)
    if seen.st_mode & stat.S_IWOTH:  # also where only the owner of a file may remove it: anybody may add one
        raise OSError(0, "everybody may write to its folder")
    return seen.st_uid


def _plain(descriptor: int, owner: int | None) -> int:
    seen = os.fstat(descriptor)
    why = "" if stat.S_ISREG(seen.st_mode) else "it is no plain file"
    if owner is not None and seen.st_uid != owner:
        why = why or "it is not of the owner of its folder"
    if why:
        os.close(descriptor)
        raise OSError(0, why)
    return descriptor
