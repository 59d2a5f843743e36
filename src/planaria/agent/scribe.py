"""Writes what a node has to tell into its folder, in a thread: a disk that hangs must not hold up the agent.

What is told again and again, the progress of workers and their commits, has a small file of its own: it would push out of the
journal how the run began and why it was restarted. While the agent lives it holds a lock on the folder, so that whoever looks
at it on the same machine knows whether it was killed; for those on others the journal is touched once a minute.
"""

from __future__ import annotations

import os

from planaria.base.files import write_atomically
from planaria.errors import UsageError
from planaria.observe.handlers import JsonLinesHandler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MOST_WAITING = 1000  # events, for a disk that is slow
CLOSE_S = 10.0  # how long the end waits for a disk that has fallen behind
BEAT_S = 60.0
HALF_BYTES = 32 << 20  # of the newest 64 MiB that are kept
HALF_PROGRESS_BYTES = 4 << 20
JOURNAL, OLDER_JOURNAL = "journal.jsonl", "journal.1.jsonl"
PROGRESS, OLDER_PROGRESS = "progress.jsonl", "progress.1.jsonl"
_BEHIND = "does not keep up, going on without what is not written"
REPEATED = ("planaria.progress", "planaria.commit")


class Page:
    """A file of events of which the older half is another one.

    Raises:
        UsageError: It cannot be opened.
    """

    def __init__(self, folder: str, names: tuple[str, str], half_bytes: int, warn: Callable[[str], object]) -> None:
        self._path, self._older_path = (os.path.join(folder, name) for name in names)
        self._half_bytes = half_bytes
        self._warn = warn
        self.file: JsonLinesHandler | None = JsonLinesHandler(self._path, warn)

    def write(self, event: Mapping[str, object]) -> None:
        """Append an event; a file that is long enough is put aside."""
        file = self.file
        if file is None:
            return
        file.handle(event)
        if file.size_bytes >= self._half_bytes:
            self.file = self._next()
            file.close()

    def _next(self) -> JsonLinesHandler | None:
        try:
            os.replace(self._path, self._older_path)
            return JsonLinesHandler(self._path, self._warn)
        except (OSError, UsageError) as problem:
            self._warn(f"the journal of this run ends here: {problem}")
            return None

    def touch(self) -> None:
        """Show that its writer lives."""
        try:
            os.utime(self._path)
        except OSError:  # it was removed: what comes next will say so
            return

    def close(self) -> None:
        """Close the file."""
        if self.file is not None:
            self.file.close()
            self.file = None


class Scribe:
    """Writes into one node's folder. `warn` is called in its thread.

    Raises:
        UsageError: The files cannot be opened.
    """

    def __init__(self, folder: str, warn: Callable[[str], object]) -> None:
        from queue import SimpleQueue
        from threading import Thread

        self._folder = folder
        self._warn = warn
        self._has_warned = False
        self._unwritten = ""
        # First: whoever finds a journal looks whether its folder is locked, and to look takes a lock for a moment.
        self._lock = lock(folder)
        try:
            self._journal = Page(folder, (JOURNAL, OLDER_JOURNAL), HALF_BYTES, warn)
            self._progress = Page(folder, (PROGRESS, OLDER_PROGRESS), HALF_PROGRESS_BYTES, warn)
        except UsageError:
            self._unlock()
            raise
        self._orders: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = Thread(target=self._write_all, name="planaria journal", daemon=True)
        self._thread.start()

    @property
    def is_locked(self) -> bool:
        """Whether the folder is locked for as long as this process lives."""
        return self._lock is not None

    def take(self, event: Mapping[str, object]) -> None:
        """Have an event written. One too many for a disk that does not keep up is lost, which is said once."""
        page = self._progress if event.get("name") in REPEATED else self._journal
        if self._orders.qsize() < MOST_WAITING:
            self._orders.put(lambda: page.write(event))
        elif not self._has_warned:
            self._has_warned = True
            self._warn(f"{self._folder} {_BEHIND}")

    def keep(self, name: str, content: bytes) -> None:
        """Have a file written, however much waits before it; `close` returns what came in between."""
        path = os.path.join(self._folder, name)

        def write() -> None:
            try:
                write_atomically(path, content)
            except OSError as problem:
                self._unwritten = f"cannot write {path}: {problem.strerror}"

        self._orders.put(write)

    def close(self) -> str:
        """Wait a moment until all is written, and let the folder go; return a sentence about a file that is not there."""
        self._orders.put(None)
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():  # also where that was said of events, maybe hours ago: a report may be missing
            self._unwritten = f"{self._folder} {_BEHIND}"
        self._unlock()
        return self._unwritten

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _write_all(self) -> None:
        from queue import Empty

        while True:
            try:
                do = self._orders.get(timeout=BEAT_S)
            except Empty:
                do = self._journal.touch
            if do is None:
                break
            do()
        self._journal.close()
        self._progress.close()


def lock(folder: str) -> int | None:
    """Lock a folder until the descriptor that is returned is closed; None where that cannot be, as on a network disk."""
    import fcntl

    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
