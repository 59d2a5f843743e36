"""A model that is trained while workers, nodes and agents are killed ends bit by bit as the one that nobody touched.

Ten million parameters, AdamW, dropout, BatchNorm, a schedule, four loader processes with random augmentation. Compared are
weights and buffers, optimizer, schedule and random numbers of every rank at the end of every epoch, every step's loss, and
all samples in their order with what augmentation drew for them.

PLANARIA_TEST_TRAINING_KILLS says how many kills (3; 20 at night, and then in worlds of 2, 3 and 4 with several seeds, and with
standbys that take the places of those who died); PLANARIA_TEST_SEED says which.
"""

from __future__ import annotations

import importlib.util
import os
import random
from typing import TYPE_CHECKING

import pytest
from harness import Room
from training import LIFE_S, Training

if TYPE_CHECKING:
    from collections.abc import Callable

    from training import History

KILLS = int(os.environ.get("PLANARIA_TEST_TRAINING_KILLS", "3"))
SEED = int(os.environ.get("PLANARIA_TEST_SEED", "3"))
IS_NIGHT = KILLS > 3
SAMPLES, GLOBAL_BATCH = 128, 24  # the sixth step of an epoch has 8: in a world of 3 some ranks 3, one 2
LIFE_STEPS = (
    3  # a life makes so many before it is killed, however late that is; commits wait for one tier after another in turn
)
EPOCHS = max(2, KILLS // 2)  # of 6 steps
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="trains a model"),
    pytest.mark.timeout(240 + 60 * KILLS),
]


def options(world: int, *more: str) -> tuple[str, ...]:
    """Return the training's options: in a world of 2 plain DDP, in larger ones DDP that keeps its buckets."""
    buckets = ("--keeps-buckets",) if world > 2 else ()
    return (
        f"--samples={SAMPLES}",
        f"--global-batch={GLOBAL_BATCH}",
        "--batch=12",
        f"--epochs={EPOCHS}",
        *buckets,
        *more,
    )


@pytest.fixture(scope="module")
def untouched() -> Callable[[int], History]:
    """Return what a world of so many ranks comes to when nobody is killed: one node, and no commit waits for more."""
    known: dict[int, History] = {}

    def run(world: int) -> History:
        if world not in known:
            room = Room()
            try:
                training = Training(room, *options(world), nodes="1", flags=(f"--nproc-per-node={world}",))
                training.add()
                known[world] = training.finish(LIFE_S + 10 * EPOCHS)
            finally:
                room.close()
        return known[world]

    return run


# Nodes, workers of each, and how many stand by on each when somebody dies: then the program joins. A life costs six seconds of
# CPU for its imports, and as many for each standby, so by day there is one shape.
SHAPES = [(1, 2, 0), (2, 1, 0), (3, 1, 0), (2, 2, 0), (4, 1, 0), (2, 1, 1)] if IS_NIGHT else [(2, 1, 0)]
SEEDS = [SEED, SEED + 1, SEED + 2] if IS_NIGHT else [SEED]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "{} nodes of {} and {} standbys".format(*shape))
def test_a_run_with_kills_ends_bit_by_bit_as_one_without(
    room: Room, untouched: Callable[[int], History], shape: tuple[int, int, int], seed: int
) -> None:
    nodes, workers, standbys = shape
    rng = random.Random(seed)
    kinds = [kind for kind, can in (("worker", True), ("workers", workers > 1), ("agent", nodes > 1)) if can]
    flags = (f"--nproc-per-node={workers}", f"--max-restarts={KILLS}", *(["--standbys=auto"] if standbys else []))
    more = ["--waits=none,node,buddy" if nodes > 1 else "--waits=none,node", f"--stays={LIFE_STEPS}"]
    more += ["--joins"] if standbys else []
    training = Training(room, *options(nodes * workers, *more), nodes=str(nodes), flags=flags)
    for _ in range(nodes):
        training.add()
    for number in range(KILLS):  # each kind once, then as it falls
        training.strike(rng, [kinds[-1 - number]] if number < len(kinds) else kinds, standbys)
    room.write("hurry", "")
    end, plain = training.finish(), untouched(nodes * workers)
    assert sorted(plain.steps) == [*range(1, 6 * EPOCHS + 1)]
    assert sorted(plain.samples_of(0)) == [*range(SAMPLES)]
    assert end.what_counts() == plain.what_counts(), training.told
    assert not standbys or len(training.promoted()) >= KILLS // 2, training.told
