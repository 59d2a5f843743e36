"""How long N agents take to meet, and what it costs: the shipped driver on real sockets, many agents in a process."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from typing import TYPE_CHECKING

from harness.model import Bench, MeasurementError, Metric, Sample

from rows.launch import script

if TYPE_CHECKING:
    from harness.model import Launcher, Settings

_GOALS_S = {64: None, 256: 0.3, 1024: 1.0, 4096: 3.0}
_GOAL_BYTES = 1024.0
_TIMEOUT_S = 120.0


def _measure(count: int, _launcher: Launcher, settings: Settings) -> Sample:
    done = subprocess.run(
        [settings.python, script(settings, "meet.py"), str(count)],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise MeasurementError(done.stderr.strip()[-300:])
    found = json.loads(done.stdout)
    return Sample(
        {
            "seconds": [found["seconds"]],
            "leader": [found["leader_cpu_s"] * 1e3],
            "member": [found["member_cpu_ms"]],
            "bytes": [found["bytes"]],
            "messages": [found["messages"]],
        }
    )


def _bench(count: int, goal_s: float | None) -> Bench:
    return Bench(
        name=f"rendezvous-{count}",
        title=f"rendezvous of {count:,} agents",
        method="two processes: the leader, and all the others, each with a listener and connections of its own; from the first "
        "of the others' first step until the last agent is told to start its workers. CPU of the leader's process, and of the "
        "others' divided by their number; bytes in both directions, handshakes and questions included.",
        metrics=(
            Metric("seconds", "until the last has started", "s", goal=goal_s),
            Metric("leader", "CPU of the leader", "ms"),
            Metric("member", "CPU of each other agent", "ms"),
            Metric("bytes", "bytes for each agent, both ways", "B", goal=_GOAL_BYTES),
            Metric("messages", "most messages that one agent was sent", "", compared=False),
        ),
        measure=partial(_measure, count),
        only=frozenset({"planaria"}),
    )


BENCHES = tuple(_bench(count, goal_s) for count, goal_s in _GOALS_S.items())
