"""Wait for children: workers by pidfd, everything we adopted by SIGCHLD.

Two workers that die in the same millisecond must be told apart: the first is the cause. pidfds in epoll keep that order
(its ready list is first come, first served), `waitpid(-1)` does not. So a worker is reaped through its pidfd, and the
SIGCHLD sweep steps back when it meets one.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop


def decode(wait_status: int) -> int:
    """Return the exit code, or minus the number of the signal that ended the process."""
    return os.waitstatus_to_exitcode(wait_status)


class Children:
    """The agent's children. `on_exit(pid, status)` is called once for each one that was added."""

    def __init__(self, loop: Loop, on_exit: Callable[[int, int], None], on_childless: Callable[[], None]) -> None:
        self._loop = loop
        self._on_exit = on_exit
        self._on_childless = on_childless
        self._pidfds: dict[int, int | None] = {}

    def add(self, pid: int) -> None:
        """Watch a child that was just started."""
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:  # kernels before 5.3 and some sandboxes: SIGCHLD alone has to do
            self._pidfds[pid] = None
            return
        self._pidfds[pid] = pidfd
        self._loop.on_readable(pidfd, lambda: self._reap(pid))

    def _reap(self, pid: int) -> None:
        found, wait_status = os.waitpid(pid, os.WNOHANG)
        if found:
            self._report(pid, wait_status)

    def _report(self, pid: int, wait_status: int) -> None:
        pidfd = self._pidfds.pop(pid)
        if pidfd is not None:
            self._loop.forget(pidfd)
            os.close(pidfd)
        self._on_exit(pid, decode(wait_status))

    def on_sigchld(self) -> None:
        """Reap what the loop's current batch of pidfds leaves over."""
        self._loop.call_soon(self._sweep)

    def _sweep(self) -> None:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                self._on_childless()
                return
            if ended is None:
                return
            if self._pidfds.get(ended.si_pid) is not None:  # its pidfd reports it in order; look again after that
                self._loop.call_soon(self._sweep)
                return
            _, wait_status = os.waitpid(ended.si_pid, 0)
            if ended.si_pid in self._pidfds:
                self._report(ended.si_pid, wait_status)
