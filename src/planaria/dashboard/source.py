"""What the dashboard knows of runs: pictures, the ends of logs, evidence, and who can be told an order."""

from __future__ import annotations

import threading
from operator import is_
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from planaria.agent.journal import EVIDENCE
from planaria.base.text import safe_line
from planaria.dashboard.logs import tail
from planaria.insight.loglines import places
from planaria.insight.picture import picture
from planaria.insight.plainfiles import open_within
from planaria.insight.recall import Recall
from planaria.launch.owner_http import NotAnswered, ask, fetch

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from planaria.dashboard.answers import Json
    from planaria.dashboard.lookout import Found, Lookout
    from planaria.insight.model import NodeSeen, RunSeen

FRESH_S = 0.5  # for how long a look is good
_AT_ONCE = 4  # files of evidence that are asked of agents: each is in memory as a whole, if not for long


class Seen:
    """The runs that can be seen from here. Called by threads; one at a time looks."""

    def __init__(self, lookout: Lookout, now: Callable[[], float]) -> None:
        self._lookout = lookout
        self._now = now
        self._lock = threading.Lock()
        self._looked_at = float("-inf")
        self._runs: dict[str, list[Found]] = {}
        self._fetching = threading.Semaphore(_AT_ONCE)
        self._lines: dict[str, tuple[list[tuple[object, ...]], Json]] = {}
        self._drawn: dict[str, _Drawn] = {}

    def runs(self) -> list[Json]:
        """Return the runs, those first that still go on. One that cannot be read is there with a `why`, and hides no other."""
        with self._lock:
            self._look()
            told = [self._line(run_id, found) for run_id, found in self._runs.items()]
        return sorted(told, key=lambda one: ("why" in one, bool(one["is_over"])))

    def picture(self, run_id: str) -> Json | None:
        """Return the picture of a run."""
        with self._lock:
            self._look()
            found = self._runs.get(run_id)
            return {**self._draw(run_id, found).as_json(), "run_id": run_id} if found else None

    def nodes(self, run_id: str) -> list[Found]:
        """Return the nodes of a run; none where there is no such run."""
        with self._lock:
            self._look()
            return list(self._runs.get(run_id, ()))

    def log_tail(self, run_id: str, rank: int, stream: str) -> Json | None:
        """Return the end of what a rank wrote in the newest round, or why there is none."""
        with self._lock:
            self._look()
            found = list(self._runs.get(run_id, ()))
            recall = self._drawn[run_id].recall if run_id in self._drawn else None
            wanted = places([one.seen for one in found], frozenset({rank}), (stream,), recall)
        if not found:
            return None
        agents = {one.seen.node: one.agent for one in found if one.agent is not None and one.answers}
        for place in wanted:
            content = tail(place, agents.get(place.node))
            if content is not None:
                return {"text": content, "why": "" if content else f"rank {rank} has written nothing to {stream}"}
        why = f"the {stream} of rank {rank} cannot be read now: it is started again, or its file is not to be had here"
        if not wanted:
            why = f"the {stream} of rank {rank} is in no file that is known here: planaria run --tee=3 writes one"
        return {"text": "", "why": why}

    def evidence(self, run_id: str, node: str, name: str, file: str) -> BinaryIO | str | None:
        """Open a file that a node lists as evidence, or say why not; a name that it does not list is nothing."""
        why = None
        for one in self.nodes(run_id):
            if one.seen.node == node and any(name == known and file in files for known, files in one.seen.evidence):
                content = self._evidence_of(one, name, file)
                if content is not None and not isinstance(content, str):
                    return content
                why = why or content
        return why

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

    def _evidence_of(self, found: Found, name: str, file: str) -> BinaryIO | str | None:
        if found.agent is None:
            descriptor = open_within(found.seen.source, EVIDENCE, name, file)
            return None if descriptor is None else open(descriptor, "rb")
        path = f"/v1/evidence/{quote(name, safe='')}/{quote(file, safe='')}"
        try:
            with self._fetching:
                answer = fetch(found.agent.target, "GET", path, token=found.agent.token)
                return _put_aside(answer.body) if answer.status == 200 else None
        except NotAnswered as problem:
            return f"the agent of {safe_line(found.seen.node)} does not answer: {problem}"
        except OSError as problem:
            return f"the file cannot be put aside for sending: {problem.strerror}; TMPDIR has to have room for it"

    def _look(self) -> None:
        if self._now() - self._looked_at < FRESH_S:
            return
        self._runs = self._lookout.look()
        self._lines = {run_id: line for run_id, line in self._lines.items() if run_id in self._runs}
        self._drawn = {run_id: drawn for run_id, drawn in self._drawn.items() if run_id in self._runs}
        self._looked_at = self._now()

    def _line(self, run_id: str, found: list[Found]) -> Json:
        """Return what the list says of a run: made again only while an agent of it answers, or something was written."""
        marks = [one.mark for one in found]
        known = self._lines.get(run_id)
        if known is not None and known[0] == marks and not any(one.answers for one in found):
            return known[1]
        try:
            line = self._short(run_id, found)
        except Exception as problem:  # noqa: BLE001  a run that cannot be drawn must not take the others along
            line = _unreadable(run_id, f"this is a bug of planaria's: {safe_line(repr(problem))}")
        self._lines[run_id] = (marks, line)
        return line

    def _short(self, run_id: str, found: list[Found]) -> Json:
        if not any(one.is_readable for one in found):
            return _unreadable(run_id, found[0].seen.gap)
        seen = self._draw(run_id, found)
        return {"run_id": run_id, "state": seen.state, "is_over": seen.is_past}

    def _draw(self, run_id: str, found: list[Found]) -> RunSeen:
        """Return the picture of what was found, made once: the list and the page of a run ask for the same."""
        nodes = [one.seen for one in found]
        known = self._drawn.get(run_id)
        if known is not None and len(known.nodes) == len(nodes) and all(map(is_, known.nodes, nodes)):
            return known.run
        recall = Recall() if known is None else known.recall
        run = picture(nodes, recall)
        self._drawn[run_id] = _Drawn(nodes, run, Recall() if run.is_over else recall)  # of what is over none follows
        return run


class _Drawn(NamedTuple):
    """A picture, of what it was made, and what the next one need not read again."""

    nodes: list[NodeSeen]
    run: RunSeen
    recall: Recall


def _unreadable(run_id: str, why: str) -> Json:
    return {"run_id": run_id, "state": "unreadable", "is_over": False, "why": why}


def _put_aside(content: bytes) -> BinaryIO:
    file = TemporaryFile()  # noqa: SIM115  whoever sends it closes it
    try:
        file.write(content)
        file.flush()
    except OSError:
        file.close()
        raise
    return file
