"""Ask the agents of a run, and read its folders: what each node tells, as it came.

A source is looked at again and again by `top` and by the web page: it remembers how far it has read, and reads on from there.
"""

from __future__ import annotations

import json
import os
import time

from planaria.agent.journal import EVIDENCE, REPORT, names_in
from planaria.agent.scribe import JOURNAL, OLDER_JOURNAL, OLDER_PROGRESS, PROGRESS
from planaria.base.addresses import join_address
from planaria.base.text import safe_line
from planaria.insight.fields import integer, objects, part, text, texts
from planaria.insight.model import NodeSeen
from planaria.insight.plainfiles import opened_within
from planaria.insight.reading import MOST_EVENTS, JournalReader
from planaria.launch.owner_http import Door, NotAnswered, ask
from planaria.observe.notebook import Notebook
from planaria.process.logs import folder_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Protocol

    from planaria.launch.owner_http import Target

    class Source(Protocol):
        """Where nodes are found."""

        def look(self) -> list[NodeSeen]:
            """Return what can be seen there now."""


MOST_PAGES = 64  # of a journal, for one look
MOST_NODES = 4096
LONGEST_REPORT = 64 << 20
GONE_S = (
    15.0  # of silence: five questions that nobody answered. One may fall into a moment in which the agent is stopped
)


class AgentSource:
    """An agent that answers, or did. `node` is who told last; another one may come to listen at the same place."""

    def __init__(self, target: Target, token: bytes | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self.target = target
        self.token = token
        self._now = now
        self._silent_since: float | None = None
        self._begin("")

    def _begin(self, node: str) -> None:
        self.node = node
        self._notebook = Notebook(MOST_EVENTS)
        self._next = 0
        self._has_journal = True

    @property
    def name(self) -> str:
        """Where it is."""
        return "socket" if isinstance(self.target, Door) else join_address(*self.target)

    def look(self) -> list[NodeSeen]:
        """Ask the agent how it is, and what happened since it was asked last."""
        asked_at = self._now()
        try:
            code, status = ask(self.target, "GET", "/v1/status", token=self.token)
        except NotAnswered as problem:
            where = os.path.dirname(self.target.path) if isinstance(self.target, Door) else self.name
            gap = f"the agent at {safe_line(where)} does not answer: {problem}"
            return [self._away(gap, asked_at, is_gone=problem.is_gone)]
        if code != 200 or not isinstance(status, dict):
            return [self._away(f"the agent at {self.name} refuses: {safe_line(str(status))}", asked_at)]
        self._silent_since = None
        job = part(status, "job")
        node = text(job, "node") or f"{text(job, 'host')}-{integer(job, 'agent_pid')}"
        if node != self.node:  # its journal is another one, and has numbers of its own
            self._begin(node)
        gap = self._read_journal()
        return [NodeSeen(node, self.name, status, self._notebook.events, None, self._evidence(), 0.0, gap)]

    def _away(self, gap: str, asked_at: float, *, is_gone: bool = False) -> NodeSeen:
        if self._silent_since is None:
            self._silent_since = asked_at
        is_gone = is_gone or self._now() - self._silent_since >= GONE_S
        return NodeSeen(self.node or self.name, self.name, events=self._notebook.events, gap=gap, is_gone=is_gone)

    def _read_journal(self) -> str:
        for _ in range(MOST_PAGES if self._has_journal else 0):
            try:
                code, page = ask(self.target, "GET", f"/v1/journal?after={self._next}", token=self.token)
            except NotAnswered as problem:
                return f"the journal at {self.name} could not be read to its end: {problem}"
            if code != 200 or not isinstance(page, dict):
                self._has_journal = False
                return f"the agent at {self.name} keeps no journal: it is of an older version"
            events = objects(page, "events")
            for event in events:
                self._notebook.take(event, len(str(event)))
            newest = integer(page, "next")
            if newest is None or newest <= self._next:
                return ""
            self._next = newest
            if not events:
                return ""
        return ""

    def _evidence(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        try:
            code, listed = ask(self.target, "GET", "/v1/evidence", token=self.token)
        except NotAnswered:
            return ()
        if code != 200 or not isinstance(listed, dict):
            return ()
        return tuple((text(one, "name"), texts(one, "files")) for one in objects(listed, "evidence"))


class FolderSource:
    """The folder of a run: below it, one folder for each node."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._readers: dict[str, JournalReader] = {}

    def look(self) -> list[NodeSeen]:
        """Read what was written since the last look."""
        return [self._read(folder) for folder in node_folders(self.path)[:MOST_NODES]]

    def _read(self, folder: str) -> NodeSeen:
        reader = self._readers.setdefault(folder, JournalReader(folder))
        gap = reader.read_on()
        return NodeSeen(
            os.path.basename(folder),
            folder,
            None,
            reader.notebook.events,
            _report(folder),
            _evidence_below(folder),
            reader.age_s,
            gap,
            reader.owner,
            reader.is_alive,
        )


def _report(folder: str) -> dict[str, object] | None:
    try:
        with open(opened_within(folder, REPORT), "rb") as file:
            found = json.loads(file.read(LONGEST_REPORT))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _evidence_below(folder: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if EVIDENCE not in names_in(folder):
        return ()
    parent = os.path.join(folder, EVIDENCE)
    return tuple((name, tuple(names_in(os.path.join(parent, name), files=True))) for name in names_in(parent))


def _has_journal(folder: str) -> bool:
    return any(os.path.lexists(os.path.join(folder, name)) for name in (JOURNAL, OLDER_JOURNAL))


def node_folders(path: str) -> list[str]:
    """Return the folders of nodes: the folder itself if it is one, else those in it. Links are none."""
    if _has_journal(path):
        return [path]
    return [folder for name in names_in(path) if _has_journal(folder := os.path.join(path, name))]


def run_folders(path: str) -> list[str]:
    """Return the folders of runs in a folder, the one first that was written to last; a run's own folder is its only one."""
    path = os.path.realpath(path)  # who looks may have a link to it; who writes below it may not lay one for others
    if node_folders(path):
        return [path]
    found = [folder for name in names_in(path) if node_folders(folder := os.path.join(path, name))]
    return sorted(found, key=_newest_write, reverse=True)


def _newest_write(folder: str) -> float:
    return max(_times(node_folders(folder)), default=0.0)


def _times(folders: Sequence[str]) -> Iterator[float]:
    for folder in folders:
        for name in (JOURNAL, OLDER_JOURNAL, PROGRESS, OLDER_PROGRESS):
            try:
                yield os.lstat(os.path.join(folder, name)).st_mtime
            except OSError:
                continue


def run_folder(path: str, run_id: str) -> str | None:
    """Return the folder of the run that is meant by `--run-dir` and `--run-id`: without an id the newest one."""
    found = run_folders(path)
    if run_id:
        found = [folder for folder in found if os.path.basename(os.path.abspath(folder)) == folder_name(run_id)]
    return found[0] if found else None
