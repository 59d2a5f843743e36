"""Kill the worker of a job on a GPU again and again: how long each life takes to its phases, and what it lost."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from queue import Empty, Queue
from typing import TYPE_CHECKING

from harness.children import say
from harness.model import OURS
from harness.processes import descendants

if TYPE_CHECKING:
    from harness.model import Launcher

    Life = dict[str, float]

PHASES = ("begin", "imported", "built", "group", "restored", "stepped")
GOALS = {"planaria, standbys, join()": 0.7, "planaria, standbys, without join()": 3.5}
READY_S = 60.0
PATIENCE_S = 90.0
PAUSE_S = 2.5
WORDS = 4  # of a line: what, by which process, when, which number
CLOSING_S = 5.0  # for what was killed to let go of the pipe
_FLAGS = ("--nproc-per-node=1", "--max-restarts=100")
_PAPERS_FD, _CHANNEL_FD = 1021, 1022  # a standby has closed the first of them when it is ready


@dataclass(frozen=True, slots=True)
class Way:
    """How a job comes back. `kind` is what the script is told: join, plain, or disk."""

    name: str
    kind: str
    command: tuple[str, ...]
    is_ours: bool


def ways_of(launchers: list[Launcher]) -> list[Way]:
    """Return the ways of these launchers: ours has its state in memory, another one a checkpoint on disk."""
    found = []
    for one in launchers:
        if one.name == OURS:
            argv = (*one.command, "--standbys=auto", *_FLAGS)
            found.append(Way("planaria, standbys, join()", "join", argv, is_ours=True))
            found.append(Way("planaria, standbys, without join()", "plain", argv, is_ours=True))
        else:
            found.append(Way(f"{one.name}, checkpoint on disk", "disk", (*one.command, *_FLAGS), is_ours=False))
    return found


def environment() -> dict[str, str]:
    """Return that of a job. PYTHONPATH stays: on a machine with a GPU nothing may be installed but torch."""
    return {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}


class Job:
    """A launcher under test. `next` returns the words that its workers say: word, pid, moment, number."""

    def __init__(self, argv: list[str]) -> None:
        self.process = subprocess.Popen(argv, env=environment(), stdout=subprocess.PIPE, text=True)
        self._said: Queue[tuple[str, int, int, int] | None] = Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                _, mark, rest = line.rpartition("@ ")
                words = rest.split() if mark and rest.endswith("\n") else []
                if len(words) == WORDS:  # whoever is killed may leave a line in part
                    word, pid, moment, number = words
                    self._said.put((word, int(pid), int(moment), int(number)))
        self._said.put(None)

    def next(self, within_s: float) -> tuple[str, int, int, int]:
        """Return the next word. Raises Empty when there is none for so long, or never again since the launcher has ended."""
        said = self._said.get(timeout=within_s)
        if said is None:
            self._said.put(None)
            raise Empty
        return said

    def end(self) -> None:
        """Kill it, and all below it."""
        pids = [self.process.pid, *descendants(self.process.pid)]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()
        self._listener.join(CLOSING_S)


def standing(job: Job) -> bool:
    """Tell whether a standby is ready."""
    for pid in descendants(job.process.pid):
        has_papers, has_channel = (os.path.lexists(f"/proc/{pid}/fd/{number}") for number in (_PAPERS_FD, _CHANNEL_FD))
        if has_channel and not has_papers:
            return True
    return False


def lives(argv: list[str], rounds: int, until: float = math.inf) -> list[Life]:
    """Kill the worker again and again; return for each kill the seconds to each phase, and the steps that were lost.

    One that no step follows is the last of this job, and is among them: without `stepped`.
    """
    job, found = Job(argv), []
    try:
        kept = trained = 0
        while True:
            word, pid, _, number = job.next(PATIENCE_S)
            kept = number if word == "kept" else kept
            trained += word == "kept"
            if trained < 3:
                continue
            waited = time.monotonic() + READY_S
            while "--standbys=auto" in argv and not standing(job) and time.monotonic() < waited:
                time.sleep(0.05)
            time.sleep(PAUSE_S)  # a standby that is ready maps and registers memory then; commits go on
            kept = drained(job, kept)
            stood = standing(job)
            killed = time.monotonic_ns()
            os.kill(pid, signal.SIGKILL)
            found.append(life(job, pid, killed, kept) | {"stood by": float(stood)})
            say(f"  {found[-1]}")
            trained = 0
            if not has_stepped(found[-1]) or len(found) == rounds or time.monotonic() > until:
                return found
    except Empty:
        say("  nothing was said for too long")
        return found
    finally:
        job.end()


def drained(job: Job, kept: int) -> int:
    """Return the newest commit that was said to be kept by now."""
    try:
        while True:
            word, _, _, number = job.next(0.0001)
            kept = number if word == "kept" else kept
    except Empty:
        return kept


def life(job: Job, killed_pid: int, killed: int, kept: int) -> Life:
    """Return what the life after a kill says, up to its first step, or as far as it comes."""
    phases: Life = {}
    while not has_stepped(phases):
        try:
            word, pid, moment, number = job.next(PATIENCE_S)
        except Empty:  # a kill that nobody comes back from counts more than any other
            say("  no step followed")
            break
        if pid == killed_pid:
            kept = number if word == "kept" else kept
        elif word in PHASES and moment > killed:
            phases[word] = (moment - killed) / 1e9
            if word == "restored":
                phases["kept steps lost"] = max(0, kept - number)
    return phases


def has_stepped(life_after: Life) -> bool:
    """Tell whether a step followed a kill."""
    return "stepped" in life_after
