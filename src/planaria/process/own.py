"""Find what comes from the workers of an agent that lives in somebody else's process.

Such a process has children of its own and may not adopt strangers, so walking down from it (`descendants.py`) is out.
Instead every worker leads a session, and has a variable in its environment that nobody else has: what is in such a session
or carries the variable is a worker or comes from one. Who forks, leaves the session and executes no program is not found.
"""

from __future__ import annotations

import os

from planaria.base import linux, signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

_STATE, _SESSION = 0, 3  # places in /proc/<pid>/stat after the name
_GONE = (b"Z", b"X")


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
    fields = linux.stat_fields(pid)
    if len(fields) <= _SESSION or fields[_STATE] in _GONE:
        return False
    return int(fields[_SESSION]) in sessions or mark in linux.read_file(f"/proc/{pid}/environ").split(b"\0")
