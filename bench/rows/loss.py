"""A node is lost, with a bang or in silence, or it was the store's host: when do the others work again?"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from harness.children import Child
from harness.model import OURS, Bench, MeasurementError, Metric, Sample
from harness.nodes import LIMIT_S, Nodes, NoWorldError, free_port
from harness.stats import NEVER

from rows.launch import script
from rows.nodes import WORK_AROUND, facts_of
from rows.restart import pause

if TYPE_CHECKING:
    from harness.model import Launcher, Settings

_TTL_S = 5.0
_PEERS_LIMIT_S = 60.0
_GLOO_LIMIT_S = 90.0
_NO_RESTARTS = ("--max-restarts=0",)


def _measure_idle(victim: int, number: signal.Signals, launcher: Launcher, settings: Settings) -> Sample:
    with Nodes(launcher, settings, "1:3", "node.py", flags=_NO_RESTARTS) as nodes:
        nodes.start_world(3)
        pause()
        struck_ns = nodes.strike(victim, number)
        try:
            world = nodes.wait_for_world(2, struck_ns, limit_s=_limit_s(launcher))
        except NoWorldError as problem:
            if launcher.name == "planaria":
                raise
            return Sample({"every": [NEVER]}, {"instead": str(problem)})
    return Sample({"every": [(world.last_ns - struck_ns) / 1e9]}, facts_of(world))


def _limit_s(launcher: Launcher) -> float:
    return LIMIT_S if launcher.name == OURS else _PEERS_LIMIT_S


def _measure_gloo(launcher: Launcher, settings: Settings) -> Sample:
    if launcher.name != OURS:
        return _measure_gloo_of_a_peer(launcher, settings)
    before_s = direct_start_s(settings)
    begin_s, ready_s, facts = _lose_one_of_three(launcher, settings, _NO_RESTARTS, {}, LIMIT_S)
    direct_s = (before_s + direct_start_s(settings)) / 2  # a machine that drifts meanwhile does so in both directions
    if facts["restart counts"] != "[0, 0]":
        raise MeasurementError(f"restart counts {facts['restart counts']} after the loss of a node")
    return Sample({"ready": [ready_s], "over": [ready_s - direct_s], "direct": [direct_s], "begin": [begin_s]}, facts)


def _measure_gloo_of_a_peer(launcher: Launcher, settings: Settings) -> Sample:
    """Do as asked once, which its workers' crashes end, and once with all that helps it."""
    try:
        _, ready_s, _ = _lose_one_of_three(launcher, settings, _NO_RESTARTS, {}, _PEERS_LIMIT_S)
        instead = f"ready after {ready_s:.1f} s"
    except NoWorldError as problem:
        instead = str(problem)
    facts = {"with --max-restarts=0": instead}
    try:
        begin_s, ready_s, seen = _lose_one_of_three(
            launcher, settings, ("--max-restarts=3",), WORK_AROUND, _GLOO_LIMIT_S
        )
    except NoWorldError as problem:
        return Sample({"ready": [NEVER], "begin": [NEVER]}, facts | {"with 3 restarts": str(problem)})
    return Sample({"ready": [ready_s], "begin": [begin_s]}, facts | seen)


def _lose_one_of_three(
    launcher: Launcher, settings: Settings, flags: tuple[str, ...], variables: dict[str, str], limit_s: float
) -> tuple[float, float, dict[str, str]]:
    """Return seconds from the kill of a node of a Gloo job to the others' first lines and to their process group."""
    with Nodes(launcher, settings, "1:3", "reduce.py", flags=flags, variables=variables) as nodes:
        nodes.start_world(3, "ready", 2 * LIMIT_S)
        pause()
        struck_ns = nodes.strike(2, signal.SIGKILL)
        ready = nodes.wait_for_world(2, struck_ns, "ready", limit_s)
        begin = nodes.wait_for_world(2, struck_ns)
    return (begin.last_ns - struck_ns) / 1e9, (ready.last_ns - struck_ns) / 1e9, facts_of(begin)


def direct_start_s(settings: Settings) -> float:
    """Return how long two ranks of the script need to a process group when nobody but us starts them."""
    port = free_port()
    with ExitStack() as stack:
        ranks = []
        for rank in range(2):
            variables = {"RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "0"}
            variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            scratch = os.path.join(settings.scratch, f"node-{rank}")
            os.makedirs(scratch, exist_ok=True)
            argv = (settings.python, script(settings, "reduce.py"))
            ranks.append(stack.enter_context(Child(argv, scratch, variables=variables)))
        return (max(map(_ready_ns, ranks)) - ranks[0].started_ns) / 1e9


def _ready_ns(rank: Child) -> int:
    while not (line := rank.next_line()[1]).startswith(b"ready"):
        pass
    return int(line.split()[-1])


_LOSS = (
    "three nodes of `--nnodes=1:3 --max-restarts=0` with a sleeping worker each; {what}; to the last of two first lines "
    "with WORLD_SIZE 2. torchrun: once, for at most 60 s."
)

BENCHES = (
    Bench(
        name="nodes-kill",
        title="node killed → survivors' first lines in the new world, idle workers",
        method=_LOSS.format(what="every process of node 2, launcher included, gets SIGKILL at one moment"),
        metrics=(Metric("every", "node SIGKILLed → both survivors' first lines in the new world", "s", goal=1.0),),
        measure=partial(_measure_idle, 2, signal.SIGKILL),
        few_rounds=1,
    ),
    Bench(
        name="nodes-kill-gloo",
        title="node killed → survivors' process group ready again, Gloo job",
        method="the same with workers that all-reduce over Gloo all the time; to the last survivor's first all-reduce in "
        "the new world, and beside it what two ranks of the same script need when started directly, the mean of once "
        "before and once after. A restart count above 0 is a failed round. torchrun: 3 rounds, each once as told, and "
        "once with `--max-restarts=3`, its shared store switched off (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1), which gives its "
        "numbers.",
        metrics=(
            Metric("ready", "node SIGKILLed → process group of both survivors ready, Gloo job", "s"),
            Metric("over", "… less a direct start of the same script", "s", goal=0.7),
            Metric("direct", "… a direct start of the same script, two ranks", "s", compared=False),
            Metric("begin", "… → both survivors' first lines in the new world", "s"),
        ),
        measure=_measure_gloo,
        few_rounds=3,
    ),
    Bench(
        name="nodes-silent",
        title="node falls silent → survivors' first lines in the new world",
        method=_LOSS.format(what="every process of node 2 gets SIGSTOP; the TTL is the default, 5 s"),
        metrics=(
            Metric("every", "node SIGSTOPped → both survivors' first lines in the new world", "s", goal=_TTL_S + 1.0),
        ),
        measure=partial(_measure_idle, 2, signal.SIGSTOP),
        few_rounds=1,
    ),
    Bench(
        name="nodes-store-host",
        title="store's host killed → survivors' first lines in the new world",
        method=_LOSS.format(
            what="every process of node 0, which has the endpoint and leads, gets SIGKILL at one moment"
        ),
        metrics=(
            Metric("every", "store's host SIGKILLed → both survivors' first lines in the new world", "s", goal=3.0),
        ),
        measure=partial(_measure_idle, 0, signal.SIGKILL),
        few_rounds=1,
    ),
)
