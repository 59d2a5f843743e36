"""Looks at the agents of one's own runs on this machine, at those of `--at`, and into folders of runs, again and again.

Sources are kept from one look to the next, because they read on from where they stopped. One that is slow keeps nobody
waiting: what it told last counts until it answers. The folder of a run that has ended is not read again.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from planaria.agent.journal import JOURNAL
from planaria.base.text import safe_line
from planaria.base.value import Value
from planaria.insight.fields import part, text
from planaria.insight.gather import AgentSource, FolderSource, node_folders, run_folders
from planaria.insight.heard import SILENT_S
from planaria.insight.model import NodeSeen
from planaria.launch.owner_http import Door
from planaria.launch.owner_runs import doors_of_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future

PATIENCE_S = 0.75  # for agents, in one look: a page asks every second
MOST_FOLDERS = 64  # the newest of each --run-dir
LIST_S = 5.0  # for how long the list of runs in a folder counts that nothing was added to: thousands may be there
MOST_DOORS = 256  # agents of this machine, also those that have ended since
MOST_NAMED = 256  # folders that agents of this machine wrote to
_AT_ONCE = 16


class Found(Value):
    """A node, and the agent that told of it if there is one."""

    seen: NodeSeen
    agent: AgentSource | None
    folder: str = ""
    """That of its run, where no agent told of it."""

    @property
    def answers(self) -> bool:
        """Whether there is an agent that answered."""
        return self.agent is not None and self.seen.status is not None

    @property
    def is_ours(self) -> bool:
        """Whether it is an agent of our own user on this machine: only such may name folders for us to look into."""
        return self.answers and self.agent is not None and isinstance(self.agent.target, Door)

    @property
    def is_readable(self) -> bool:
        """Whether it told anything."""
        return self.agent is not None or bool(self.seen.events) or not self.seen.gap

    @property
    def mark(self) -> tuple[object, ...]:
        """What differs when a node that does not answer has something new to tell."""
        seen = self.seen
        is_silent = seen.age_s is not None and seen.age_s > SILENT_S
        return seen.node, len(seen.events), seen.report is not None, seen.gap, seen.is_alive, seen.is_gone, is_silent


class Lookout:
    """Where runs are looked for. `doors` returns those of our own runs that are there now."""

    def __init__(
        self,
        far: Sequence[AgentSource],
        run_dirs: Sequence[str],
        doors: Callable[[], Sequence[Door]],
        now: Callable[[], float],
    ) -> None:
        self._far = far
        self._doors = doors
        self._here: dict[str, AgentSource] = {}
        self._agents = _Agents()
        self._folders = _Folders(run_dirs, now)

    def look(self) -> dict[str, list[Found]]:
        """Return the nodes of each run that can be seen."""
        for door in self._doors():
            self._here.setdefault(door.path, AgentSource(door))
        told = self._agents.look([*self._here.values(), *self._far])
        self._folders.add(text(part(one.seen.status, "job"), "run_folder") for one in told if one.is_ours)
        written = self._folders.look()
        self._forget(told)
        return _by_run(told, written)

    def _forget(self, told: Iterable[Found]) -> None:
        """Drop doors behind which nobody ever answered, which are folders left behind, and the oldest of too many."""
        empty = {one.agent for one in told if not one.answers and not one.seen.events}
        kept = [(path, agent) for path, agent in self._here.items() if agent not in empty]
        self._here = dict(kept[-MOST_DOORS:])


class _Agents:
    """Asks agents in threads, because each question blocks."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_AT_ONCE, "look")
        self._asked: dict[AgentSource, Future[list[NodeSeen]]] = {}
        self._told: dict[AgentSource, list[NodeSeen]] = {}

    def look(self, agents: Sequence[AgentSource]) -> list[Found]:
        """Return what each agent tells now, or told last where it takes longer."""
        for agent in agents:
            if agent not in self._asked:
                self._asked[agent] = self._pool.submit(agent.look)
        answered, _ = wait(self._asked.values(), PATIENCE_S)
        for agent, answer in list(self._asked.items()):
            if answer in answered:
                self._told[agent] = _told_by(agent, answer)
                del self._asked[agent]
        self._told = {agent: nodes for agent, nodes in self._told.items() if agent in agents}
        return [Found(seen, agent) for agent in agents for seen in self._told.get(agent, ())]


class _Folders:
    """The folders of `--run-dir`, and those that agents of this machine write to."""

    def __init__(self, parents: Sequence[str], now: Callable[[], float]) -> None:
        self._shelves = [_Shelf(os.path.abspath(parent), now) for parent in parents]
        self._named: dict[str, None] = {}
        self._sources: dict[str, FolderSource] = {}
        self._settled: dict[str, tuple[list[float], list[NodeSeen]]] = {}

    def add(self, folders: Iterable[str]) -> None:
        """Look into these from now on: they tell how a run has ended whose agents are gone."""
        for folder in [os.path.realpath(one) for one in folders if one and os.path.isdir(one)]:
            self._named.pop(folder, None)  # those that were named last stay
            self._named[folder] = None
        kept = [one for one in self._named if os.path.isdir(one)]
        self._named = dict.fromkeys(kept[-MOST_NAMED:])

    def look(self) -> list[Found]:
        """Read what was written since the last look."""
        below = [folder for shelf in self._shelves for folder in shelf.newest()]
        folders = dict.fromkeys((*self._named, *below))
        self._sources = {path: source for path, source in self._sources.items() if path in folders}
        self._settled = {path: settled for path, settled in self._settled.items() if path in folders}
        return [Found(node, None, folder) for folder in folders for node in self._nodes_in(folder)]

    def _nodes_in(self, folder: str) -> list[NodeSeen]:
        times = _write_times(folder)
        settled = self._settled.get(folder)
        if settled is not None and settled[0] == times:
            return settled[1]
        try:
            nodes = self._sources.setdefault(folder, FolderSource(folder)).look()
        except Exception as problem:  # noqa: BLE001  one folder that somebody filled must not hide the others
            del self._sources[folder]
            return [NodeSeen(os.path.basename(folder), folder, gap=_gap(folder, problem))]
        if all(one.report is not None for one in nodes):
            self._settled[folder] = (times, nodes)
        return nodes


class _Shelf:
    """The newest runs of one `--run-dir`: listed again when one was added, or it is a while ago."""

    def __init__(self, path: str, now: Callable[[], float]) -> None:
        self._path = path
        self._now = now
        self._listed_at = float("-inf")
        self._mark = 0
        self._found: list[str] = []

    def newest(self) -> list[str]:
        """Return the folders of its newest runs, the newest first."""
        mark = _changed_at(self._path)
        if mark != self._mark or self._now() - self._listed_at >= LIST_S:
            self._found = run_folders(self._path)[:MOST_FOLDERS]
            self._mark, self._listed_at = mark, self._now()
        return self._found


def _changed_at(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0


def _told_by(agent: AgentSource, answer: Future[list[NodeSeen]]) -> list[NodeSeen]:
    try:
        return answer.result()
    except Exception as problem:  # noqa: BLE001  what one agent says must not hide the others
        return [NodeSeen(agent.name, agent.name, gap=_gap(f"the agent at {agent.name}", problem))]


def _gap(what: str, problem: Exception) -> str:
    return f"{safe_line(what)} cannot be read: {safe_line(repr(problem))}"


def _write_times(folder: str) -> list[float]:
    found = []
    for node in node_folders(folder):
        try:
            found.append(os.stat(os.path.join(node, JOURNAL)).st_mtime)
        except OSError:
            found.append(0.0)
    return found


def _by_run(told: Sequence[Found], written: Sequence[Found]) -> dict[str, list[Found]]:
    """Return the nodes of each run. Of an agent that has ended its folder knows more than what was heard last."""
    names = {one.seen.node for one in written}
    runs: dict[str, list[Found]] = {}
    for one in (*told, *written):
        if one.agent is None or one.answers or one.seen.node not in names:
            runs.setdefault(_run_id(one), []).append(one)
    runs.pop("", None)
    return runs


def _run_id(found: Found) -> str:
    """Return the run of a node; of one that cannot be read, its folder has the name."""
    named = run_id_of(found.seen)
    return named or ("" if found.is_readable else os.path.basename(found.folder))


def run_id_of(node: NodeSeen) -> str:
    """Return the run that a node belongs to; empty when it does not say."""
    named = text(part(node.status, "job"), "run_id") or text(node.report or {}, "run_id")
    return named or next((text(part(one, "metadata"), "run_id") for one in node.events), "")


def lookout(
    at: Sequence[tuple[str, int]],
    token: bytes | None,
    run_dirs: Sequence[str],
    environ: Mapping[str, str],
    now: Callable[[], float],
) -> Lookout:
    """Return a lookout that also knows the runs of ours on this machine."""
    return Lookout([AgentSource(target, token) for target in at], run_dirs, lambda: doors_of_ours(environ), now)
