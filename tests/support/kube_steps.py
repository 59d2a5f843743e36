"""What the workers of a job in pods write down about themselves: each step of each rank, in a folder that all nodes see.

The program is an example as it is in the image. Around its training loop, every rank adds a line to a file of its own for each
step: the round, its rank, the size of the world, the step. So a test sees from outside who trained what, also of pods that are
gone; and what was committed it sees in the folder of commits.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

SEEN_AS = "/shared"  # in a pod
SMALL = "/small"  # a volume there that has less room than `fill` takes
PROGRAM = f"""\
import os, runpy, sys, uuid
from planaria import worker

pod, train_loop = os.environ["HOSTNAME"], worker.train_loop


def eat():
    kept = []
    while True:
        kept.append(b"x" * 2**20)


def eat_all():
    # As where the kernel ends a whole container for want of memory: its first process goes, and all others with it.
    with open("/proc/1/oom_score_adj", "w") as file:
        file.write("1000")
    eat()


def fill():
    with open("{SMALL}/full", "wb") as file:
        file.write(b"x" * 2**22)


orders = {{"eat": eat, "eat_all": eat_all, "fill": fill}}


def told(state, step, **options):
    facts = [os.environ[name] for name in ("PLANARIA_ROUND", "RANK", "WORLD_SIZE")]
    with open(f"{SEEN_AS}/steps/{{pod}}.{{uuid.uuid4().hex}}", "w", buffering=1) as file:

        def counted(state):
            found = step(state)
            print(*facts, state.step, file=file)
            for name, obey in orders.items():
                order = f"{SEEN_AS}/orders/{{name}}.{{pod}}"
                if os.path.exists(order):
                    os.remove(order)
                    obey()
            return found

        train_loop(state, counted, **options)


worker.train_loop = told
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


class Step(NamedTuple):
    """A step that a worker has made."""

    round: int
    rank: int
    step: int
    world: int
    worker: str  # a process in a pod, which is its first word

    @property
    def pod(self) -> str:
        return self.worker.partition(".")[0]


class World(NamedTuple):
    """A round as its workers tell it."""

    pods: tuple[str, ...]  # by rank, of those who have made a step
    is_whole: bool  # every rank has
    first: int  # the step it began with
    last: int  # that every rank has made
    furthest: int  # that any of them has made


class Steps:
    """The folder of one job."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, tuple[int, list[Step]]] = {}  # by file, with its size
        for name in ("steps", "orders", "commits"):
            (folder / name).mkdir(parents=True)
            (folder / name).chmod(0o777)  # the user of the image is not ours

    def order(self, name: str, pod: str) -> None:
        """Tell the worker of a pod what to do after its step: one of the program's orders, once."""
        (self.folder / "orders" / f"{name}.{pod}").touch()

    def committed(self) -> int:
        """Return how many steps the newest commit on disk has; 0 where there is none."""
        found = [0]
        for path in (self.folder / "commits").glob("commit-*/manifest.json"):
            try:
                found.append(int(json.loads(path.read_text())["step"]))
            except FileNotFoundError:  # there are newer ones by now
                continue
        return max(found)

    def worlds(self) -> dict[int, World]:
        """Return the rounds in which a step was made, after making sure that each was one world.

        Raises:
            AssertionError: Two workers were the same rank of a round, or did not agree on its size and first step, or one left
                a step out or made it twice.
        """
        by_rank: defaultdict[int, dict[int, list[Step]]] = defaultdict(dict)
        for one in self._made():
            by_rank[one.round].setdefault(one.rank, []).append(one)
        return {number: _world(ranks) for number, ranks in sorted(by_rank.items())}

    def _made(self) -> list[Step]:
        found: list[Step] = []
        for path in (self.folder / "steps").iterdir():
            size = path.stat().st_size
            known = self._read.get(path.name)
            if known is None or known[0] != size:
                known = self._read[path.name] = size, _steps(path)
            found += known[1]
        return sorted(found)


def _steps(path: Path) -> list[Step]:
    found = []
    # The last line of somebody who was killed may not be whole.
    for line in path.read_text().rpartition("\n")[0].splitlines():
        number, rank, world, step = map(int, line.split())
        found.append(Step(number, rank, step, world, path.name))
    return found


def _world(ranks: dict[int, list[Step]]) -> World:
    sizes = {one.world for steps in ranks.values() for one in steps}
    begun = {steps[0].step for steps in ranks.values()}
    assert len(sizes) == len(begun) == 1, f"worlds of {sizes}, which began with steps {begun}"
    (size,), (first,) = sizes, begun
    for rank, steps in ranks.items():
        assert rank < size
        assert len({one.worker for one in steps}) == 1, f"two workers were rank {rank}: {steps[0]}, {steps[-1]}"
        assert [one.step for one in steps] == list(range(steps[0].step, steps[-1].step + 1))
    reached = [steps[-1].step for steps in ranks.values()]
    is_whole = len(ranks) == size
    pods = tuple(ranks[rank][0].pod for rank in sorted(ranks))
    return World(pods, is_whole, first, min(reached) if is_whole else first - 1, max(reached))
