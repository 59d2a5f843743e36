"""How long a torch job is away when standbys wait: SIGKILL of a worker → the Gloo process group is ready again, one node."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from harness.children import LIMIT_S, Child
from harness.model import Bench, MeasurementError, Metric, Sample
from harness.processes import descendants

from rows.launch import TWO_WORKERS, script
from rows.nodes import WORK_AROUND
from rows.restart import pause

if TYPE_CHECKING:
    from harness.model import Launcher, Settings

_PAPERS_FD, _CHANNEL_FD = 1021, 1022  # a standby of planaria has closed the first of them when it is ready


def _measure(launcher: Launcher, settings: Settings) -> Sample:
    flags = ("--standbys=auto",) if launcher.name == "planaria" else ()
    begin: list[float] = []
    ready: list[float] = []
    promoted = 0
    argv = (*launcher.command, *TWO_WORKERS, "--max-restarts=100", *flags, script(settings, "reduce.py"))
    with Child(argv, settings.scratch, variables={} if flags else WORK_AROUND) as child:
        pids = [pid for pid, _ in _lines(child, 0)[b"ready"]]
        for life in range(1, settings.kills_per_launch + 1):
            standing = _standing(child, len(pids)) if flags else set()
            pause()
            killed_ns = time.monotonic_ns()
            os.kill(pids[1], signal.SIGKILL)
            said = _lines(child, life)
            begin.append((max(at for _, at in said[b"begin"]) - killed_ns) / 1e9)
            ready.append((max(at for _, at in said[b"ready"]) - killed_ns) / 1e9)
            pids = [pid for pid, _ in said[b"ready"]]
            promoted += len(standing.intersection(pids))
    facts = {"workers of later lives that had stood by": f"{promoted} of {2 * settings.kills_per_launch}"}
    return Sample({"ready": ready, "begin": begin}, facts if flags else {})


def _lines(child: Child, life: int) -> dict[bytes, list[tuple[int, int]]]:
    """Wait until both ranks of a life are ready; return pid and moment of each word they said, by rank."""
    said: dict[bytes, dict[int, tuple[int, int]]] = {b"begin": {}, b"ready": {}}
    while len(said[b"ready"]) < 2:
        word, rank, _, count, pid, moment = child.next_line()[1].split()
        if int(count) == life:
            said[word][int(rank)] = int(pid), int(moment)
    return {word: [found for _, found in sorted(by_rank.items())] for word, by_rank in said.items()}


def _standing(child: Child, count: int) -> set[int]:
    """Wait until so many standbys are ready; return their pids."""
    deadline = time.monotonic() + LIMIT_S
    while len(found := {pid for pid in descendants(child.pid) if _is_ready(pid)}) < count:
        if time.monotonic() > deadline:
            raise MeasurementError(f"{len(found)} of {count} standbys are ready{child.last_words()}")
        time.sleep(0.05)
    return found


def _is_ready(pid: int) -> bool:
    has_papers, has_channel = (os.path.lexists(f"/proc/{pid}/fd/{number}") for number in (_PAPERS_FD, _CHANNEL_FD))
    return has_channel and not has_papers


BENCHES = (
    Bench(
        name="standby",
        title="worker killed → Gloo process group ready again, torch script, 1 node, 2 workers, with standbys",
        method="rank 1 gets SIGKILL at a random moment while both all-reduce, `--max-restarts=100`, several kills a "
        "launch; planaria with `--standbys=auto`, killed once they are ready; torchrun with its shared store switched off "
        "(TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1), since with it no group formed within 60 s. To the last rank's first "
        "all-reduce in the next life.",
        metrics=(
            Metric("ready", "worker SIGKILLed → Gloo group ready again, torch script, standbys", "s", goal=0.7),
            Metric("begin", "… → both workers' first lines", "s"),
        ),
        measure=_measure,
    ),
)
