"""What a node has to tell of its run: the newest events in memory, and all of them in the run's folder, where there is one.

DIR/RUN_ID/NODE/journal.jsonl   one line for each event; beyond 32 MiB it becomes journal.1.jsonl, and a new one begins
DIR/RUN_ID/NODE/progress.jsonl  the same for progress and commits, beyond 4 MiB
DIR/RUN_ID/NODE/report.json     how it ended, as --report-file has it
DIR/RUN_ID/NODE/evidence/...    what was found when workers hung
DIR/RUN_ID/NODE/logs/...        the workers' output, where --log-dir names no other place
"""

from __future__ import annotations

import os

from planaria.agent.scribe import JOURNAL as JOURNAL  # noqa: PLC0414  it is here that others look for it
from planaria.agent.scribe import Scribe
from planaria.base.files import random_name
from planaria.errors import UsageError
from planaria.observe.notebook import Notebook
from planaria.process.logs import EVIDENCE as EVIDENCE  # noqa: PLC0414  the same
from planaria.process.logs import folder_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MOST_IN_MEMORY = 1000
MOST_BYTES_IN_MEMORY = 4 << 20
REPORT, LOGS = "report.json", "logs"


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
        self.unwritten = ""
        """When it is closed: a sentence about what could not be written, if there is one to say."""
        self.notebook = Notebook(MOST_IN_MEMORY, MOST_BYTES_IN_MEMORY)
        self._scribe = None if folder is None else Scribe(folder, warn)

    @property
    def evidence(self) -> tuple[str, ...]:
        """The names of the folders of evidence that events speak of: nobody waits for a disk to know them."""
        told = (event.get("metadata") for event in self.notebook.events if event.get("name") == "planaria.hang")
        paths = (data.get("evidence") for data in told if isinstance(data, dict))
        return tuple(dict.fromkeys(os.path.basename(path) for path in paths if isinstance(path, str) and path))

    @property
    def is_locked(self) -> bool:
        """Whether others on this machine can see at the folder that this process lives."""
        return self._scribe is not None and self._scribe.is_locked

    def keep(self, name: str, content: bytes) -> None:
        """Have a file written into the folder, if there is one; nobody waits for it before the end."""
        if self._scribe is not None:
            self._scribe.keep(name, content)

    def take(self, event: Mapping[str, object]) -> None:
        """Keep an event. A folder that has gone meanwhile, or does not answer, costs what is not written and nothing else."""
        self.notebook.take(event, len(str(event)))
        if self._scribe is not None:
            self._scribe.take(event)

    def close(self) -> None:
        """Write nothing more; what has been taken is given a moment."""
        if self._scribe is not None:
            self.unwritten = self._scribe.close()
            self._scribe = None


def names_in(folder: str, *, files: bool = False) -> list[str]:
    """Return the folders in a folder, or the files in it. Links are not there."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return []
    is_wanted = os.DirEntry.is_file if files else os.DirEntry.is_dir
    return sorted(entry.name for entry in entries if is_wanted(entry, follow_symlinks=False))
