"""How a run ends when somebody ends it: politely, or by killing the launcher or its agent outright."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from typing import TYPE_CHECKING

from harness.children import LIMIT_S, Child
from harness.model import Bench, MeasurementError, Metric, Sample
from harness.processes import descendants, wait_for_ends
from harness.stats import NEVER

from rows.idle import workers_of
from rows.launch import TWO_WORKERS, script
from rows.restart import pause

if TYPE_CHECKING:
    from harness.model import Launcher, Settings

_ORPHAN_LIMIT_S = 5.0
_KINDS = ("worker", "child", "daemon", "session", "session-child")


def _measure_term(launcher: Launcher, settings: Settings) -> Sample:
    with Child((*launcher.command, *TWO_WORKERS, script(settings, "sleeper.py")), settings.scratch) as child:
        workers_of(child, 2)
        pause()
        sent_ns = child.signal(signal.SIGTERM)
        ended_ns, status = child.wait()
    facts = {"exit status": str(status), "processes left at exit": str(child.leftovers)}
    return Sample({"term": [(ended_ns - sent_ns) / 1e6]}, facts)


def _grown_tree(path: str, count: int) -> dict[int, str]:
    """Wait until `count` processes have written themselves into the file; return their kinds by pid."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        with open(path, encoding="ascii") as file:
            lines = [line.split() for line in file if line.endswith("\n")]
        if len(lines) == count:
            return {int(pid): kind for kind, pid in lines}
        time.sleep(0.02)
    raise MeasurementError(f"{len(lines)} of {count} processes of the workers' trees began in time")


def _measure_kill(victim: str, launcher: Launcher, settings: Settings) -> Sample:
    path = os.path.join(settings.scratch, "tree")
    with open(path, "wb"):
        pass
    argv = (*launcher.command, *TWO_WORKERS, script(settings, "tree.py"), path)
    with Child(argv, settings.scratch, read_stdout=False) as child:
        kinds = _grown_tree(path, 2 * len(_KINDS))
        pause()
        target = child.pid if victim == "launcher" else descendants(child.pid)[0]  # its one child is the agent
        killed_ns = time.monotonic_ns()
        os.kill(target, signal.SIGKILL)
        ended = wait_for_ends(list(kinds), _ORPHAN_LIMIT_S)
    workers = [pid for pid, kind in kinds.items() if kind == "worker"]
    workers_left = sum(pid not in ended for pid in workers)
    return Sample(
        {"workers": [_last(workers, ended, killed_ns)], "all": [_last(list(kinds), ended, killed_ns)]},
        {
            f"left after {_ORPHAN_LIMIT_S:.0f} s": f"{workers_left} of {len(workers)} workers, "
            f"{len(kinds) - len(ended)} of {len(kinds)} processes"
        },
    )


def _last(pids: list[int], ended: dict[int, int], since_ns: int) -> float:
    if any(pid not in ended for pid in pids):
        return NEVER
    return (max(ended[pid] for pid in pids) - since_ns) / 1e6


def _kill_bench(victim: str, only: frozenset[str]) -> Bench:
    return Bench(
        name=f"kill-{victim}",
        title=f"SIGKILL of the {victim} → anything left",
        method="two workers, each with a child, a daemon (own session, forked twice, empty environment, closed "
        "descriptors, TERM and HUP ignored) and a child in its own session with a child: 10 processes, each watched "
        "through a pidfd for 5 s; what is left is then killed by the benchmark.",
        metrics=(
            Metric("workers", f"SIGKILL of the {victim} → last worker gone", "ms", goal=200.0),
            Metric("all", f"SIGKILL of the {victim} → last descendant gone", "ms", goal=1000.0),
        ),
        measure=partial(_measure_kill, victim),
        only=only,
    )


BENCHES = (
    Bench(
        name="sigterm",
        title="SIGTERM → exit of the launcher",
        method="2 sleeping workers that do not handle SIGTERM; from the signal to the launcher's exit.",
        metrics=(Metric("term", "SIGTERM → exit of the launcher", "ms"),),
        measure=_measure_term,
    ),
    _kill_bench("launcher", frozenset()),
    _kill_bench("agent", frozenset({"planaria"})),  # torchrun's agent is its launcher
)
