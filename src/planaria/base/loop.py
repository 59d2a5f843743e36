"""The event loop: descriptors, timers and nothing else, on `select.epoll` (`import asyncio` alone costs 70 ms).

Single-threaded. An exception from a callback leaves `run` at once: what was ready and not yet handled is still ready,
because descriptors are level-triggered and queued callbacks stay queued.
"""

from __future__ import annotations

import heapq
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Callback = Callable[[], object]

_BATCH = 1024
_LONGEST_WAIT_S = 3600.0  # epoll counts milliseconds in an int; an hourly wake-up costs nothing
_LATE_S = 0.01  # who wakes up later for a timer looks again at what came meanwhile; on time it would be for nothing
_BROKEN = select.EPOLLHUP | select.EPOLLERR
_COMPACT_ABOVE = 64  # cancelled timers tolerated in the heap before it is worth rebuilding


class Timer:
    """A call that is due at a moment of the loop's clock."""

    __slots__ = ("_callback", "_loop", "when")

    def __init__(self, loop: Loop, when: float, callback: Callback) -> None:
        self._loop = loop
        self._callback: Callback | None = callback
        self.when = when

    @property
    def is_pending(self) -> bool:
        """Tell whether the call is still to come."""
        return self._callback is not None

    def cancel(self) -> None:
        """Forget the call. Harmless when it was made or cancelled before."""
        if self._callback is not None:
            self._callback = None
            self._loop._timer_cancelled()  # noqa: SLF001  # the two classes are one thing

    def _take(self) -> Callback | None:
        callback, self._callback = self._callback, None
        return callback


class _Watch:
    """What is to be called for one descriptor."""

    __slots__ = ("mask", "readable", "writable")

    def __init__(self) -> None:
        self.mask = 0
        self.readable: Callback | None = None
        self.writable: Callback | None = None


class Loop:
    """Call back when descriptors are ready and moments have come.

    One turn handles every ready descriptor in the order in which the kernel saw them become ready, then what
    `call_soon` queued, then the timers that are due: a deadline is never acted on before the facts that were known.
    Forget a descriptor before closing it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._epoll = select.epoll()
        self._watches: dict[int, _Watch] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._timer_count = 0
        self._cancelled = 0
        self._soon: list[Callback] = []
        self._stopping = False

    def now(self) -> float:
        """Return the loop's monotonic seconds."""
        return self._clock()

    def fileno(self) -> int:
        """Return a descriptor that is readable while any watched one is ready: for who must not wait inside of `run_once`."""
        return self._epoll.fileno()

    def on_readable(self, fd: int, callback: Callback) -> bool:
        """Call back whenever `fd` has something to read or is broken; replaces an earlier callback.

        Returns False, and watches nothing, for what is always ready: a regular file or a device without `poll`.
        """
        return self._set(fd, callback, self._watches[fd].writable if fd in self._watches else None)

    def on_writable(self, fd: int, callback: Callback) -> bool:
        """Call back whenever `fd` takes bytes; also when it is broken and nobody reads it. See `on_readable`."""
        return self._set(fd, self._watches[fd].readable if fd in self._watches else None, callback)

    def forget_readable(self, fd: int) -> None:
        """Stop calling back for reading; harmless when nobody asked for it."""
        if fd in self._watches:
            self._set(fd, None, self._watches[fd].writable)

    def forget_writable(self, fd: int) -> None:
        """Stop calling back for writing; harmless when nobody asked for it."""
        if fd in self._watches:
            self._set(fd, self._watches[fd].readable, None)

    def forget(self, fd: int) -> None:
        """Stop watching `fd`; harmless when nobody does. A callback that was already due is not made."""
        if fd in self._watches:
            self._set(fd, None, None)

    def call_at(self, when: float, callback: Callback) -> Timer:
        """Call back once `now()` has reached `when`; equal moments keep the order in which they were asked for."""
        timer = Timer(self, when, callback)
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, timer))
        return timer

    def call_later(self, delay_s: float, callback: Callback) -> Timer:
        """Call back `delay_s` from now."""
        return self.call_at(self.now() + delay_s, callback)

    def call_soon(self, callback: Callback) -> None:
        """Call back after every descriptor that is ready now was handled."""
        self._soon.append(callback)

    def run(self) -> None:
        """Turn until `stop` is called; a stop that came first makes this return at once."""
        while not self._stopping:
            self.run_once()
        self._stopping = False

    def stop(self) -> None:
        """Make `run` return after the current turn, which is still completed."""
        self._stopping = True

    def run_once(self, timeout_s: float | None = None) -> None:
        """Make one turn, waiting at most `timeout_s` (None: as long as it takes) for something to do."""
        wait_s, most = self._wait_s(timeout_s), max(_BATCH, len(self._watches))
        ready = self._epoll.poll(wait_s, most)
        if not ready and wait_s and self._timers and self.now() - self._timers[0][0] > _LATE_S:
            # A wait in which the process was stopped (Ctrl-Z, a debugger) ends without a look at the descriptors.
            ready = self._epoll.poll(0.0, most)
        # A number may be closed and opened again within the batch: remember whose event this was.
        for mask, watch in [(mask, self._watches[fd]) for fd, mask in ready if fd in self._watches]:
            if watch.readable is not None and mask & (select.EPOLLIN | _BROKEN):
                watch.readable()
            wanted = select.EPOLLOUT if watch.readable is not None else select.EPOLLOUT | _BROKEN
            if watch.writable is not None and mask & wanted:
                watch.writable()
        for _ in range(len(self._soon)):
            self._soon.pop(0)()
        self._run_timers()

    def close(self) -> None:
        """Drop every watch and timer. The descriptors themselves stay open."""
        self._watches.clear()
        self._timers.clear()
        self._soon.clear()
        self._epoll.close()

    def _set(self, fd: int, readable: Callback | None, writable: Callback | None) -> bool:
        watch = self._watches.get(fd)
        mask = (select.EPOLLIN if readable is not None else 0) | (select.EPOLLOUT if writable is not None else 0)
        if watch is None:
            try:
                self._epoll.register(fd, mask)
            except PermissionError:  # EPERM is how epoll refuses a file that is always ready
                return False
            watch = self._watches[fd] = _Watch()
        elif not mask:
            watch.readable = watch.writable = None
            del self._watches[fd]
            self._epoll.unregister(fd)
            return True
        elif mask != watch.mask:
            self._epoll.modify(fd, mask)
        watch.mask, watch.readable, watch.writable = mask, readable, writable
        return True

    def _wait_s(self, timeout_s: float | None) -> float:
        if self._soon or self._stopping:
            return 0.0
        self._drop_cancelled()
        wait_s = _LONGEST_WAIT_S if timeout_s is None else min(timeout_s, _LONGEST_WAIT_S)
        if self._timers:
            wait_s = min(wait_s, self._timers[0][0] - self.now())
        return max(wait_s, 0.0)

    def _run_timers(self) -> None:
        """Make the calls that are due now; those they ask for wait for the next turn, even with no delay."""
        now, newest = self.now(), self._timer_count
        while self._timers and self._timers[0][0] <= now and self._timers[0][1] <= newest:
            callback = heapq.heappop(self._timers)[2]._take()  # noqa: SLF001  # see Timer.cancel
            if callback is None:
                self._cancelled -= 1
            else:
                callback()

    def _timer_cancelled(self) -> None:
        self._cancelled += 1
        if self._cancelled > _COMPACT_ABOVE and self._cancelled * 2 > len(self._timers):
            # In place: a timer's callback may cancel others while the due ones are being popped.
            self._timers[:] = [entry for entry in self._timers if entry[2].is_pending]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def _drop_cancelled(self) -> None:
        while self._timers and not self._timers[0][2].is_pending:
            heapq.heappop(self._timers)
            self._cancelled -= 1
