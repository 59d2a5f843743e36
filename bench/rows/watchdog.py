"""64 workers that open and close watchdog scopes: is every one heard, and what does the agent pay."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from harness.children import Child
from harness.model import Bench, Metric, Sample
from harness.processes import usage
from harness.side import agent_of, read, wait_for

from rows.launch import script

if TYPE_CHECKING:
    from harness.model import Launcher, Settings

WORKERS = 64
_PAIRS = 500  # each: long enough to last a second or two, short enough for a quick run
_PACE = (
    200  # a second and worker, 12,800 in all: torch's client raises when the pipe is full, so its pipe must never be
)
_LIMIT_S = 2.0
_ENABLED = {"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}


def _measure(kind: str, pace: int, launcher: Launcher, settings: Settings) -> Sample:
    side, go = os.path.join(settings.scratch, "scopes-side"), os.path.join(settings.scratch, "scopes-go")
    with open(side, "wb"):
        pass
    flags = ("--standalone", f"--nproc-per-node={WORKERS}", "--max-restarts=0")
    program = (script(settings, "scopes.py"), kind, side, go, str(_PAIRS), str(_LIMIT_S), str(pace))
    try:
        with Child((*launcher.command, *flags, *program), settings.scratch, variables=_ENABLED) as child:
            wait_for(child, side, b"ready", WORKERS)
            agent = agent_of(child, WORKERS)
            before = usage([agent])
            with open(go, "wb"):
                pass
            wait_for(child, side, b"done", WORKERS)
            after = usage([agent])
            child.expect_success()  # a release that was lost would have ended a worker, and with it the job
            said = child.last_words()
    finally:
        if os.path.exists(go):
            os.unlink(go)
    spans = [line.split()[1:] for line in read(side).splitlines() if line.startswith(b"done")]
    seconds = (max(int(end) for _, end in spans) - min(int(begin) for begin, _ in spans)) / 1e9
    pairs = WORKERS * _PAIRS
    return Sample(
        {
            "time": [seconds / pairs * 10_000],
            "cpu": [(after.cpu_ns - before.cpu_ns) / 1e6 / pairs * 10_000],
            "rate": [pairs / seconds],
        },
        {"every release heard, no complaint": "yes" if "watchdog" not in said else said},
    )


def _bench(name: str, kind: str, pace: int, title: str) -> Bench:
    speed = f"{pace} times a second" if pace else "as fast as it can"
    what = f"watchdog, {WORKERS} workers, {title}"
    return Bench(
        name=name,
        title=f"{what}: scopes opened and closed",
        method=f"`--nproc-per-node={WORKERS}`, each worker opens and closes {_PAIRS} scopes, {speed}, all on the "
        "same cores; from the first to the moment the agent has read the last. A release that were lost would end its "
        f"worker {_LIMIT_S:.0f} s later and fail the round: the workers stay for longer. Agent alone: its CPU time meanwhile.",
        metrics=(
            Metric("time", f"{what}: 10,000 pairs", "s", goal=1.0),
            Metric("cpu", f"{what}: CPU of the agent for 10,000 pairs", "ms"),
            Metric("rate", f"{what}: pairs a second, all workers (10,000 wanted)", "pairs/s", compared=False),
        ),
        measure=partial(_measure, kind, pace),
        only=frozenset({"planaria"}),
    )


BENCHES = (
    _bench("watchdog", "socket", 0, "our scopes"),
    _bench("watchdog-pipe", "pipe", _PACE, "torch's pipe"),
)
