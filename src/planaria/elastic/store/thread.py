"""A loop in a thread of its own: torch's API blocks its caller, and what meets others must go on meanwhile."""

from __future__ import annotations

import os
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from threading import Event, Lock, current_thread
from typing import TYPE_CHECKING, TypeVar

from planaria.base.loop import Loop
from planaria.store.bridge import Bridge

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Thread

T = TypeVar("T")

_LAST_TURNS = 4  # connections between two things of one loop hear of each other's end
_ENDS_WITHIN_S = 5.0  # a turn of the loop is short; who waits longer for its end waits for a bug


class Over(Exception):
    """Nobody is left to answer, for the reason given."""


class LoopThread:
    """A loop that others post calls to. It holds up nobody's exit."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.problem: BaseException | None = None
        self._bridge = Bridge(self.loop)
        self._lock = Lock()
        self._open: set[Future[object]] = set()
        self._closers: list[Callable[[], object]] = []
        self._has_ended = Event()
        self._pid = os.getpid()
        self._thread: Thread | None = None
        self._bridge.start_thread(self._run)

    @property
    def is_inherited(self) -> bool:
        """Tell whether this is a forked child, which has no part in its parent's threads and must touch no lock of theirs."""
        return os.getpid() != self._pid

    @property
    def has_ended(self) -> bool:
        """Tell whether no call is made any more."""
        return self._has_ended.is_set() or self.is_inherited

    def post(self, call: Callable[[], object]) -> None:
        """Have a call made on the loop; from any thread. After the end it is dropped."""
        if not self.has_ended:
            self._bridge.post(call)

    def at_end(self, close: Callable[[], object]) -> None:
        """Have something closed that lives on the loop, before the loop is; to be called on the loop."""
        self._closers.append(close)

    def not_at_end(self, close: Callable[[], object]) -> None:
        """Forget something that was closed before; to be called on the loop."""
        if close in self._closers:
            self._closers.remove(close)

    def box(self) -> Future[T]:
        """Return a box for an answer from the loop. It is never left without one: the end of the loop is an answer, too."""
        made: Future[T] = Future()
        with self._lock:
            if self.has_ended:
                made.set_exception(self._over())
            else:
                self._open.add(made)  # type: ignore[arg-type]  # whatever it is for, it can be told of the end
        made.add_done_callback(self._forget)
        return made

    def call(self, work: Callable[[], T]) -> T:
        """Do `work` on the loop and return, or raise, what comes of it."""
        box: Future[T] = self.box()

        def do() -> None:
            try:
                put(box, work())
            except Exception as problem:  # noqa: BLE001  # it is the caller's
                put(box, problem=problem)

        self.post(do)
        return box.result()

    def stop(self) -> None:
        """End the loop after its turn, and wait for that."""
        self.post(self.loop.stop)
        self.wait_end(_ENDS_WITHIN_S)

    def wait_end(self, timeout_s: float) -> None:
        """Wait until somebody has ended the loop, unless this is the loop's own thread."""
        if current_thread() is not self._thread and not self.has_ended:
            self._has_ended.wait(timeout_s)
        if self.has_ended and self._thread is not None and self._thread is not current_thread():
            self._thread.join(_ENDS_WITHIN_S)

    def _run(self) -> None:
        self._thread = current_thread()
        try:
            self.loop.run()
        except Exception as problem:  # noqa: BLE001  # a bug of ours has to reach those who wait
            self.problem = problem
        self._close_all()
        with self._lock:
            self._has_ended.set()
            left = tuple(self._open)
        self._bridge.close()
        self.loop.close()
        for box in left:
            put(box, problem=self._over())

    def _close_all(self) -> None:
        for close in reversed(self._closers):
            close()
        for _ in range(_LAST_TURNS):
            self.loop.run_once(0.0)

    def _over(self) -> Over:
        over = Over(f"the thread behind it failed: {self.problem!r}" if self.problem else "it was shut down")
        over.__cause__ = self.problem
        return over

    def _forget(self, box: Future[T]) -> None:
        with self._lock:
            self._open.discard(box)


def put(box: Future[T], answer: T | None = None, problem: BaseException | None = None) -> None:
    """Put an answer into a box, unless there is one: the end may have come first, or who waited has gone."""
    with suppress(InvalidStateError):
        if problem is not None:
            box.set_exception(problem)
        else:
            box.set_result(answer)  # type: ignore[arg-type]  # None is an answer where T has it
