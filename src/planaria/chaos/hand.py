"""The hand that strikes: what is done for every kind of fault. It returns when the fault is over, well or not."""

from __future__ import annotations

import os
import signal
import time

from planaria.base.linux import catches
from planaria.chaos.processes import kill, send
from planaria.contract import chaos as orders

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.chaos.disk import Disk
    from planaria.chaos.job import Job
    from planaria.chaos.model import Fault
    from planaria.chaos.watch import Watch

HEARD_WITHIN_S = 10.0
STOPPED_S, RUNNING_S = 0.08, 0.02  # a worker that is slow runs a fifth of the time
LOST_SHARE = 0.2
FOR_EVER_S = 1e8


class NotNow(Exception):
    """There is nothing to strike at this moment."""


class Stuck(Exception):
    """The campaign cannot go on; the text says why."""


class Hand:
    """Strikes the nodes of a job."""

    def __init__(self, job: Job, watch: Watch, disk: Disk, orders_folder: str) -> None:
        self._job = job
        self._watch = watch
        self._disk = disk
        self._orders = orders_folder

    def strike(self, fault: Fault) -> int | None:
        """Do it; return the step that is safe in spite of it, where only the hand can know.

        Raises:
            NotNow: There is nothing to strike at this moment.
            Stuck: What was done cannot be undone.
        """
        act: Callable[[Fault], int | None] = getattr(self, f"_{fault.kind.replace('-', '_')}")
        return act(fault)

    def _agent(self, fault: Fault) -> int:
        status = self._job.nodes[fault.node].status()
        if status is None:
            raise NotNow("its agent does not answer")
        return int(status["job"]["agent_pid"])

    def _workers(self, fault: Fault) -> list[int]:
        status = self._job.nodes[fault.node].status()
        rows = status["workers"] if status is not None else []
        found = [
            row["pid"] for row in rows if fault.local_rank in (-1, row["local_rank"]) and row["state"] == "running"
        ]
        if not found:
            raise NotNow("it has no such worker at this moment")
        return found

    # Deaths.

    def _kill_worker(self, fault: Fault) -> None:
        kill(self._workers(fault))

    def _kill_agent(self, fault: Fault) -> None:
        node, agent = self._job.nodes[fault.node], self._agent(fault)
        node.is_struck = True
        node.is_littered = fault.variant == "agent and launcher"
        kill(
            {"agent": [agent], "launcher": [node.process.pid]}.get(fault.variant) or [agent, node.process.pid],
        )
        self._job.replace(fault.node)

    def _lose_all(self, _fault: Fault) -> int:
        step = self._disk.step()
        if step is None:
            raise NotNow("there is no commit on disk")
        self._job.lose_all()
        return step

    # Pauses, and what is slow.

    def _pause_worker(self, fault: Fault) -> None:
        self._pause(self._workers(fault), fault.lasts_s)

    def _pause(self, pids: list[int], lasts_s: float) -> None:
        send(pids, signal.SIGSTOP)
        try:
            self._watch.rest(lasts_s)
        finally:
            send(pids, signal.SIGCONT)

    def _pause_node(self, fault: Fault) -> None:
        node, agent = self._job.nodes[fault.node], self._agent(fault)
        workers = [] if fault.variant.startswith("agent alone") else self._workers(fault)
        node.is_silent = True
        self._watch.stopped(workers)
        try:
            self._pause([agent, *([node.process.pid] if workers else []), *workers], fault.lasts_s)
        finally:
            node.is_silent = False
            self._watch.woken(workers)

    def _slow_worker(self, fault: Fault) -> None:
        pids, until = self._workers(fault), time.monotonic() + fault.lasts_s
        while time.monotonic() < until:
            self._pause(pids, STOPPED_S)
            self._watch.rest(RUNNING_S)

    # The network.

    def _slow_network(self, fault: Fault) -> None:
        host = self._job.nodes[fault.node].host
        assert host is not None
        host.lose(LOST_SHARE)
        try:
            self._watch.rest(fault.lasts_s)
        finally:
            host.heal()

    def _cut_network(self, fault: Fault) -> None:
        host = self._job.nodes[fault.node].host
        assert host is not None
        host.cut()
        try:
            self._watch.rest(fault.lasts_s)
        finally:
            host.mend()

    # The disk.

    def _fill_disk(self, fault: Fault) -> None:
        if self._disk.step() is None:
            raise NotNow("there is no commit on disk")
        if why := self._disk.fill():
            raise NotNow(f"the disk cannot be filled: {why}")
        try:
            self._watch.rest(fault.lasts_s)
        finally:
            why = self._disk.empty()
        if why:
            raise Stuck(f"the disk of the commits stays full: {why}")

    def _corrupt_snapshot(self, fault: Fault) -> int | None:
        step = self._disk.corrupt()
        if step is None:
            raise NotNow("there are no two commits on disk")
        if fault.loss != "all":
            return None
        self._job.lose_all()
        return step

    # From within a worker.

    def _hang(self, fault: Fault) -> None:
        self._order(fault, orders.HANG, fault.lasts_s or FOR_EVER_S)

    def _hold_gil(self, fault: Fault) -> None:
        self._order(fault, orders.HOLD_GIL, fault.lasts_s)

    def _order(self, fault: Fault, word: str, lasts_s: float) -> None:
        """Ask a worker to misbehave. One that dies before it hears of it is no trouble; one that does not listen is."""
        (pid,) = self._workers(fault)
        if not catches(pid, orders.SIGNAL):
            raise NotNow(
                "the worker does not listen: it is no Python program, or was started without its start-up file"
            )
        path = os.path.join(self._orders, str(pid))
        with open(path, "w") as file:
            file.write(f"{word} {lasts_s}")
        send([pid], orders.SIGNAL)
        heard = self._watch.wait(lambda: not os.path.exists(path), HEARD_WITHIN_S)
        if not heard and _is_taken_back(path):
            raise NotNow("the worker does not hear: its program has taken the signal, or is stuck in C")
        self._watch.rest(fault.lasts_s)


def _is_taken_back(order: str) -> bool:
    try:
        os.unlink(order)
    except FileNotFoundError:  # heard at the last moment
        return False
    return True
