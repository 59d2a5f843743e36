"""Wait for children: workers by pidfd, everything we adopted by SIGCHLD.

Two workers that die in the same millisecond must be told apart: the first is the cause. pidfds in epoll keep that order
(its ready list is first come, first served), `waitpid(-1)` does not. So a worker is reaped through its pidfd, and the
SIGCHLD sweep steps back when it meets one.

A process with a lifeline (see `contract.blackbox.LIFELINE`) is heard of before it is gone: taking the memory of a device back
can last half a second, in which nothing of the program runs any more.

In a process that has other children (an embedded agent) only those that were added are waited for, each by itself, and the
dead stay unburied until `bury`: as long as a zombie holds its number, what is left of its process group can be found.
"""

from __future__ import annotations

import os
import sys

from planaria.base import linux
from planaria.process.descendants import children_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop


LOST_STATUS = 256
"""Stands for a status that somebody else took: another part of this program reaps all children, or a fork server died.

No process can end with it: statuses go up to 255.
"""
_LOOK_AGAIN_S = 0.05
_STATUS_BYTES = 8  # a fork server sends a native long long


def decode(wait_status: int) -> int:
    """Return the exit code, or minus the number of the signal that ended the process."""
    return os.waitstatus_to_exitcode(wait_status)


class Children:
    """The agent's children. `on_exit(pid, status)` is called once for each one that was added.

    Without `on_childless` the process has other children too, which are left alone: then nobody calls `on_sigchld`. Those
    in `spared()` do not count: who has no others is childless. The end of one that `is_replaced(pid)` is told as soon as it is
    dying for certain; from then on it does not count either, until `count_the_dying`.
    """

    def __init__(
        self,
        loop: Loop,
        on_exit: Callable[[int, int], None],
        on_childless: Callable[[], None] | None = None,
        spared: Callable[[], frozenset[int]] = frozenset,
        is_replaced: Callable[[int], bool] = lambda _pid: False,
    ) -> None:
        self._loop = loop
        self._on_exit = on_exit
        self._on_childless = on_childless
        self._spared = spared
        self._pidfds: dict[int, int | None] = {}
        self._unburied: list[int] = []
        self._is_replaced = is_replaced
        self._lifelines: dict[int, int] = {}
        self._dying: set[int] = set()
        self._dying_count = False

    def add(self, pid: int, status_fd: int | None = None, lifeline: int | None = None) -> None:
        """Watch a child that was just started, or a fork server's, which sends the status through `status_fd`: ours now.

        So is `lifeline`, which nobody else holds open once the process is dying.
        """
        if lifeline is not None:
            self._lifelines[pid] = lifeline
            self._loop.on_readable(lifeline, lambda: self._on_lifeline(pid))
        if status_fd is not None:
            self._pidfds[pid] = status_fd
            self._loop.on_readable(status_fd, lambda: self._hear(pid, status_fd))
            return
        look = self._reap if self._on_childless is not None else self._look
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:  # kernels before 5.3 and some sandboxes: SIGCHLD alone has to do, or looking now and then
            self._pidfds[pid] = None
            if self._on_childless is None:
                self._look(pid)
            return
        self._pidfds[pid] = pidfd
        self._loop.on_readable(pidfd, lambda: look(pid))

    def bury(self) -> None:
        """Reap the dead that were kept for the sake of their process groups."""
        unburied, self._unburied = self._unburied, []
        for pid in unburied:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:  # somebody else did it
                continue

    def _reap(self, pid: int) -> None:
        found, wait_status = os.waitpid(pid, os.WNOHANG)
        if found:
            self._report(pid, decode(wait_status))

    def _look(self, pid: int) -> None:
        try:
            seen = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            self._report(pid, LOST_STATUS)
            return
        if seen is not None:
            self._unburied.append(pid)
            self._report(pid, seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status)
        elif self._pidfds[pid] is None:
            self._loop.call_later(_LOOK_AGAIN_S, lambda: self._look(pid))

    def _hear(self, pid: int, status_fd: int) -> None:
        told = os.read(status_fd, _STATUS_BYTES)
        self._report(pid, int.from_bytes(told, sys.byteorder, signed=True) if told else LOST_STATUS)

    def _on_lifeline(self, pid: int) -> None:
        """Tell an end before the kernel does, if it is one: a program may close what it does not know."""
        self._let_go(self._lifelines.pop(pid))
        status = linux.dying_status(pid)
        if status is not None and self._pidfds.get(pid) is not None and self._is_replaced(pid):
            self._dying.add(pid)
            self._on_exit(pid, status)

    def count_the_dying(self) -> None:
        """Be childless only when none is left, from now on: nobody takes their place."""
        self._dying_count = True

    def _report(self, pid: int, status: int) -> None:
        pidfd = self._pidfds.pop(pid)
        if pidfd is not None:
            self._let_go(pidfd)
        if pid in self._lifelines:
            self._let_go(self._lifelines.pop(pid))
        if pid in self._dying:
            self._dying.discard(pid)
        else:
            self._on_exit(pid, status)

    def _let_go(self, descriptor: int) -> None:
        self._loop.forget(descriptor)
        os.close(descriptor)

    def on_sigchld(self) -> None:
        """Reap what the loop's current batch of pidfds leaves over."""
        self._loop.call_soon(self._sweep)

    def _sweep(self) -> None:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                if self._on_childless is not None:
                    self._on_childless()
                return
            if ended is None:
                self._look_whether_childless()
                return
            if self._pidfds.get(ended.si_pid) is not None:  # its pidfd reports it in order; look again after that
                self._loop.call_soon(self._sweep)
                return
            _, wait_status = os.waitpid(ended.si_pid, 0)
            if ended.si_pid in self._pidfds:
                self._report(ended.si_pid, decode(wait_status))

    def _look_whether_childless(self) -> None:
        """Do what the kernel does not: tell when only those are left that do not count."""
        spared = self._spared()
        dying: set[int] = set() if self._dying_count else self._dying
        if self._on_childless is None or not (spared or dying):
            return
        left = [pid for pid in children_of(os.getpid()) if pid not in spared]
        if dying.issuperset(left) and not any(map(children_of, left)):
            self._on_childless()
