"""Find and end every descendant of a process that is a child subreaper.

Orphans are re-parented to the nearest living ancestor that is a subreaper, so walking down from such an ancestor finds
every process it ever caused, however detached: sessions, process groups and environments do not matter.
"""

from __future__ import annotations

import os

from planaria.base import linux, signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def children_of(pid: int) -> list[int]:
    """Return the living or unreaped children of `pid`."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        found += map(int, linux.read_file(f"/proc/{pid}/task/{thread}/children").split())
    return found or _children_by_scan(pid)


def _children_by_scan(pid: int) -> list[int]:
    """Do the same on kernels built without CONFIG_PROC_CHILDREN, by asking every process for its parent."""
    if os.path.exists(f"/proc/{pid}/task/{pid}/children"):
        return []
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and linux.parent_of(int(name)) == pid]


def descendants_of(pid: int) -> list[int]:
    """Return every process below `pid`, parents before their children."""
    found: list[int] = []
    waiting = children_of(pid)
    while waiting:
        found += waiting
        waiting = [child for parent in waiting for child in children_of(parent)]
    return found


def kill_descendants(pid: int, spared: frozenset[int] = frozenset()) -> int:
    """Send SIGKILL to everything below `pid`; return how many were ours to kill.

    Children of `pid` in `spared`, and what is below them, are left alone, and so is what has become another user's. Those
    that fork meanwhile need another call.
    """
    ours = 0
    waiting = [child for child in children_of(pid) if child not in spared]
    while waiting:
        below = [child for parent in waiting for child in children_of(parent)]
        for victim in waiting:
            try:
                os.kill(victim, signals.SIGKILL)
                ours += 1
            except (ProcessLookupError, PermissionError):
                continue
        waiting = below
    return ours


def end_descendants(timeout_s: float, clock: Callable[[], float], spared: frozenset[int] = frozenset()) -> bool:
    """Kill and reap everything below this process but the children in `spared`, blocking; tell whether nothing is left.

    Kernel threads of a driver can hold a dead process for long (state D); `timeout_s` bounds that.
    """
    signals.block([signals.SIGCHLD])
    deadline = clock() + timeout_s
    while True:
        killed = kill_descendants(os.getpid(), spared)
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                continue
        except ChildProcessError:
            return True
        if spared.issuperset(children_of(os.getpid())):
            return True
        left_s = deadline - clock()
        if left_s <= 0 or not killed:
            return False
        # A child's death wakes us; a new grandchild does not, hence the short limit before looking again.
        signals.wait_for_any([signals.SIGCHLD], min(left_s, 0.01))
