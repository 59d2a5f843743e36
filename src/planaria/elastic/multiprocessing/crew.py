"""The workers of one context and the private loop that watches them.

The loop turns only while somebody waits, so nothing here may make a worker wait for that: output goes to files, and what
is read is only what functions return.
"""

from __future__ import annotations

import select
import socket
import time

from planaria.base.loop import Loop
from planaria.contract.failure import Failure
from planaria.elastic.multiprocessing.signals import undisturbed
from planaria.process.children import Children
from planaria.process.running import Running, Scene

__all__ = ["Crew", "End"]

_READING_S = 1.0  # how long a look at the crew may take while a large return value is on its way
_PIECE_S = 0.02


class End:
    """How one worker ended. `failure` is None when it ended well."""

    def __init__(self, failure: Failure | None, value: object) -> None:
        self.failure = failure
        self.value = value


class Crew:
    """Workers by local rank. `ends` is in the order in which they ended."""

    def __init__(self) -> None:
        self.loop = Loop()
        self._wake = select.poll()
        self._wake.register(self.loop.fileno(), select.POLLIN)
        self._children = Children(self.loop, self._on_exit)
        self._by_pid: dict[int, Running] = {}
        self.workers: dict[int, Running] = {}
        self.ends: dict[int, End] = {}
        self.is_closed = False

    def add(self, worker: Running) -> None:
        """Watch a worker that was just started."""
        self.workers[worker.local_rank] = self._by_pid[worker.pid] = worker
        self._children.add(worker.pid, worker.status_fd)

    @property
    def alive(self) -> list[Running]:
        """Return the workers that have not ended."""
        return [worker for worker in self.workers.values() if worker.alive]

    def look(self) -> None:
        """Take note of what happened, without waiting for more, except for the rest of what a function is returning."""
        self._turn()
        deadline = time.monotonic() + _READING_S
        while any(worker.is_returning for worker in self.alive) and time.monotonic() < deadline:
            self.wait(_PIECE_S)

    def wait(self, timeout_s: float) -> None:
        """Wait for something to happen, and take note of it. A signal is an exception here, and leaves nothing half done."""
        if not self.is_closed:
            self._wake.poll(max(timeout_s, 0) * 1000)
            self._turn()
        else:
            time.sleep(max(timeout_s, 0))

    def wait_until_dead(self, timeout_s: float) -> None:
        """Wait until no worker is alive, or the time is over."""
        deadline = time.monotonic() + timeout_s
        while self.alive and (left_s := deadline - time.monotonic()) > 0:
            self.wait(left_s)

    def _turn(self) -> None:
        if not self.is_closed:
            with undisturbed():
                self.loop.run_once(0)

    def _on_exit(self, pid: int, status: int) -> None:
        worker = self._by_pid[pid]
        worker.ended(status)
        scene = Scene(socket.gethostname(), self.loop.now())
        if worker.status != 0:
            self.ends[worker.local_rank] = End(worker.failure(scene), None)
            return
        try:
            self.ends[worker.local_rank] = End(None, worker.returned())
        except Exception as problem:  # noqa: BLE001  the classes of the value may raise anything
            self.ends[worker.local_rank] = End(worker.unreadable(problem, scene), None)

    def close(self) -> None:
        """End what the workers left behind, and let go of everything. Dead workers alone are expected here."""
        if self.is_closed:
            return
        with undisturbed():
            self.is_closed = True
            for worker in self.workers.values():
                worker.kill_leftovers()
            self._children.bury()
            for worker in self.workers.values():
                worker.close()
            self.loop.close()
