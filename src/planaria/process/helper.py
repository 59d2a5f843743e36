"""A process that finds something out for us and says it through a pipe. It has its time, and is killed when that is over.

What it looks at may hang, and then it hangs alone. Whoever reaps the children of this process reaps it, too.
"""

from __future__ import annotations

import os

from planaria.base import linux, signals
from planaria.base.value import Value
from planaria.process.running import signal_group
from planaria.process.spawn import Start, spawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planaria.base.loop import Loop, Timer

MOST_BYTES = 1 << 20
_HANDLED = (signals.SIGCHLD, signals.SIGTERM, signals.SIGINT, signals.SIGCONT)


class Order(Value):
    """What is run, and for how long at most; it has `kept_fds` under the same numbers."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    within_s: float
    kept_fds: tuple[int, ...] = ()


class Helper:
    """One of them. `on_heard` is called whenever there is more in `heard`; `on_end` once, unless it was dismissed before.

    Raises:
        OSError: No process or no descriptor is left.
    """

    def __init__(self, loop: Loop, order: Order, on_heard: Callable[[], object], on_end: Callable[[], object]) -> None:
        self._loop = loop
        self._on_heard = on_heard
        self._on_end = on_end
        self.heard = b""
        self.is_late = False
        """It ended because its time was over."""
        self.pid, pipe = _start(order)
        self._pipe: int | None = pipe
        loop.on_readable(pipe, lambda: self._hear(pipe))
        self._timer: Timer = loop.call_later(order.within_s, self._run_out)

    def dismiss(self) -> None:
        """Be done with it: end it, and what it runs."""
        if self._pipe is None:
            return
        self._timer.cancel()
        # It leads a group, as all that we spawn. While there is anybody in it nobody else gets its number.
        if linux.parent_of(self.pid) in (None, os.getpid()):
            signal_group(self.pid, signals.SIGKILL)
        self._loop.forget(self._pipe)
        os.close(self._pipe)  # not before: a broken pipe would be another end
        self._pipe = None

    def _hear(self, pipe: int) -> None:
        try:
            chunk = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return
        self.heard += chunk
        if chunk:
            self._on_heard()
        if self._pipe is not None and (not chunk or len(self.heard) > MOST_BYTES):
            self._end()

    def _run_out(self) -> None:
        self.is_late = True
        self._end()

    def _end(self) -> None:
        self.dismiss()
        self._on_end()


def _start(order: Order) -> tuple[int, int]:
    """Return the pid of a process that runs now, and the pipe that its stdout goes to."""
    pipe, theirs = os.pipe()
    try:
        os.set_blocking(pipe, False)
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            pid = spawn(
                Start(
                    argv=order.argv,
                    environment=order.environment,
                    black_box_fd=nowhere,
                    stdout_fd=theirs,
                    stderr_fd=nowhere,
                    handled_signals=_HANDLED,
                    kept_fds=order.kept_fds,
                )
            )
        finally:
            os.close(nowhere)
    except OSError:
        os.close(pipe)
        raise
    finally:
        os.close(theirs)
    return pid, pipe
