"""Signals that a drain has announced wait until the step is over; any other is obeyed at once.

An agent that drains tells its workers first and sends them the owner's signal then. A worker that stops by itself, after its
step, must not die of that signal. But the agent sends SIGTERM for other reasons too, because another rank has failed for
example, and then nothing is left to finish: a process that hangs in a collective with the dead has to go at once. There the
handler of the main thread never runs, so a thread looks at the signals as well.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager, suppress
from time import monotonic

from planaria.base import signals
from planaria.base.linux import unhandle_signal
from planaria.worker import goodbye
from planaria.worker.link import LINK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from planaria.worker.link import Link

# What a launcher handles unless told otherwise.
SIGNALS = (signals.SIGTERM, signals.SIGINT, signals.SIGHUP, signals.SIGQUIT)


def _nothing_lost() -> str:
    return ""


def _stderr_now() -> tuple[int, int] | None:
    """Return which file descriptor 2 is, if this process has a stderr."""
    try:
        found = os.fstat(2)
    except OSError:
        return None
    return None if sys.stderr is None else (found.st_dev, found.st_ino)


def _takes_more(descriptor: int) -> bool:
    import select

    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))


class Deferral:
    """Defers the signal that the agent behind a link has announced. Signals that the program handles itself are left alone."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._before: dict[int, Any] = {}
        self._pipe: tuple[int, int] | None = None
        self._has_begun = False
        self._mask: set[int] | None = None
        self._sets_apart = False
        self._lost: Callable[[], str] = _nothing_lost
        self._stderr: tuple[int, int] | None = None
        os.register_at_fork(before=self._fork, after_in_parent=self._forked, after_in_child=self._be_a_child)

    def begin(self, lost: Callable[[], str] = _nothing_lost) -> None:
        """Take the signals over, in the main thread; elsewhere, and the second time, this does nothing.

        `lost` says what an end at this moment would cost; it is told where that is about to be.
        """
        if self._has_begun or threading.current_thread() is not threading.main_thread():
            return
        self._has_begun = True
        self._lost = lost
        self._stderr = _stderr_now()
        for number in SIGNALS:
            if signals.is_unhandled(number):
                self._before[number] = signals.handler_of(number)  # before ours is there: it needs to know
                signals.set_handler(number, self._handle)
        if self._before:
            self._watch()

    def end(self) -> None:
        """Give the signals back."""
        if not self._has_begun:
            return
        self._has_begun = False
        self._lost = _nothing_lost
        for number, handler in self._before.items():
            signals.set_handler(number, handler)
        self._before = {}
        if self._pipe is not None:
            signals.set_wakeup_fd(-1)
            os.close(self._pipe[1])  # the thread ends with it
            self._pipe = None

    @contextmanager
    def setting_apart(self) -> Iterator[None]:
        """Let children that are forked in here leave the process group at once.

        A signal to the group that meets them while they do is not for them: the loop still needs them.
        """
        self._sets_apart = True
        try:
            yield
        finally:
            self._sets_apart = False

    def _watch(self) -> None:
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        before = signals.set_wakeup_fd(writer, warn_on_full_buffer=False)
        if before != -1:  # somebody else's loop wakes up by it; without the thread, only a hang is noticed late
            signals.set_wakeup_fd(before)
            os.close(reader)
            os.close(writer)
            return
        os.set_blocking(reader, True)
        self._pipe = reader, writer
        # A thread, because a main thread that hangs in a library runs no handler.
        threading.Thread(target=self._look, args=(reader,), name="planaria signals", daemon=True).start()

    def _look(self, reader: int) -> None:
        """Obey SIGTERM at once unless it was announced. The kernel's handler of Python writes each number as a byte.

        After one that was, wait only until the grace is nearly over: whoever is killed in the middle of a step says nothing.
        """
        import select  # not needed by whoever is never asked to stop

        poll = select.poll()
        poll.register(reader, select.POLLIN)
        until: float | None = None
        while True:
            if not poll.poll(None if until is None else max(0, int(1000 * (until - monotonic())))):
                until = None
                self._tell_lost("the grace is nearly over, and this rank's step is not; if it is cut off, ")
            elif heard := os.read(reader, 64):
                said_until = self._heed(heard)
                until = until if said_until is None else said_until  # other signals wake this thread, too
            else:
                break
        os.close(reader)

    def _heed(self, numbers: bytes) -> float | None:
        """Obey what was not announced; of what was, return the moment at which its grace is nearly over."""
        announced = False
        for number in numbers:
            if number not in self._before:
                continue
            if self._is_announced(number):
                announced = True
            elif number != signals.SIGINT:
                self._obey(number)
        drain = self._link.drain() if announced else None
        now = monotonic()
        return None if drain is None else now + goodbye.until_nearly_over_s(drain, now)

    def _tell_lost(self, words: str) -> None:
        """Say what an end in the middle of a step costs, past Python's own stderr: this may have interrupted a write to it.

        Nothing here may keep a signal from being obeyed: neither what the program counts by nor a pipe that nobody reads. And
        descriptor 2 of a process without stderr may be a file of the program's.
        """
        with suppress(Exception):
            lost, self._lost = self._lost(), _nothing_lost
            if lost and self._stderr is not None and self._stderr == _stderr_now() and _takes_more(2):
                os.write(2, f"planaria: {words}{lost}\n".encode())

    def _handle(self, number: int, frame: object) -> None:
        self._link.once_whole(lambda: self._decide(number, frame))

    def _decide(self, number: int, frame: object) -> None:
        if self._is_announced(number):
            return
        before = self._before[number]
        if callable(before):
            before(number, frame)
        else:
            self._obey(number)

    def _is_announced(self, number: int) -> bool:
        drain = self._link.drain()
        return drain is not None and drain.reason == signals.name_of(number)

    def _obey(self, number: int) -> None:
        if self._link.resize() is not None or self._link.drain() is not None:
            self._tell_lost("this rank is ended in the middle of a step: ")
        unhandle_signal(number)
        os.kill(os.getpid(), number)

    def _fork(self) -> None:
        """Hold the signals back: a child that meets one before it has let go of the pipe would wake its parent's thread."""
        if self._before:
            self._mask = signals.block(self._before)

    def _forked(self) -> None:
        if self._mask is not None:
            mask, self._mask = self._mask, None
            signals.restore_mask(mask)

    def _be_a_child(self) -> None:
        """Give the signals back: whoever started this process may end it by one, and waits for that."""
        self._has_begun = False
        if self._before:
            if self._sets_apart:
                os.setpgid(0, 0)
                while signals.wait_for_any(self._before, 0.0) is not None:  # they are held back, so they are all here
                    pass
            signals.set_wakeup_fd(-1)
            for number, handler in self._before.items():
                signals.set_handler(number, handler)
            self._before = {}
        self._forked()


DEFERRAL = Deferral(LINK)
"""This process's own."""
