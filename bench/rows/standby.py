"""What standbys bring and cost on one node: SIGKILL of a worker → Gloo group or first step again; a job that never fails."""

from __future__ import annotations

import os
import random
import resource
import signal
import time
from typing import TYPE_CHECKING

from harness.children import LIMIT_S, Child
from harness.model import Bench, MeasurementError, Metric, Sample
from harness.processes import descendants, memory

from rows.launch import TWO_WORKERS, script
from rows.loss import direct_start_s
from rows.nodes import WORK_AROUND
from rows.restart import pause

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.model import Launcher, Settings

_PAPERS_FD, _CHANNEL_FD = 1021, 1022  # a standby of planaria has closed the first of them when it is ready


def _measure(launcher: Launcher, settings: Settings) -> Sample:
    return _recover(launcher, settings, "reduce.py")


def _measure_joined(launcher: Launcher, settings: Settings) -> Sample:
    return _recover(launcher, settings, "joined.py")


def _recover(launcher: Launcher, settings: Settings, program: str) -> Sample:
    flags = ("--standbys=auto",) if launcher.name == "planaria" else ()
    begin: list[float] = []
    ready: list[float] = []
    promoted = life = at_once = 0
    argv = (*launcher.command, *TWO_WORKERS, "--max-restarts=100", *flags, script(settings, program))
    with Child(argv, settings.scratch, variables={} if flags else WORK_AROUND) as child:
        pids = [pid for pid, _ in first_group(child.next_line, 0)[1][b"ready"]]
        for _ in range(settings.kills_per_launch):
            standing = _standing(child, len(pids)) if flags else set()
            pause()
            killed_ns = time.monotonic_ns()
            os.kill(pids[1], signal.SIGKILL)
            wanted = life + 1
            life, said = first_group(child.next_line, wanted)
            at_once += life == wanted
            begin.append((max(at for _, at in said[b"begin"]) - killed_ns) / 1e9)
            ready.append((max(at for _, at in said[b"ready"]) - killed_ns) / 1e9)
            pids = [pid for pid, _ in said[b"ready"]]
            promoted += len(standing.intersection(pids))
    facts = {"group formed at the first try": f"{at_once} of {settings.kills_per_launch}"}
    if flags:
        facts["workers of later lives that had stood by"] = f"{promoted} of {2 * settings.kills_per_launch}"
    return Sample({"ready": ready, "begin": begin}, facts)


def _direct(settings: Settings) -> Sample:
    """Start two ranks of the script by hand: what a restart takes at least when nobody has stood by."""
    return Sample({"ready": [direct_start_s(settings)]})


def _measure_cost(launcher: Launcher, settings: Settings) -> Sample:
    """Run the same job without standbys and with them, in an order that changes by chance: the machine drifts."""
    ways = ["without", "auto"]
    random.shuffle(ways)
    found = {way: _whole_job(launcher, settings, "auto" if way == "auto" else "0") for way in ways}
    values: dict[str, list[float]] = {}
    for at, key in enumerate(("wall", "cpu", "pss")):
        values |= {f"{key}_{way}": [found[way][at]] for way in found}
        values[f"{key}_more"] = [found["auto"][at] - found["without"][at]]
    return Sample(values)


def _whole_job(launcher: Launcher, settings: Settings, standbys: str) -> tuple[float, float, float]:
    """Run a job from start to end; return wall seconds, CPU seconds of all its processes, and MB of PSS late in it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = (*launcher.command, *TWO_WORKERS, "--max-restarts=3", f"--standbys={standbys}", script(settings, "train.py"))
    with Child(argv, settings.scratch) as child:
        child.next_line()
        held = memory([child.pid, *descendants(child.pid)])
        moment = child.expect_success()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (moment - child.started_ns) / 1e9, cpu_s, held.pss_kb / 1e3


def first_group(
    next_line: Callable[[], tuple[int, bytes]], wanted: int
) -> tuple[int, dict[bytes, list[tuple[int, int]]]]:
    """Wait for a life, the wanted one or a later, in which both ranks are ready: one that forms no group costs a restart.

    Return its number, and pid and moment of each word that was said in it, by rank.
    """
    lives: dict[int, dict[bytes, dict[int, tuple[int, int]]]] = {}
    while True:
        word, rank, _, count, pid, moment = next_line()[1].split()
        said = lives.setdefault(int(count), {b"begin": {}, b"ready": {}})
        said[word][int(rank)] = int(pid), int(moment)
        if int(count) >= wanted and len(said[b"ready"]) == 2:
            return int(count), {one: [found for _, found in sorted(by_rank.items())] for one, by_rank in said.items()}


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
        "all-reduce in the next life, or in a later one where none formed in that. Wanted beside the goal: five times sooner "
        "than torchrun.",
        metrics=(
            Metric("ready", "worker SIGKILLed → Gloo group ready again, torch script, standbys", "s", goal=0.7),
            Metric("begin", "… → both workers' first lines", "s"),
        ),
        measure=_measure,
        floors={"two ranks of the script started directly → group ready": _direct},
    ),
    Bench(
        name="standby-join",
        title="worker killed → first step of DDP and AdamW again, torch script with `join()`, 1 node, 2 workers, with standbys",
        method="the script imports torch, builds its model and joins; then it makes the process group, DDP and the optimizer, "
        "whose imports are not over when it joins. Rank 1 gets SIGKILL at a random moment while both train, "
        "`--max-restarts=100`, `--standbys=auto`, killed once they are ready. To the last rank's first step in the next life.",
        metrics=(
            Metric("ready", "worker SIGKILLed → first step again, torch script with `join()`, standbys", "s"),
            Metric("begin", "… → both workers out of `join()`", "s"),
        ),
        measure=_measure_joined,
        only=frozenset({"planaria"}),
    ),
    Bench(
        name="standby-cost",
        title="what `--standbys=auto` costs a torch job that never fails, 1 node, 2 workers",
        method="two workers on as many cores train a small model for a fixed number of steps, some 20 s; once without "
        "standbys and once with, in an order that changes by chance. From just before the start to the exit; CPU of all "
        "processes; PSS of all of them after four fifths of the steps.",
        metrics=(
            Metric("wall_more", "longer with standbys, start → exit", "s", compared=False),
            Metric("wall_without", "… without standbys", "s", compared=False),
            Metric("cpu_more", "more CPU with standbys", "s", compared=False),
            Metric("cpu_without", "… without standbys", "s", compared=False),
            Metric("pss_more", "more memory with standbys, PSS", "MB", compared=False),
            Metric("pss_without", "… without standbys", "MB", compared=False),
        ),
        measure=_measure_cost,
        only=frozenset({"planaria"}),
    ),
)
