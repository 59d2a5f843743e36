"""Workers that report ten steps a second: what watching over their progress costs, in them and in the agent."""

from __future__ import annotations

import os
import time

from harness.children import Child
from harness.model import Bench, Metric, Sample
from harness.processes import usage
from harness.side import agent_of, read, wait_for

from rows.launch import script

TYPE_CHECKING = False
if TYPE_CHECKING:
    from harness.model import Launcher, Settings

WORKERS = 8
_PACE = 10
_STEPS = 50
_GOAL_PERCENT = 0.5


def _measure(launcher: Launcher, settings: Settings) -> Sample:
    side, go = os.path.join(settings.scratch, "steps-side"), os.path.join(settings.scratch, "steps-go")
    with open(side, "wb"):
        pass
    flags = ("--standalone", f"--nproc-per-node={WORKERS}", "--hang-floor=2")
    program = (script(settings, "steps.py"), side, go, str(_STEPS), str(_PACE))
    try:
        with Child((*launcher.command, *flags, *program), settings.scratch) as child:
            wait_for(child, side, b"ready", WORKERS)
            agent = agent_of(child, WORKERS)
            before, began = usage([agent]), time.monotonic()
            with open(go, "wb"):
                pass
            wait_for(child, side, b"done", WORKERS)
            after, seconds = usage([agent]), time.monotonic() - began
            os.unlink(go)
            child.expect_success()
            said = child.last_words()
    finally:
        if os.path.exists(go):
            os.unlink(go)
    spent_ns = [int(line.split()[1]) for line in read(side).splitlines() if line.startswith(b"done")]
    agents = (after.cpu_ns - before.cpu_ns) / 1e9 / seconds / WORKERS * 100
    own = sum(spent_ns) / len(spent_ns) / 1e9 / (_STEPS / _PACE) * 100
    return Sample(
        {"all": [agents + own], "agent": [agents], "worker": [own]},
        {"nobody was called": "yes" if " hangs " not in said else said},
    )


BENCHES = (
    Bench(
        name="progress",
        title=f"progress, {WORKERS} workers, {_PACE} steps a second",
        method=f"`--nproc-per-node={WORKERS} --hang-floor=2`, each worker reports {_PACE} steps a second with two numbers, "
        "every tenth in a phase of its own; CPU time of the agent meanwhile, by worker, and of the reports in the workers, in "
        "percent of a core.",
        metrics=(
            Metric(
                "all",
                f"progress at {_PACE} steps/s: CPU for each worker, its own and the agent's",
                "%",
                goal=_GOAL_PERCENT,
            ),
            Metric("agent", f"progress at {_PACE} steps/s: CPU of the agent for each worker", "%"),
            Metric("worker", f"progress at {_PACE} steps/s: CPU in each worker", "%"),
        ),
        measure=_measure,
        only=frozenset({"planaria"}),
    ),
)
