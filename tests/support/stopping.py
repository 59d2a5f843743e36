"""How tests stop a process: SIGSTOP returns before anything has stopped, and on a busy machine long before."""

from __future__ import annotations

import contextlib
import glob
import os
import signal

from waiting import wait_until


def stop(*pids: int) -> None:
    """Stop these processes, all of them before anybody can notice that one is, and wait until no thread of them runs."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: not any(map(_runs, pids)), f"processes {pids} stand still")


def _runs(pid: int) -> bool:
    return any(_state(path) not in ("T", "t", "Z", "X", "") for path in glob.glob(f"/proc/{pid}/task/*/stat"))


def _state(path: str) -> str:
    """Return a thread's one-letter state, empty when it is gone."""
    try:
        with open(path) as file:
            return file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
