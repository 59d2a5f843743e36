"""What a node has to tell of its run: the newest events in memory, and all of them in the run's folder, where there is one.

DIR/RUN_ID/NODE/journal.jsonl   one line for each event; beyond 32 MiB it becomes journal.1.jsonl, and a new one begins
DIR/RUN_ID/NODE/report.json     how it ended, as --report-file has it
DIR/RUN_ID/NODE/evidence/...    what was found when workers hung
DIR/RUN_ID/NODE/logs/...        the workers' output, where --log-dir names no other place
"""

from __future__ import annotations

import os

from planaria.base.files import random_name
from planaria.errors import UsageError
from planaria.observe.handlers import JsonLinesHandler
from planaria.observe.notebook import Notebook
from planaria.process.logs import folder_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MOST_IN_MEMORY = 1000
HALF_BYTES = 32 << 20  # of the newest 64 MiB that are kept
MOST_WAITING = 1000  # events, for a disk that is slow
CLOSE_S = 10.0  # how long the end waits for a disk that has fallen behind
JOURNAL, OLDER_JOURNAL, REPORT, EVIDENCE, LOGS = "journal.jsonl", "journal.1.jsonl", "report.json", "evidence", "logs"


def node_name(host: str) -> str:
    """Return a name for this node of a run that no other has, also when it comes back to the same host."""
    return folder_name(f"{host}-{random_name()}")


def make_folder(run_dir: str, run_id: str, node: str) -> str:
    """Make the folder of this node in that of the run; return its path.

    Raises:
        UsageError: It cannot be made.
    """
    folder = os.path.join(os.path.abspath(run_dir), folder_name(run_id), node)
    try:
        os.makedirs(folder, 0o755)
    except OSError as problem:
        raise UsageError(
            f"cannot make the folder {folder}: {problem.strerror}",
            hint="name a directory you may write to with --run-dir",
        ) from problem
    return folder


class Journal:
    """Keeps events. `folder` is None where nothing is written; `warn` may be called in another thread.

    Raises:
        UsageError: The file cannot be opened.
    """

    def __init__(self, node: str, folder: str | None, warn: Callable[[str], object]) -> None:
        self.node = node
        self.folder = folder
        self.notebook = Notebook(MOST_IN_MEMORY)
        self._scribe = None if folder is None else Scribe(folder, warn)

    @property
    def evidence(self) -> tuple[str, ...]:
        """The folders of evidence, as far as they were seen when the last event was written."""
        return () if self._scribe is None else self._scribe.evidence

    def take(self, event: Mapping[str, object]) -> None:
        """Keep an event. A folder that has gone meanwhile, or does not answer, costs what is not written and nothing else."""
        self.notebook.take(event)
        if self._scribe is not None:
            self._scribe.take(event)

    def close(self) -> None:
        """Write nothing more; what has been taken is given a moment."""
        if self._scribe is not None:
            self._scribe.close()
            self._scribe = None


class Scribe:
    """Writes events in a thread: a shared disk that hangs must not hold up the agent, whose lease would run out over it."""

    def __init__(self, folder: str, warn: Callable[[str], object]) -> None:
        from queue import SimpleQueue
        from threading import Thread

        self._folder = folder
        self._warn = warn
        self._has_warned = False
        self._file: JsonLinesHandler | None = JsonLinesHandler(os.path.join(folder, JOURNAL), warn)
        self._events: SimpleQueue[Mapping[str, object] | None] = SimpleQueue()
        self._thread = Thread(target=self._write_all, name="planaria journal", daemon=True)
        self._thread.start()
        self.evidence: tuple[str, ...] = ()

    def take(self, event: Mapping[str, object]) -> None:
        """Have an event written. One too many for a disk that does not keep up is lost, which is said once."""
        if self._events.qsize() < MOST_WAITING:
            self._events.put(event)
        elif not self._has_warned:
            self._has_warned = True
            self._warn(f"{self._folder} does not keep up, going on without what is not written")

    def close(self) -> None:
        """Wait a moment until all is written, and close the file."""
        self._events.put(None)
        self._thread.join(CLOSE_S)

    def _write_all(self) -> None:
        while (event := self._events.get()) is not None:
            if self._file is not None:
                self._write(self._file, event)
        if self._file is not None:
            self._file.close()

    def _write(self, file: JsonLinesHandler, event: Mapping[str, object]) -> None:
        file.handle(event)
        self.evidence = tuple(names_in(os.path.join(self._folder, EVIDENCE)))
        if file.size_bytes >= HALF_BYTES:
            self._file = self._next_page()
            file.close()

    def _next_page(self) -> JsonLinesHandler | None:
        path = os.path.join(self._folder, JOURNAL)
        try:
            os.replace(path, os.path.join(self._folder, OLDER_JOURNAL))
            return JsonLinesHandler(path, self._warn)
        except (OSError, UsageError) as problem:
            self._warn(f"the journal of this run ends here: {problem}")
            return None


def names_in(folder: str, *, files: bool = False) -> list[str]:
    """Return the folders in a folder, or the files in it. Links are not there."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return []
    is_wanted = os.DirEntry.is_file if files else os.DirEntry.is_dir
    return sorted(entry.name for entry in entries if is_wanted(entry, follow_symlinks=False))
