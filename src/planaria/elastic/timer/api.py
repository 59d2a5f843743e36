"""What clients and servers of expiration timers have in common, and `expires`, which is what people use."""

from __future__ import annotations

import abc
import logging
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from planaria.agent.scopes import Scope, Scopes

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RequestQueue", "TimerClient", "TimerRequest", "TimerServer", "configure", "expires"]

logger = logging.getLogger(__name__)


class TimerRequest:
    """What a client asks of a server: begin a timer, or, with a negative `expiration_time`, release it.

    `worker_id` is whatever client and server name a worker by; the wall clock of their common host is what counts.
    """

    __slots__ = ["expiration_time", "scope_id", "worker_id"]

    def __init__(self, worker_id: Any, scope_id: str, expiration_time: float) -> None:
        self.worker_id = worker_id
        self.scope_id = scope_id
        self.expiration_time = expiration_time

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TimerRequest):
            return False
        ours = (self.worker_id, self.scope_id, self.expiration_time)
        return ours == (other.worker_id, other.scope_id, other.expiration_time)

    __hash__ = None  # type: ignore[assignment]  # fields may change, as in torch


class TimerClient(abc.ABC):
    """Begins and releases the timers of the worker that holds it."""

    @abc.abstractmethod
    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Begin a timer for a scope of this worker."""

    @abc.abstractmethod
    def release(self, scope_id: str) -> None:
        """Release it; from then on it counts no more."""


class RequestQueue(abc.ABC):
    """Requests on their way to a server."""

    @abc.abstractmethod
    def size(self) -> int:
        """Return how many requests wait at least; `get` alone takes any away."""

    @abc.abstractmethod
    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        """Return up to `size` requests, waiting for them `timeout` seconds at most."""


class TimerBook:
    """The books of a server: `Scopes`, which count on a clock that nobody sets, and the requests behind them.

    How much time is left is taken when a request arrives; a wall clock that is set later changes nothing.
    """

    def __init__(self) -> None:
        self._scopes = Scopes()
        self._lock = threading.Lock()  # a server's thread and its owner's

    def __len__(self) -> int:
        with self._lock:
            return len(self._scopes)

    @property
    def request_count(self) -> int:
        """Return how many requests were registered."""
        return self._scopes.acquired + self._scopes.released

    def register(self, request: TimerRequest, signal: int) -> None:
        """Begin or release a timer."""
        with self._lock:
            if request.expiration_time < 0:
                self._scopes.release(request.worker_id, request.scope_id)
                return
            left_s = request.expiration_time - time.time()
            scope = _Timed(0, request.scope_id, left_s, time.monotonic(), signal, request)
            self._scopes.acquire(request.worker_id, request.scope_id, scope)

    def drop(self, worker_id: Any) -> None:
        """Forget the timers of a worker."""
        with self._lock:
            self._scopes.drop(worker_id)

    def holders(self) -> list[Any]:
        """Return everybody who has a timer."""
        with self._lock:
            return self._scopes.holders()

    def wait_s(self, longest_s: float) -> float:
        """Return how long it is until the next timer expires, `longest_s` at most."""
        with self._lock:
            when = self._scopes.next_deadline()
        return longest_s if when is None else min(max(when - time.monotonic(), 0.0), longest_s)

    def expired(self, deadline: float) -> list[Any]:
        """Return the requests whose time is over at `deadline` of the wall clock, the earliest first."""
        now = deadline - time.time() + time.monotonic()
        with self._lock:
            return [scope.request for scope in self._scopes.expired(now) if isinstance(scope, _Timed)]


class _Timed(Scope):
    request: TimerRequest


class TimerServer(abc.ABC):
    """Reads requests in a thread of its own and ends workers whose timers expired."""

    def __init__(self, request_queue: RequestQueue, max_interval: float, daemon: bool = True) -> None:
        super().__init__()
        self._request_queue = request_queue
        self._max_interval = max_interval
        self._daemon = daemon
        self._watchdog_thread: threading.Thread | None = None
        self._stop_signaled = False

    @abc.abstractmethod
    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        """Begin and release the timers that were asked for."""

    @abc.abstractmethod
    def clear_timers(self, worker_ids: set[Any]) -> None:
        """Forget the timers of these workers."""

    @abc.abstractmethod
    def get_expired_timers(self, deadline: float) -> dict[str, list[TimerRequest]]:
        """Return the timers that expire at `deadline` or before, by worker."""

    @abc.abstractmethod
    def _reap_worker(self, worker_id: Any) -> bool:
        """End a worker; True when it is ended or an exception says that it cannot be, False to try again."""

    def _reap_worker_no_throw(self, worker_id: Any) -> bool:
        try:
            return self._reap_worker(worker_id)
        except Exception:
            logger.exception(
                "Uncaught exception thrown from _reap_worker(), "
                "check that the implementation correctly catches exceptions"
            )
            return True

    def _watchdog_loop(self) -> None:
        while not self._stop_signaled:
            try:
                self._run_watchdog()
            except Exception:
                logger.exception("Error running watchdog")

    def _run_watchdog(self) -> None:
        batch_size = max(1, self._request_queue.size())
        self.register_timers(self._request_queue.get(batch_size, self._max_interval))
        reaped = set()
        for worker_id, expired_timers in self.get_expired_timers(time.time()).items():
            logger.info("Reaping worker_id=[%s]. Expired timers: %s", worker_id, self._get_scopes(expired_timers))
            if self._reap_worker_no_throw(worker_id):
                logger.info("Successfully reaped worker=[%s]", worker_id)
                reaped.add(worker_id)
            else:
                logger.error("Error reaping worker=[%s]. Will retry on next watchdog.", worker_id)
        self.clear_timers(reaped)

    def _get_scopes(self, timer_requests: list[TimerRequest]) -> list[str]:
        return [request.scope_id for request in timer_requests]

    def start(self) -> None:
        """Begin to watch."""
        logger.info("Starting %s... max_interval=%s, daemon=%s", type(self).__name__, self._max_interval, self._daemon)
        # A thread: the program around it is the user's, and has no loop of ours.
        self._watchdog_thread = threading.Thread(target=self._watchdog_loop, daemon=self._daemon)
        self._watchdog_thread.start()

    def stop(self) -> None:
        """Stop watching; returns after `max_interval` at the latest."""
        logger.info("Stopping %s", type(self).__name__)
        self._stop_signaled = True
        if self._watchdog_thread:
            self._watchdog_thread.join(self._max_interval)
            self._watchdog_thread = None
        else:
            logger.info("No watchdog thread running, doing nothing")


_timer_client: TimerClient | None = None


def configure(timer_client: TimerClient) -> None:
    """Set the client that `expires` uses in this process."""
    global _timer_client  # noqa: PLW0603  torch's interface: one client for a process
    _timer_client = timer_client
    logger.info("Timer client configured to: %s", type(_timer_client).__name__)


@contextmanager
def expires(after: float, scope: str | None = None, client: TimerClient | None = None) -> Iterator[None]:
    """Have this worker ended when the block takes longer than `after` seconds.

    A scope without a name gets that of its place, `file#line`.

    Raises:
        RuntimeError: There is no client: neither given nor configured.
    """
    if client is None:
        if _timer_client is None:
            raise RuntimeError("Configure timer client before using countdown timers.")
        client = _timer_client
    if scope is None:
        caller = sys._getframe(2)  # noqa: SLF001  1 is `contextlib`'s; `inspect.stack` reads source files, a millisecond each time
        scope = f"{caller.f_code.co_filename}#{caller.f_lineno}"
    client.acquire(scope, time.time() + after)
    try:
        yield
    finally:
        client.release(scope)
