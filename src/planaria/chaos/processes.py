"""What /proc knows of the processes of a campaign. All of them carry a mark in their environment."""

from __future__ import annotations

import contextlib
import os
import re
import signal

from planaria.base.linux import is_running, read_file, stat_fields
from planaria.base.text import safe_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MARK = "PLANARIA_CHAOS_MARK"
_SHARED = re.compile(rb" (/dev/shm/.*?)(?: \(deleted\))?\n")


def marked(mark: str) -> dict[int, str]:
    """Return the living processes with a mark that begins so, and what they are called."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        variables = read_file(f"/proc/{name}/environ").split(b"\0")
        if any(one.startswith(wanted) for one in variables) and is_running(int(name)):
            words = read_file(f"/proc/{name}/cmdline", 4096).replace(b"\0", b" ")
            found[int(name)] = safe_line(words.decode("utf-8", "replace").strip(), 120)
    return found


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


def shared_files(pid: int) -> set[str]:
    """Return what a process has mapped of /dev/shm."""
    return {os.fsdecode(found) for found in _SHARED.findall(read_file(f"/proc/{pid}/maps", 16 << 20))}


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to processes of ours that may be gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill(pids: Iterable[int]) -> None:
    """End processes of ours."""
    send(pids, signal.SIGKILL)
