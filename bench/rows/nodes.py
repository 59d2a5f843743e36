"""Jobs of several nodes: how they begin, grow, and come back after a worker's death."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from typing import TYPE_CHECKING

from harness.model import OURS, Bench, Metric, Sample
from harness.nodes import Nodes, NoWorldError, World
from harness.stats import NEVER

from rows.restart import pause

if TYPE_CHECKING:
    from harness.model import Launcher, Settings

_PEERS_LIMIT_S = 60.0
WORK_AROUND = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # torchrun's: a new store for the workers of each round
_IMPATIENT = ("--rdzv-conf=last_call_timeout=1",)  # torchrun's 30 s would be most of every start


def _measure_worker(launcher: Launcher, settings: Settings) -> Sample:
    first: list[float] = []
    every: list[float] = []
    with Nodes(launcher, settings, "2", "node.py", flags=("--max-restarts=100",)) as nodes:
        world = nodes.start_world(2)
        for life in range(settings.kills_per_launch):
            pause()
            killed_ns = time.monotonic_ns()
            os.kill(world.pids[life % 2], signal.SIGKILL)  # node 0 has the endpoint, so both cases are in
            world = nodes.wait_for_world(2, killed_ns)
            first.append((world.first_ns - killed_ns) / 1e9)
            every.append((world.last_ns - killed_ns) / 1e9)
    same = "the same on both nodes" if len(set(world.restarts)) == 1 else "different on the two nodes"
    return Sample({"first": first, "every": every}, {"restart counts": same})


def _measure_join(launcher: Launcher, settings: Settings) -> Sample:
    if launcher.name != OURS:
        return _measure_join_of_a_peer(launcher, settings)
    took_s, world = _join(launcher, settings, (), {})
    return Sample({"every": [took_s]}, facts_of(world))


def _measure_join_of_a_peer(launcher: Launcher, settings: Settings) -> Sample:
    """Do as everybody would, where the newcomer waits for keys that nobody writes again, and then with the work-around."""
    try:
        instead = f"{_join(launcher, settings, _IMPATIENT, {})[0]:.1f} s"
    except NoWorldError as problem:
        instead = str(problem)
    facts = {"without the work-around": instead}
    try:
        took_s, world = _join(launcher, settings, _IMPATIENT, WORK_AROUND)
    except NoWorldError as problem:
        return Sample({"every": [NEVER]}, facts | {"with the work-around": str(problem)})
    return Sample({"every": [took_s]}, facts | facts_of(world))


def _join(
    launcher: Launcher, settings: Settings, flags: tuple[str, ...], variables: dict[str, str]
) -> tuple[float, World]:
    with Nodes(launcher, settings, "2:3", "node.py", flags=flags, variables=variables) as nodes:
        nodes.start_world(2)
        pause()
        began_ns = nodes.start()
        world = nodes.wait_for_world(3, began_ns)
    return (world.last_ns - began_ns) / 1e9, world


def facts_of(world: World) -> dict[str, str]:
    return {"restart counts": str(world.restarts), "workers begun in vain": str(world.in_vain)}


def _measure_start(count: int, nnodes: str, launcher: Launcher, settings: Settings) -> Sample:
    with Nodes(launcher, settings, nnodes, "node.py") as nodes:
        began_ns = nodes.start()
        for _ in range(count - 1):
            nodes.start()
        world = nodes.wait_for_world(count, began_ns, limit_s=_PEERS_LIMIT_S)
    return Sample({"every": [(world.last_ns - began_ns) / 1e9]}, {"workers begun in vain": str(world.in_vain)})


def _start_bench(name: str, title: str, count: int, nnodes: str) -> Bench:
    return Bench(
        name=name,
        title=title,
        method=f"`--nnodes={nnodes}`, otherwise defaults, launchers started one right after the other; from just before "
        "the first is started to the last worker's first line. torchrun: 3 rounds, since it waits 30 s for more nodes.",
        metrics=(Metric("every", title, "s", goal=3.0),),
        measure=partial(_measure_start, count, nnodes),
        few_rounds=3,
    )


BENCHES = (
    Bench(
        name="nodes-worker",
        title="worker killed → both nodes' workers of the next life have begun, 2 nodes",
        method="two launchers with one worker each; the workers of node 0 and node 1 get SIGKILL in turn at random "
        "moments, several kills a launch; to the time that the next life's workers read at their first lines.",
        metrics=(
            Metric(
                "every", "worker SIGKILLed → both nodes' workers of the next life have begun, 2 nodes", "s", goal=0.1
            ),
            Metric("first", "worker SIGKILLed → first line of the next life, 2 nodes", "s"),
        ),
        measure=_measure_worker,
    ),
    Bench(
        name="nodes-join",
        title="node joins → everybody's first line in the new world, 2 nodes become 3",
        method="two nodes of `--nnodes=2:3` run sleeping workers; from just before the third launcher is started to the "
        "last of three first lines with WORLD_SIZE 3. torchrun: 3 rounds, each once as it is, for at most 30 s, and once with "
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, which gives its number; both with `last_call_timeout=1`, in its favour.",
        metrics=(
            Metric("every", "node joins → everybody's first line in the new world, 2 nodes become 3", "s", goal=0.5),
        ),
        measure=_measure_join,
        few_rounds=3,
    ),
    _start_bench("nodes-start", "2 agents of `--nnodes=1:3` → both run", 2, "1:3"),
    _start_bench("nodes-lone", "a lone agent of `--nnodes=1:2` → runs", 1, "1:2"),
)
