"""What the launcher costs while its workers work: memory, CPU time, context switches."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from harness.children import Child
from harness.model import Bench, Metric, Sample
from harness.processes import memory, usage

from rows.launch import TWO_WORKERS, script

if TYPE_CHECKING:
    from harness.model import Launcher, Settings

_SETTLE_S = 2.0  # what a launcher still does after its workers began is not idling


def workers_of(child: Child, count: int) -> list[int]:
    """Wait until `count` sleepers have spoken; return their pids in the order of their ranks."""
    pids: dict[int, int] = {}
    while len(pids) < count:
        rank, pid, _restarts, _moment = child.next_line()[1].split()
        pids[int(rank)] = int(pid)
    return [pids[rank] for rank in sorted(pids)]


def _measure_idle(launcher: Launcher, settings: Settings) -> Sample:
    with Child((*launcher.command, *TWO_WORKERS, script(settings, "sleeper.py")), settings.scratch) as child:
        own = child.launcher_pids(workers_of(child, 2))
        time.sleep(_SETTLE_S)
        began_ns, before = time.monotonic_ns(), usage(own)
        time.sleep(settings.idle_window_s)
        after, window_s = usage(own), (time.monotonic_ns() - began_ns) / 1e9
        held = memory(own)
    return Sample(
        {
            "pss": [held.pss_kb / 1e3],
            "rss": [held.rss_kb / 1e3],
            "dirty": [held.private_dirty_kb / 1e3],
            "cpu": [(after.cpu_ns - before.cpu_ns) / 1e6 * 60 / window_s],
            "switches": [(after.switches - before.switches) / window_s],
        },
        {"processes of the launcher": str(len(own))},
    )


BENCHES = (
    Bench(
        name="idle",
        title="memory and CPU of the launcher while 2 workers sleep",
        method="all processes of the launcher together (for planaria launcher = guardian, and agent), 2 s after the "
        "workers' first lines: smaps_rollup, and the difference of every thread's schedstat (ns) and context switches "
        "over the window.",
        metrics=(
            Metric("pss", "launcher memory, PSS", "MB", goal=18.0),
            Metric("rss", "launcher memory, RSS (shared pages counted in each process)", "MB"),
            Metric("dirty", "launcher memory, private dirty", "MB"),
            Metric("cpu", "CPU per idle minute", "ms", goal=10.0),
            Metric("switches", "context switches per second, idle", "/s"),
        ),
        measure=_measure_idle,
    ),
)
