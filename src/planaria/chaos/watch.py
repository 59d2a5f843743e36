"""See all that happens to the nodes of a job, many times a second: events, lines, lives of workers, memory of agents."""

from __future__ import annotations

import contextlib
import json
import re
import time
from select import select

from planaria.base.value import replace
from planaria.chaos.model import Memory, Said, Worker
from planaria.chaos.processes import is_at_work, memory_kib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypeVar

    from planaria.chaos.nodes import Node

    T = TypeVar("T")

BETWEEN_LOOKS_S = 0.02  # nobody announces to us what happens to the processes of others
BETWEEN_SAMPLES_S = 1.0
_WENT_ON = re.compile(r"\titeration=(\d+)")


class _Tail:
    """A file that grows, read line by line."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._at = 0

    def lines(self) -> list[str]:
        """Return the whole lines that have come since the last time."""
        with contextlib.suppress(FileNotFoundError), open(self._path, "rb") as file:
            file.seek(self._at)
            fresh = file.read()
            whole = fresh[: fresh.rfind(b"\n") + 1]
            self._at += len(whole)
            return whole.decode("utf-8", "replace").splitlines()
        return []


class _Watched:
    """What is known of a node while it lives."""

    def __init__(self, node: Node, era: int) -> None:
        self.node = node
        self.era = era
        self.events = _Tail(node.events)
        self.err = _Tail(node.err)
        self.round: Mapping[str, Any] = {}
        self.agent = 0


class Watch:
    """The watcher of one campaign. Everything that waits, waits through it."""

    def __init__(self) -> None:
        self._watched: list[_Watched] = []
        self._alive: dict[int, Worker] = {}
        self._ended: list[Worker] = []
        self._sampled_at = 0.0
        self.said: list[Said] = []
        self.memory: dict[str, list[Memory]] = {}
        self.charged: dict[int, int] = {}
        """Restarts that were paid, by era."""

    def add(self, node: Node, era: int) -> None:
        """Watch one more node."""
        self._watched.append(_Watched(node, era))

    def drop(self, node: Node) -> None:
        """Read the last of a node that has ended."""
        self.look()
        self._watched = [one for one in self._watched if one.node is not node]

    def wait(self, found: Callable[[], T | None], timeout_s: float) -> T | None:
        """Return the first answer that is one, looking around between the questions; None: there was none in time."""
        until = time.monotonic() + timeout_s
        while not (answer := found()):
            if time.monotonic() > until:
                return None
            self.rest(BETWEEN_LOOKS_S)
        return answer

    def rest(self, seconds: float) -> None:
        """Let time pass, looking around."""
        until = time.monotonic() + seconds
        while True:
            self.look()
            left = until - time.monotonic()
            if left <= 0:
                return
            select([], [], [], min(left, BETWEEN_LOOKS_S))

    def look(self) -> None:
        """Take note of what is new."""
        for one in self._watched:
            for line in one.events.lines():
                with contextlib.suppress(ValueError, KeyError):
                    self._take(one, json.loads(line))
            for line in one.err.lines():
                went_on = _WENT_ON.match(line)
                self._say(one, line, int(went_on[1]) if went_on else None)
        for pid, worker in list(self._alive.items()):
            now = time.monotonic()  # before the look: it surely was alive then
            if is_at_work(pid):
                self._alive[pid] = replace(worker, last_alive_at=now)
        if time.monotonic() - self._sampled_at >= BETWEEN_SAMPLES_S:
            self._sampled_at = time.monotonic()
            self._sample()

    def _say(self, one: _Watched, text: str, step: int | None = None) -> None:
        self.said.append(Said(time.monotonic(), one.node.name, text, step))

    def _take(self, one: _Watched, event: Mapping[str, Any]) -> None:
        name, facts = event["name"].removeprefix("planaria."), event["metadata"]
        if name == "round.started":
            one.round = facts
            self.charged[one.era] = max(self.charged.get(one.era, 0), facts["restart_count"])
        elif name == "worker.started":
            self._began(one, facts)
        told = {key: value for key, value in facts.items() if key not in ("run_id", "role", "host", "at")}
        self._say(one, f"{name} " + " ".join(f"{key}={value}" for key, value in told.items()))

    def _began(self, one: _Watched, facts: Mapping[str, Any]) -> None:
        pid = facts["pid"]
        if pid in self._alive:
            self._ended.append(self._alive.pop(pid))
        self._alive[pid] = Worker(
            node=one.node.name,
            pid=pid,
            rank=facts["rank"],
            era=one.era,
            round=facts["round"],
            world_size=one.round["world_size"],
            restart_count=one.round["restart_count"],
            started_at=facts["at"],
            last_alive_at=facts["at"],
        )

    def _sample(self) -> None:
        """Look at memory. A worker that has ended is not looked at any more: another process may have its pid one day."""
        for pid in [pid for pid in self._alive if not is_at_work(pid) and memory_kib(pid) is None]:
            self._ended.append(self._alive.pop(pid))
        for one in self._watched:
            kib = memory_kib(one.agent) if one.agent and not one.node.is_silent else None
            if kib is not None:
                self.memory.setdefault(one.node.name, []).append(Memory(time.monotonic(), *kib))

    def knows_agent(self, node: Node, pid: int) -> None:
        """Take note of which process a node's agent is."""
        for one in self._watched:
            if one.node is node:
                one.agent = pid

    def workers(self) -> list[Worker]:
        """Return every worker there was."""
        return [*self._ended, *self._alive.values()]

    # Pauses of whole nodes.

    def stopped(self, pids: Iterable[int]) -> None:
        """Take note that workers were stopped together with their node."""
        self._note(pids, stopped_at=time.monotonic())

    def woken(self, pids: Iterable[int]) -> None:
        """Take note that they were woken."""
        self._note(pids, woken_at=time.monotonic())

    def _note(self, pids: Iterable[int], **changes: float) -> None:
        for pid in pids:
            if pid in self._alive:
                self._alive[pid] = replace(self._alive[pid], **changes)
