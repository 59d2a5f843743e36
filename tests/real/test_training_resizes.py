"""Worlds that grow and shrink while a model is trained: no sample is lost or repeated, no step computed twice, and it learns.

The global batch is kept by accumulation, so that every world takes the same steps. PLANARIA_TEST_JOINS says how many nodes come
in mid-epoch (1; 10 at night).
"""

from __future__ import annotations

import importlib.util
import os
import signal
from statistics import fmean
from typing import TYPE_CHECKING

import pytest
from harness import Room
from training import LIFE_S, Training

if TYPE_CHECKING:
    from crew import CrewNode
    from training import History, Life

JOINS = int(os.environ.get("PLANARIA_TEST_JOINS", "1"))
SAMPLES, STEPS = 1440, 60  # of an epoch
STAYS = 3  # steps after which a life waits for the next change
WINDOW = 15  # steps over which a loss is averaged
TOLERANCE = (
    0.06  # of a loss that falls from 2 to 0.3. Dropout is another in another world: 0.023 apart, without any resize
)
SIZES = (f"--samples={SAMPLES}", "--global-batch=24", "--batch=6", "--words=2000")
# Statistics of BatchNorm are those of a rank's part of a batch, so another world trains another model: there is none here.
TRAINING = (*SIZES, "--norm=layer", "--loaders=1", "--waits=node,none")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="trains a model"),
    pytest.mark.timeout(600 + 60 * JOINS),
]


def go_on(training: Training, life: Life) -> None:
    """Let a life compute the steps after which it waits."""
    training.wait_step(life.step + STAYS, life)


def leave(training: Training, life: Life, node: CrewNode) -> Life:
    """End a node politely; it takes nothing with it. One at a time: neighbours that leave at once have no buddy that stays."""
    training.alive.remove(node)
    node.signal(signal.SIGTERM)
    end = node.wait(LIFE_S)
    assert end.status == 128 + signal.SIGTERM, training.story()
    training.workers_lost(life, f"{node.name} leaves")
    return training.wait_life(len(training.alive))


def finish(training: Training, epochs: int) -> History:
    """Let the run come to its end without further waits."""
    training.crew.room.write("hurry", "")
    found = training.finish(LIFE_S + epochs * STEPS)
    check_samples(found, epochs)
    return found


def check_samples(found: History, epochs: int) -> None:
    assert sorted(found.steps) == [*range(1, epochs * STEPS + 1)]
    for epoch in range(epochs):
        assert sorted(found.samples_of(epoch)) == [*range(SAMPLES)]


def losses(found: History) -> list[float]:
    """Return the curve, smoothed."""
    values = [found.steps[number].loss for number in sorted(found.steps)]
    return [fmean(values[at : at + WINDOW]) for at in range(0, len(values) - WINDOW + 1, WINDOW)]


def undisturbed(epochs: int) -> History:
    room = Room()
    try:
        training = Training(room, *TRAINING, f"--epochs={epochs}", nodes="1", flags=("--nproc-per-node=4",))
        training.add()
        return training.finish()
    finally:
        room.close()


def test_from_four_to_three_to_six_to_two_every_sample_counts_once(room: Room) -> None:
    epochs = 2
    options = (*TRAINING, f"--epochs={epochs}", f"--stays={STAYS}")
    training = Training(room, *options, nodes="1:6", flags=("--max-restarts=0",))
    for _ in range(4):
        training.add()
    life = training.wait_life(4)
    go_on(training, life)
    training.kill_agent(life, training.alive[1])
    life = training.wait_life(3)
    go_on(training, life)
    for _ in range(3):
        training.add()
    life = training.wait_life(6)
    go_on(training, life)
    for node in training.alive[1:5]:
        life = leave(training, life, node)
    found = finish(training, epochs)
    assert {len(step.samples) for step in found.steps.values()} >= {4, 3, 6, 2}
    plain = undisturbed(epochs)
    check_samples(plain, epochs)
    assert losses(found) == pytest.approx(losses(plain), abs=TOLERANCE)
    assert losses(plain)[-1] < 0.5 * losses(plain)[0]


def test_nodes_that_come_and_go_in_mid_epoch_cost_no_step(room: Room) -> None:
    """In every epoch a node comes after a third of its steps, and one goes after two thirds; the ranks wait for it there."""
    comes, goes = ([epoch * STEPS + at for epoch in range(JOINS)] for at in (STEPS // 3, 2 * STEPS // 3))
    meets = ",".join(map(str, (*comes, *goes)))
    options = (*TRAINING, f"--epochs={JOINS}", f"--meets={meets}")
    training = Training(room, *options, nodes="1:3", flags=("--max-restarts=0",))
    training.add()
    training.add()
    life = training.wait_life(2)
    for number in range(JOINS):
        training.wait_step(comes[number], life, LIFE_S)
        training.add()
        life = training.wait_life(3)
        assert comes[number] <= life.step < goes[number], "not in mid-epoch"
        training.wait_step(goes[number], life, LIFE_S)
        life = leave(training, life, training.alive[number % 3])
    found = finish(training, JOINS)
    twice = {number: rounds for number, rounds in found.computed.items() if len(rounds) > 1}
    assert not twice, training.story()
