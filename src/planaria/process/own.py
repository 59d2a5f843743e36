"""The workers of an agent that lives in somebody else's process: waited for by pid, found by session and environment.

A process that was not made for being an agent has children of its own, and may not adopt strangers. So `waitpid(-1)` and
walking down from here, which `children.py` and `descendants.py` do, are out. Instead every worker leads a session, and has
a variable in its environment that nobody else has: what is in such a session or carries the variable is a worker or comes
from one. Who forks, leaves the session and never executes a program is not found.
"""

from __future__ import annotations

import os

from planaria.base import linux, signals
from planaria.process.children import decode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from planaria.base.loop import Loop

UNKNOWN_STATUS = 255  # of a child that somebody else in this process waited for
LOOK_S = 0.05  # how often a child is looked at where there are no pidfds
_STATE, _SESSION = 0, 3  # places in /proc/<pid>/stat after the name
_GONE = (b"Z", b"X")


class OwnChildren:
    """Children that were added, and no others. `on_exit(pid, status)` is called once for each."""

    def __init__(self, loop: Loop, on_exit: Callable[[int, int], None]) -> None:
        self._loop = loop
        self._on_exit = on_exit
        self._pidfds: dict[int, int | None] = {}

    @property
    def pids(self) -> frozenset[int]:
        """Return those that have not ended yet, as far as we know."""
        return frozenset(self._pidfds)

    def add(self, pid: int) -> None:
        """Watch a child that was just started."""
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:  # kernels before 5.3 and some sandboxes; SIGCHLD is not ours to handle
            self._pidfds[pid] = None
            self._loop.call_later(LOOK_S, lambda: self._look(pid))
            return
        self._pidfds[pid] = pidfd
        self._loop.on_readable(pidfd, lambda: self._reap(pid))

    def on_sigchld(self) -> None:
        """Do nothing: whose child it was does not say."""

    def kill(self) -> None:
        """End all of them now and wait for it: the loop is not turned any more. What the kernel holds is left to it."""
        for pid in self.pids:
            signal_session(pid, signals.SIGKILL)
        deadline = self._loop.now() + 1.0
        while self._pidfds and self._loop.now() < deadline:
            for pid in self.pids:
                self._reap(pid)
            signals.wait_for_any((), 0.002)

    def _look(self, pid: int) -> None:
        if pid in self._pidfds:
            self._reap(pid)
            self._loop.call_later(LOOK_S, lambda: self._look(pid))

    def _reap(self, pid: int) -> None:
        try:
            found, wait_status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            found, wait_status = pid, UNKNOWN_STATUS << 8
        if found:
            self._forget(pid)
            self._on_exit(pid, decode(wait_status))

    def _forget(self, pid: int) -> None:
        pidfd = self._pidfds.pop(pid)
        if pidfd is not None:
            self._loop.forget(pidfd)
            os.close(pidfd)


def signal_session(pid: int, number: int) -> None:
    """Send a signal to the process group of a worker, or to the worker alone when it has none yet."""
    for send in (os.killpg, os.kill):
        try:
            send(pid, number)
        except ProcessLookupError:
            continue
        except PermissionError:  # it has become another user (a setuid program)
            return
        return


def kill_own(sessions: Collection[int], mark: bytes) -> int:
    """Send SIGKILL to every process in these sessions or with `mark` (`NAME=value`) in its environment; return how many.

    Those that fork meanwhile need another call.
    """
    killed = 0
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid() and _is_own(name, sessions, mark):
            try:
                os.kill(int(name), signals.SIGKILL)
                killed += 1
            except (ProcessLookupError, PermissionError):
                continue
    return killed


def _is_own(pid: str, sessions: Collection[int], mark: bytes) -> bool:
    fields = linux.read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) <= _SESSION or fields[_STATE] in _GONE:
        return False
    return int(fields[_SESSION]) in sessions or mark in linux.read_file(f"/proc/{pid}/environ").split(b"\0")
