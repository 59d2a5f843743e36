"""Where the dashboard looks: the agents of one's own runs on this machine, those of `--at`, and the folders of `--run-dir`.

What is found is grouped by run. Sources are kept from one look to the next, because they read on from where they stopped;
the folder of a run that has ended is not read again.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import quote

from planaria.base.text import safe_line
from planaria.base.value import Value
from planaria.insight.fields import part, text
from planaria.insight.gather import EVIDENCE, JOURNAL, AgentSource, FolderSource, node_folders, open_plain, run_folders
from planaria.insight.picture import picture
from planaria.launch.owner_http import NotAnswered, ask, fetch
from planaria.launch.owner_runs import doors_of_ours

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planaria.contract.secret import Secret
    from planaria.dashboard.answers import Json
    from planaria.dashboard.flags import Settings
    from planaria.insight.model import NodeSeen

FRESH_S = 0.5  # for how long a look is good
MOST_FOLDERS = 64  # the newest of each --run-dir
MOST_DOORS = 256  # agents of this machine, also those that have ended since
_LONGEST_EVIDENCE = 16 << 20
_AT_ONCE = 16  # agents that are asked at the same time: one that is stuck keeps nobody waiting but itself


class Found(Value):
    """A node, and the agent that told of it if there is one."""

    seen: NodeSeen
    agent: AgentSource | None

    @property
    def answers(self) -> bool:
        """Whether there is an agent that answered."""
        return self.agent is not None and self.seen.status is not None

    @property
    def mark(self) -> tuple[object, ...]:
        """What differs when a node that does not answer has something new to tell."""
        return self.seen.node, len(self.seen.events), self.seen.report is not None, self.seen.gap


class Seen:
    """The runs that can be seen from here. Called by threads; one at a time looks."""

    def __init__(
        self, settings: Settings, token: Secret | None, environ: Mapping[str, str], now: Callable[[], float]
    ) -> None:
        secret = None if token is None else token.reveal()
        self._environ = environ
        self._now = now
        self._far = [AgentSource(target, secret) for target in settings.at]
        self._here: dict[str, AgentSource] = {}
        self._folders = _Folders(tuple(map(os.path.abspath, settings.run_dirs)))
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(_AT_ONCE, "look")
        self._looked_at = float("-inf")
        self._runs: dict[str, list[Found]] = {}
        self._lines: dict[str, tuple[list[tuple[object, ...]], Json]] = {}

    def runs(self) -> list[Json]:
        """Return the runs, those first that still go on."""
        with self._lock:
            self._look()
            told = [self._line(run_id, found) for run_id, found in self._runs.items()]
        return sorted(told, key=lambda one: bool(one["is_over"]))

    def picture(self, run_id: str) -> Json | None:
        """Return the picture of a run."""
        found = self.nodes(run_id)
        return picture([one.seen for one in found]).as_json() if found else None

    def nodes(self, run_id: str) -> list[Found]:
        """Return the nodes of a run; none where there is no such run."""
        with self._lock:
            self._look()
            return list(self._runs.get(run_id, ()))

    def evidence(self, run_id: str, node: str, name: str, file: str) -> bytes | None:
        """Return a file that a node lists as evidence; a name that it does not list is nothing."""
        for one in self.nodes(run_id):
            if one.seen.node == node and any(name == known and file in files for known, files in one.seen.evidence):
                content = _evidence_of(one, name, file)
                if content is not None:
                    return content
        return None

    def order(self, run_id: str, command: str, node: str) -> tuple[bool, str]:
        """Tell the agent of a node to drain, or any agent of a run to stop it."""
        agents = [one.agent for one in self.nodes(run_id) if one.answers and node in ("", one.seen.node)]
        agent = agents[0] if agents else None
        if agent is None:
            return False, "no agent that can be reached answers for it"
        try:
            code, answer = ask(agent.target, "POST", f"/v1/{command}", token=agent.token)
        except NotAnswered as problem:
            return False, f"it may not have been told: {problem}"
        return (True, f"it was told to {command}") if code == 202 else (False, f"refused: {safe_line(str(answer))}")

    def _look(self) -> None:
        if self._now() - self._looked_at < FRESH_S:
            return
        for door in doors_of_ours(self._environ):
            self._here.setdefault(door.path, AgentSource(door))
        agents = [*self._here.values(), *self._far]
        looks = zip(agents, self._pool.map(lambda agent: agent.look(), agents), strict=True)
        told = [Found(seen, agent) for agent, nodes in looks for seen in nodes]
        written = [Found(seen, None) for seen in self._folders.look()]
        self._keep(told)
        self._runs = _by_run(told, written)
        self._lines = {run_id: line for run_id, line in self._lines.items() if run_id in self._runs}
        self._looked_at = self._now()

    def _keep(self, told: list[Found]) -> None:
        """Drop doors behind which nobody ever answered, which are folders left behind, and the oldest of too many."""
        empty = {one.agent for one in told if not one.answers and not one.seen.events}
        kept = [(path, agent) for path, agent in self._here.items() if agent not in empty]
        self._here = dict(kept[-MOST_DOORS:])

    def _line(self, run_id: str, found: list[Found]) -> Json:
        """Return what the list says of a run: made again only while an agent of it answers, or something was written."""
        marks = [one.mark for one in found]
        known = self._lines.get(run_id)
        if known is not None and known[0] == marks and not any(one.answers for one in found):
            return known[1]
        seen = picture([one.seen for one in found])
        is_gone = all(one.age_s is None for one in seen.nodes)
        line = {"run_id": run_id, "state": "gone" if is_gone else seen.state, "is_over": seen.is_over or is_gone}
        self._lines[run_id] = (marks, line)
        return line


class _Folders:
    """The folders of `--run-dir`."""

    def __init__(self, parents: tuple[str, ...]) -> None:
        self._parents = parents
        self._sources: dict[str, FolderSource] = {}
        self._settled: dict[str, tuple[list[float], list[NodeSeen]]] = {}

    def look(self) -> list[NodeSeen]:
        """Read what was written since the last look."""
        folders = [folder for parent in self._parents for folder in run_folders(parent)[:MOST_FOLDERS]]
        return [node for folder in folders for node in self._nodes_in(folder)]

    def _nodes_in(self, folder: str) -> list[NodeSeen]:
        times = _write_times(folder)
        settled = self._settled.get(folder)
        if settled is not None and settled[0] == times:
            return settled[1]
        nodes = self._sources.setdefault(folder, FolderSource(folder)).look()
        if all(one.report is not None for one in nodes):
            self._settled[folder] = (times, nodes)
        return nodes


def _write_times(folder: str) -> list[float]:
    found = []
    for node in node_folders(folder):
        try:
            found.append(os.stat(os.path.join(node, JOURNAL)).st_mtime)
        except OSError:
            found.append(0.0)
    return found


def _by_run(told: list[Found], written: list[Found]) -> dict[str, list[Found]]:
    """Return the nodes of each run. Of an agent that has ended its folder knows more than what was heard last."""
    names = {one.seen.node for one in written}
    runs: dict[str, list[Found]] = {}
    for one in (*told, *written):
        if one.agent is None or one.answers or one.seen.node not in names:
            runs.setdefault(run_id_of(one.seen), []).append(one)
    runs.pop("", None)
    return runs


def _evidence_of(found: Found, name: str, file: str) -> bytes | None:
    if found.agent is None:
        try:
            with open(open_plain(os.path.join(found.seen.source, EVIDENCE, name, file)), "rb") as content:
                return content.read(_LONGEST_EVIDENCE)
        except OSError:
            return None
    path = f"/v1/evidence/{quote(name, safe='')}/{quote(file, safe='')}"
    try:
        answer = fetch(found.agent.target, "GET", path, token=found.agent.token)
    except NotAnswered:
        return None
    return answer.body if answer.status == 200 else None


def run_id_of(node: NodeSeen) -> str:
    """Return the run that a node belongs to; empty when it does not say."""
    named = text(part(node.status, "job"), "run_id") or text(node.report or {}, "run_id")
    return named or next((text(part(one, "metadata"), "run_id") for one in node.events), "")
