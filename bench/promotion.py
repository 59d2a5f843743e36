"""A cold start against the promotion of a standby: to the first line, after the imports. No agent: processes alone.

    <venv>/bin/python bench/promotion.py [ROUNDS] [MODULE ...]

Each round starts the same program three ways, in an order that turns: cold as without standbys (`plain`), cold and writing
down what it loads (`learning`), and promoted. The clock starts right before the fork or the order. Prints medians, p10 - p90.
"""

from __future__ import annotations

import os
import select
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from planaria.base.value import replace
from planaria.contract import blackbox
from planaria.process.command import LEARN, worker_argv
from planaria.process.model import Command
from planaria.process.spares import make_plan
from planaria.process.spawn import Start, spawn
from planaria.process.standby import Standby

if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.process.spares import Plan

FIELDS = ("first line", "after imports")
READY_S = 120
PROGRAM = """\
import os, time
first = time.monotonic()
import {modules}
{use}
os.write(1, b"%r %r" % (first, time.monotonic()))
os._exit(0)
"""
USE = {"torch": "torch.optim.AdamW([torch.zeros(1, requires_grad=True)])"}  # pulls in torch._dynamo, as training does


def order(program: Path, box: int, *, learn: bool) -> Start:
    argv = worker_argv(Command("script", str(program), (), sys.executable), 0, 1023, learn=learn)
    dropped = ("PYTHON", "PLANARIA_", "TORCHELASTIC_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return Start(argv, {**environment, "RANK": "0"}, box, inherit_black_box_as=1023)


def measure(program: Path, begin: Callable[[Start], int], *, learn: bool) -> tuple[list[float], bytes]:
    box = os.memfd_create("box")
    read_end, write_end = os.pipe()
    start = replace(order(program, box, learn=learn), stdout_fd=write_end)
    before = time.monotonic()
    pid = begin(start)
    os.close(write_end)
    with open(read_end) as pipe:
        moments = [float(word) - before for word in pipe.read().split()]
    assert os.waitpid(pid, 0)[1] == 0, program.read_text()
    data = os.pread(box, blackbox.LIMIT_BYTES, 0)
    os.close(box)
    return [1000 * moment for moment in moments], data


def promotion(program: Path, plan: Plan, facts: dict[str, list[float]]) -> list[float]:
    before = time.monotonic()
    standby = Standby(0, order(program, -1, learn=True), plan)
    assert select.select([standby], [], [], READY_S)[0]
    standby.hear()
    assert standby.is_ready
    facts["standby ready, ms"].append(1000 * (time.monotonic() - before))
    facts["standby memory (PSS), MB"].append(standby.memory_bytes / 1e6)

    def promote(start: Start) -> int:
        assert standby.refusal(start) == ""
        assert standby.promote(start)
        return standby.pid

    return measure(program, promote, learn=True)[0]


def spread(values: list[float]) -> str:
    tenths = statistics.quantiles(values, n=10)
    return f"{statistics.median(values):9.1f}  ({tenths[0]:.1f} - {tenths[-1]:.1f})"


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 11
    modules = sys.argv[2:] or ["torch"]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "main.py")
        use = "\n".join(USE.get(name, "") for name in modules)
        program.write_text(PROGRAM.format(modules=", ".join(modules), use=use))
        _, data = measure(program, spawn, learn=True)  # fills caches, and teaches
        plan = make_plan(blackbox.learned(data), (folder, os.getcwd()))
        facts: dict[str, list[float]] = {"standby ready, ms": [], "standby memory (PSS), MB": []}
        ways = {
            "plain": lambda: measure(program, spawn, learn=False)[0],
            LEARN: lambda: measure(program, spawn, learn=True)[0],
            "promoted": lambda: promotion(program, plan, facts),
        }
        found: dict[str, list[list[float]]] = {way: [] for way in ways}
        for turn in range(rounds):
            for way in sorted(ways, reverse=bool(turn % 2)):
                found[way].append(ways[way]())
    print(f"{', '.join(modules)}: {rounds} rounds, {len(plan.load)} modules loaded ahead, ms: median (p10 - p90)")
    for at, field in enumerate(FIELDS):
        for way, samples in found.items():
            print(f"  {field:14} {way:9} {spread([sample[at] for sample in samples])}")
    for name, values in facts.items():
        print(f"  {name:24} {spread(values)}")


main()
