"""How long a killed worker is away: SIGKILL → the first line of the next life, one node."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING

from harness.children import Child
from harness.model import Bench, MeasurementError, Metric, Sample

from rows.idle import workers_of
from rows.launch import TWO_WORKERS, script

if TYPE_CHECKING:
    from harness.model import Launcher, Settings


def pause() -> None:
    """Wait 0.2-0.35 s, at random: a kill must not keep step with a launcher that polls every 0.1 s."""
    time.sleep(random.uniform(0.2, 0.35))


def _measure(launcher: Launcher, settings: Settings) -> Sample:
    first: list[float] = []
    every: list[float] = []
    argv = (*launcher.command, *TWO_WORKERS, "--max-restarts=100", script(settings, "sleeper.py"))
    with Child(argv, settings.scratch) as child:
        pids = workers_of(child, 2)
        for life in range(1, settings.kills_per_launch + 1):
            pause()
            killed_ns = time.monotonic_ns()
            os.kill(pids[1], signal.SIGKILL)
            lines = [child.next_line()[1].split() for _ in pids]
            if any(int(line[2]) != life for line in lines):
                raise MeasurementError(f"restart count {[int(line[2]) for line in lines]} after {life} kills")
            moments = [int(line[3]) for line in lines]
            first.append((min(moments) - killed_ns) / 1e6)
            every.append((max(moments) - killed_ns) / 1e6)
            pids = [int(line[1]) for line in sorted(lines, key=lambda line: int(line[0]))]
    return Sample({"first": first, "every": every})


def _direct(settings: Settings) -> Sample:
    """Kill a script, see it end, start it again: what any launcher has to do at least."""
    argv = (settings.python, script(settings, "sleeper.py"))
    times: list[float] = []
    for _ in range(settings.kills_per_launch):
        with Child(argv, settings.scratch) as child:
            child.next_line()
            killed_ns = child.signal(signal.SIGKILL)
            child.wait()
            with Child(argv, settings.scratch) as again:
                times.append((int(again.next_line()[1].split()[3]) - killed_ns) / 1e6)
    return Sample({"first": times})


BENCHES = (
    Bench(
        name="restart",
        title="worker killed → new worker's first line, 1 node, 2 workers",
        method="rank 1 gets SIGKILL at a random moment, `--max-restarts=100`, several kills a launch; to the time that "
        "the next life's worker reads at its first line (CLOCK_MONOTONIC).",
        metrics=(
            Metric("first", "worker SIGKILLed → first line of the next life, 1 node", "ms", goal=30.0),
            Metric("every", "worker SIGKILLed → both workers of the next life have begun", "ms"),
        ),
        measure=_measure,
        floors={"kill, wait, start the script directly": _direct},
    ),
)
