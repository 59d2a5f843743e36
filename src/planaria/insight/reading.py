"""Read on in the journal of a node's folder, and see whether the agent that writes it lives."""

from __future__ import annotations

import fcntl
import json
import os
import time

from planaria.agent.scribe import JOURNAL, OLDER_JOURNAL, OLDER_PROGRESS, PROGRESS
from planaria.base.text import safe_line
from planaria.insight.fields import part, text
from planaria.insight.plainfiles import opened_within
from planaria.observe.notebook import Notebook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

MOST_EVENTS = 20_000  # far more than a run has restarts; a journal that somebody fills is not kept whole
LONGEST_LINE = 1 << 20
_HEAD_BYTES = 4096  # of a file, to know it again: its first event has a moment in it


class JournalReader:
    """Reads on from where it stopped, also when a file was put aside for a new one meanwhile."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.notebook = Notebook(MOST_EVENTS)
        self._pages = [_Page(folder, OLDER_JOURNAL, JOURNAL), _Page(folder, OLDER_PROGRESS, PROGRESS)]
        self.is_alive: bool | None = None

    @property
    def age_s(self) -> float | None:
        """How long ago anything was written."""
        times = [page.written_at for page in self._pages if page.written_at is not None]
        return max(0.0, time.time() - max(times)) if times else None  # noqa: TID251  of a file, for people

    @property
    def owner(self) -> int | None:
        """Whose the journal is."""
        return self._pages[0].owner

    def read_on(self) -> str:
        """Read what is new; return a sentence about what cannot be read."""
        is_held = _is_locked(self._folder)  # before it is read: who has ended by now has written that down
        try:
            for page in self._pages:
                page.read_on(self.notebook)
        except OSError as problem:
            return f"cannot read the journal in {safe_line(self._folder)}: {problem.strerror}"
        self.is_alive = True if is_held else False if is_held is False and self._is_of_here() else None
        return ""

    def _is_of_here(self) -> bool:
        """Tell whether a lock would be seen: the agent says that it holds one, and it is on this machine."""
        begun = [part(one, "metadata") for one in self.notebook.events if one.get("name") == "planaria.run.started"]
        here = os.uname().nodename
        return bool(begun) and begun[-1].get("locked") is True and text(begun[-1], "host") == here


class _Page:
    """A file whose older half is another one: what is read of it stays read when it is put aside for the next."""

    def __init__(self, folder: str, older: str, newest: str) -> None:
        self._folder = folder
        self._older, self._newest = older, newest
        self._known: list[_Sheet] = []
        self.written_at: float | None = None
        self.owner: int | None = None

    def read_on(self, notebook: Notebook) -> None:
        found = []
        for name in (self._older, self._newest):
            try:
                descriptor = opened_within(self._folder, name)
            except FileNotFoundError:
                continue
            with open(descriptor, "rb") as file:
                sheet = next((one for one in self._known if one.is_this(file)), None) or _Sheet(file)
                seen = os.fstat(descriptor)
                self.written_at, self.owner = seen.st_mtime, seen.st_uid
                sheet.read_on(file, notebook)
            found.append(sheet)
        self._known = found


class _Sheet:
    """One file, whatever its name is by now, and how far it was read."""

    def __init__(self, file: BinaryIO) -> None:
        self._inode = os.fstat(file.fileno()).st_ino
        self._head = b""
        self._offset = 0
        self._is_skipping = False

    def is_this(self, file: BinaryIO) -> bool:
        """Tell whether it is this file. A new one may have got the number of one that is gone, but not its content."""
        seen = os.fstat(file.fileno())
        if seen.st_ino != self._inode or seen.st_size < self._offset:
            return False
        return os.pread(file.fileno(), len(self._head), 0) == self._head

    def read_on(self, file: BinaryIO, notebook: Notebook) -> None:
        """Take the lines that were added."""
        file.seek(self._offset)
        while line := file.readline(LONGEST_LINE):
            is_whole = line.endswith(b"\n")
            if not is_whole and len(line) < LONGEST_LINE and not self._is_skipping:
                break  # the rest of it is still to come
            self._offset += len(line)
            if is_whole and not self._is_skipping:
                _take(notebook, line)
            self._is_skipping = not is_whole
        if len(self._head) < _HEAD_BYTES:
            self._head = os.pread(file.fileno(), min(_HEAD_BYTES, self._offset), 0)


def _take(notebook: Notebook, line: bytes) -> None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):  # torn by a full disk
        return
    if isinstance(event, dict):
        notebook.take(event, len(line))


def _is_locked(folder: str) -> bool | None:
    """Tell whether somebody holds a lock on a folder; None where that cannot be told."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False
