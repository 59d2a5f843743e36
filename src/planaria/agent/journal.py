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
    """Keeps events. `folder` is None where nothing is written."""

    def __init__(self, node: str, folder: str | None, warn: Callable[[str], object]) -> None:
        self.node = node
        self.folder = folder
        self.notebook = Notebook(MOST_IN_MEMORY)
        self._warn = warn
        self._file: JsonLinesHandler | None = None
        if folder is not None:
            self._file = JsonLinesHandler(os.path.join(folder, JOURNAL), warn)

    def take(self, event: Mapping[str, object]) -> None:
        """Keep an event. A folder that has gone meanwhile costs what is not written, and nothing else."""
        self.notebook.take(event)
        if self._file is None:
            return
        self._file.handle(event)
        if self._file.size_bytes >= HALF_BYTES:
            self._turn_page()

    def _turn_page(self) -> None:
        assert self.folder is not None
        assert self._file is not None
        path = os.path.join(self.folder, JOURNAL)
        try:
            os.replace(path, os.path.join(self.folder, OLDER_JOURNAL))
            fresh = JsonLinesHandler(path, self._warn)
        except (OSError, UsageError) as problem:
            self._warn(f"the journal of this run ends here: {problem}")
            self.close()
            return
        self._file.close()
        self._file = fresh

    def close(self) -> None:
        """Write nothing more."""
        if self._file is not None:
            self._file.close()
            self._file = None
