"""Timers of processes that share a `multiprocessing` queue with their server."""

from __future__ import annotations

import logging
import os
import signal
import time
from queue import Empty
from typing import Any

from planaria.elastic.timer.api import RequestQueue, TimerBook, TimerClient, TimerRequest, TimerServer

__all__ = ["LocalTimerClient", "LocalTimerServer", "MultiprocessingRequestQueue"]

logger = logging.getLogger(__name__)


class LocalTimerClient(TimerClient):
    """Asks through a queue; a worker is named by its pid."""

    def __init__(self, mp_queue: Any) -> None:
        super().__init__()
        self._mp_queue = mp_queue

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Begin a timer for a scope of this process."""
        self._mp_queue.put(TimerRequest(os.getpid(), scope_id, expiration_time))

    def release(self, scope_id: str) -> None:
        """Release it."""
        self._mp_queue.put(TimerRequest(os.getpid(), scope_id, -1))


class MultiprocessingRequestQueue(RequestQueue):
    """Requests in a `multiprocessing` queue."""

    def __init__(self, mp_queue: Any) -> None:
        super().__init__()
        self._mp_queue = mp_queue

    def size(self) -> int:
        """Return how many requests wait."""
        size: int = self._mp_queue.qsize()
        return size

    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        """Return up to `size` requests, waiting for all of them together `timeout` seconds at most."""
        found: list[TimerRequest] = []
        deadline = time.monotonic() + timeout
        while len(found) < size:
            left_s = deadline - time.monotonic()
            try:
                found.append(self._mp_queue.get(block=True, timeout=max(left_s, 0.0)))
            except Empty:
                break
        return found


class LocalTimerServer(TimerServer):
    """Serves processes on this host, usually its own children, and kills those whose timers expire."""

    def __init__(self, mp_queue: Any, max_interval: float = 60, daemon: bool = True) -> None:
        super().__init__(MultiprocessingRequestQueue(mp_queue), max_interval, daemon)
        self._timers = TimerBook()

    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        """Begin and release the timers that were asked for."""
        for request in timer_requests:
            self._timers.register(request, signal.SIGKILL)

    def clear_timers(self, worker_ids: set[int]) -> None:
        """Forget the timers of these processes."""
        for worker_id in worker_ids:
            self._timers.drop(worker_id)

    def get_expired_timers(self, deadline: float) -> dict[Any, list[TimerRequest]]:
        """Return the timers that expire at `deadline` or before, by pid."""
        found: dict[Any, list[TimerRequest]] = {}
        for request in self._timers.expired(deadline):
            found.setdefault(request.worker_id, []).append(request)
        return found

    def _reap_worker(self, worker_id: int) -> bool:
        if worker_id == os.getpid():
            logger.error("A timer of this process expired, which is the server's own: it is not ended")
            return True
        try:
            os.kill(worker_id, signal.SIGKILL)
        except ProcessLookupError:
            logger.info("Process with pid=%s does not exist. Skipping", worker_id)
        except OSError:
            logger.exception("Error terminating pid=%s", worker_id)
            return False
        return True
