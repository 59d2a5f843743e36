"""The job that is struck: its nodes from start to end, and those that take the place of lost ones."""

from __future__ import annotations

import os
import signal
import subprocess
import time

from planaria.base.linux import is_running
from planaria.chaos.model import NodeEnd
from planaria.chaos.nodes import Node
from planaria.chaos.processes import has_mark, kill, kill_all, send, strays, words
from planaria.chaos.seen import world

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from planaria.chaos.hosts import Host
    from planaria.chaos.nodes import Start
    from planaria.chaos.seen import World
    from planaria.chaos.watch import Watch

GONE_WITHIN_S = 5.0  # promised is one second; on a machine that is busy with all this, nobody can measure that
END_WITHIN_S = 30.0  # for the nodes of a job that has ended on one of them
BETWEEN_QUESTIONS_S = 0.1


class Job:
    """The nodes of one job. An era lasts until all of them are lost at once: rounds and restarts count anew then."""

    def __init__(self, start: Start, watch: Watch, nodes: int, world_size: int, hosts: Sequence[Host]) -> None:
        self._start = start
        self._watch = watch
        self._world_size = world_size
        self._hosts = hosts
        self._lives = [0] * nodes
        self._statuses: list[Mapping[str, Any] | None] = []
        self._asked_at = 0.0
        self.era = 0
        self.nodes: list[Node] = []
        self.ends: list[NodeEnd] = []

    def begin(self) -> None:
        """Start all nodes."""
        self.nodes = [self._new(number) for number in range(len(self._lives))]

    def _new(self, number: int) -> Node:
        self._lives[number] += 1
        host = self._hosts[number] if self._hosts else None
        node = Node(f"n{number + 1}", self._lives[number], self._start, host)
        self._watch.add(node, self.era)
        return node

    def statuses(self) -> list[Mapping[str, Any] | None]:
        """Return what every agent says of itself, at most some moments ago."""
        if time.monotonic() - self._asked_at >= BETWEEN_QUESTIONS_S:
            self._statuses = [node.status() for node in self.nodes]
            self._asked_at = time.monotonic()
            for node, status in zip(self.nodes, self._statuses, strict=True):
                if status is not None:
                    self._watch.knows_agent(node, status["job"]["agent_pid"])
        return self._statuses

    def world(self) -> World | None:
        """Return the round that all nodes work in, if there is one."""
        return world(self.statuses(), self._world_size)

    def forget(self) -> None:
        """Ask anew next time."""
        self._asked_at = 0.0

    @property
    def is_over(self) -> bool:
        """Tell whether the job has ended by itself: on every node, or well on one while another was to come back."""
        ended = [node for node in self.nodes if not node.is_running]
        return len(ended) == len(self.nodes) or any(not node.is_struck for node in ended)

    def replace(self, number: int) -> None:
        """Take note of the end of a node that was struck, and start another in its place."""
        self.bury(self.nodes[number])
        self.nodes[number] = self._new(number)
        self.forget()

    def begin_anew(self) -> None:
        """Take note of the end of all nodes, and start the job again."""
        for node in self.nodes:
            self.bury(node)
        self.era += 1
        self.begin()
        self.forget()

    def bury(self, node: Node) -> None:
        """Wait for the end of a launcher, and see what it leaves."""
        self._watch.wait(lambda: not node.is_running, END_WITHIN_S)
        is_late = node.is_running
        if is_late:
            node.process.kill()
        status, at = node.exit_status, time.monotonic()
        self._watch.wait(lambda: not self._left(node), GONE_WITHIN_S)
        left = self._end_left(node)
        self._watch.wait(lambda: not self._end_left(node), GONE_WITHIN_S)
        self._watch.drop(node)
        self.ends.append(NodeEnd(node.name, status, at, node.is_struck, _told(left), node.litter(), is_late))

    def _left(self, node: Node) -> dict[int, str]:
        """Return what still lives of a node whose launcher has ended: with its mark, on its host, or nobody else's."""
        launchers = [other.process.pid for other in self.nodes]
        lost = {pid: what for pid, what in strays(launchers).items() if not has_mark(pid, self._start.mark)}
        on_host = node.host.pids() if node.host is not None else []
        return {**lost, **{pid: words(pid) for pid in on_host if is_running(pid)}, **node.processes()}

    def _end_left(self, node: Node) -> dict[int, str]:
        left = self._left(node)
        kill(left)
        return left

    def lose_all(self) -> None:
        """Kill every process of every node at once, and start the job again."""
        for node in self.nodes:
            node.is_struck = node.is_littered = True
        self._watch.wait(lambda: not kill_all(), GONE_WITHIN_S)
        self.begin_anew()

    def bury_all(self) -> str:
        """Do so for every node of a job that is over; return why that was not right, empty when it was.

        A node that came too late to take part waits for a job that is over, and those beside one that failed wait for another:
        these are ended.
        """
        failed = [node for node in self.nodes if not node.is_running and node.exit_status]
        newcomers = [node for node in self.nodes if node.name not in {worker.node for worker in self._watch.workers()}]
        others = [node for node in self.nodes if node not in newcomers]
        if not failed:
            self._watch.wait(lambda: not any(node.is_running for node in others), END_WITHIN_S)
        late = [node.name for node in others if node.is_running and not failed]
        for node in self.nodes:
            if node.is_running:
                node.is_struck = True
                node.process.send_signal(signal.SIGTERM)
            self.bury(node)
        self.nodes = []
        return f"{', '.join(late)} still ran {END_WITHIN_S:g} s after the job had ended elsewhere" if late else ""

    def end(self) -> None:
        """End whatever still runs, at once."""
        for node in self.nodes:
            pids = node.processes()
            send(pids, signal.SIGCONT)
            kill([node.process.pid] if node.is_running else [])
        for node in self.nodes:
            try:
                node.process.wait(GONE_WITHIN_S)
            except subprocess.TimeoutExpired:
                node.process.kill()
            self._watch.wait(lambda node=node: not node.processes(), GONE_WITHIN_S)  # type: ignore[misc]  # bound now
        if left := strays([]) if not self.nodes else {}:
            self.ends.append(NodeEnd("the job", 0, time.monotonic(), is_ours=True, left=_told(left)))
        self._watch.wait(lambda: not kill_all(), GONE_WITHIN_S)
        self.nodes = []

    def last_words(self, node: str) -> str | None:
        """Return the last line that a node has printed."""
        with open(os.path.join(self._start.logs, f"{node}.out"), errors="replace") as file:
            lines = [line for line in file.read().splitlines() if line.strip()]
        return lines[-1] if lines else None


def _told(left: Mapping[int, str]) -> tuple[str, ...]:
    return tuple(f"pid {pid}: {what}" for pid, what in left.items())
