"""What /proc knows of the processes of a campaign.

Those of a node carry a mark in their environment. One that has lost it, and its parents, is known all the same: we are a child
subreaper, so that it becomes our child.
"""

from __future__ import annotations

import contextlib
import os
import signal

from planaria.base.linux import is_running, read_file, stat_fields
from planaria.base.text import safe_line
from planaria.process.descendants import children_of, descendants_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

MARK = "PLANARIA_CHAOS_MARK"


def marked(mark: str) -> dict[int, str]:
    """Return the living processes with a mark that begins so, and what they are called."""
    numbers = [int(name) for name in os.listdir("/proc") if name.isdecimal() and int(name) != os.getpid()]
    return {pid: words(pid) for pid in numbers if has_mark(pid, mark) and is_running(pid)}


def has_mark(pid: int, mark: str) -> bool:
    """Tell whether a process has a mark that begins so."""
    wanted = f"{MARK}={mark}".encode()
    return any(one.startswith(wanted) for one in read_file(f"/proc/{pid}/environ").split(b"\0"))


def words(pid: int) -> str:
    """Return what a process is called."""
    found = read_file(f"/proc/{pid}/cmdline", 4096).replace(b"\0", b" ")
    return safe_line(found.decode("utf-8", "replace").strip(), 120)


def strays(launchers: Collection[int]) -> dict[int, str]:
    """Return our living children but the launchers, and all below them: they have lost their parents. The dead are reaped."""
    found: dict[int, str] = {}
    for child in set(children_of(os.getpid())).difference(launchers):
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(child, os.WNOHANG) == (0, 0):
                found |= {pid: words(pid) for pid in (child, *descendants_of(child)) if is_running(pid)}
    return found


def kill_all() -> list[int]:
    """End every process below us; return which lived."""
    living = [pid for pid in descendants_of(os.getpid()) if is_running(pid)]
    kill(living)
    return living


def is_at_work(pid: int) -> bool:
    """Tell whether a process lives and is not stopped."""
    return stat_fields(pid)[:1] not in ([], [b"Z"], [b"X"], [b"T"], [b"t"])


def memory_kib(pid: int) -> tuple[int, int] | None:
    """Return a process's share of anonymous memory, and of shared memory. Files, such as libraries, are not counted:

    its share of those depends on who else uses them.
    """
    rows = (line.split() for line in read_file(f"/proc/{pid}/smaps_rollup").splitlines()[1:])
    sizes = {row[0]: int(row[1]) for row in rows}
    if b"Pss:" not in sizes:
        return None
    shared = sizes.get(b"Pss_Shmem:", 0)
    return sizes.get(b"Pss_Anon:", sizes[b"Pss:"] - shared), shared


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to processes of ours that may be gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill(pids: Iterable[int]) -> None:
    """End processes of ours."""
    send(pids, signal.SIGKILL)
