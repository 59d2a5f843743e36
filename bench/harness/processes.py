"""Look at processes through /proc, wait for their end exactly, and end everything the benchmark ever started.

The benchmark is a child subreaper: whatever a launcher leaves behind, however detached, becomes its child, so cleaning
up means killing its own descendants, by pid, and nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import time
from dataclasses import dataclass

from harness.model import MeasurementError

_PR_SET_CHILD_SUBREAPER = 36
_CLEAN_UP_LIMIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU time, time ready to run but without a CPU, and context switches of some processes since they began."""

    cpu_ns: int
    waited_ns: int
    switches: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of some processes together. PSS counts a page that n processes share as 1/n in each of them."""

    pss_kb: int
    rss_kb: int
    private_dirty_kb: int


def become_subreaper() -> None:
    """Adopt what children leave behind.

    Raises:
        OSError: The kernel said no.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become a child subreaper")


def children_of_all() -> dict[int, list[int]]:
    """Return every process's children, zombies included."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    return children


def descendants(root: int) -> list[int]:
    """Return the pids below `root`, nearest first."""
    children = children_of_all()
    found = list(children.get(root, ()))
    for pid in found:  # grows while it is walked
        found += children.get(pid, ())
    return found


def end_all_descendants() -> int:
    """Kill and reap everything below this process; return how many were still alive.

    Raises:
        MeasurementError: Something did not die in time.
    """
    deadline = time.monotonic() + _CLEAN_UP_LIMIT_S
    killed: set[int] = set()
    while left := descendants(os.getpid()):
        for pid in left:
            if is_alive(pid):
                killed.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if time.monotonic() > deadline:
            raise MeasurementError(f"{len(left)} processes do not die of SIGKILL")
        time.sleep(0.002)
    return len(killed)


def is_alive(pid: int) -> bool:
    """Tell whether the process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def usage(pids: list[int]) -> Usage:
    """Return nanosecond CPU time (schedstat, not the 10 ms ticks of stat) and context switches of all threads."""
    cpu_ns = waited_ns = switches = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                with open(f"/proc/{pid}/task/{task}/schedstat", "rb") as file:
                    on_cpu, on_queue, _ = file.read().split()
                cpu_ns += int(on_cpu)
                waited_ns += int(on_queue)
                with open(f"/proc/{pid}/task/{task}/status", "rb") as file:
                    switches += sum(int(line.split()[1]) for line in file if b"voluntary_ctxt_switches" in line)
    return Usage(cpu_ns, waited_ns, switches)


def memory(pids: list[int]) -> Memory:
    """Return the memory of the processes together."""
    total = {b"Pss:": 0, b"Rss:": 0, b"Private_Dirty:": 0}
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                words = line.split()
                if words[0] in total:
                    total[words[0]] += int(words[1])
    return Memory(total[b"Pss:"], total[b"Rss:"], total[b"Private_Dirty:"])


def wait_for_ends(pids: list[int], limit_s: float) -> dict[int, int]:
    """Return when each process ended (CLOCK_MONOTONIC, ns), to the event and not to a poll; who lived on is missing."""
    ended: dict[int, int] = {}
    waiting: dict[int, int] = {}
    poll = select.poll()
    try:
        for pid in pids:
            try:
                waiting[os.pidfd_open(pid)] = pid
            except ProcessLookupError:
                ended[pid] = time.monotonic_ns()
        for descriptor in waiting:
            poll.register(descriptor, select.POLLIN)
        return ended | _collect(poll, dict(waiting), time.monotonic() + limit_s)
    finally:
        for descriptor in waiting:
            os.close(descriptor)


def _collect(poll: select.poll, waiting: dict[int, int], deadline: float) -> dict[int, int]:
    ended: dict[int, int] = {}
    while waiting and (left_s := deadline - time.monotonic()) > 0:
        ready = poll.poll(left_s * 1000)
        now = time.monotonic_ns()
        for descriptor, _ in ready:
            poll.unregister(descriptor)
            ended[waiting.pop(descriptor)] = now
    return ended
