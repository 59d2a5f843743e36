"""Many seeded kills of one training run: of a worker, of all, of the agent. It ends as the run that nobody touched.

`PLANARIA_TEST_STATE_KILLS` says how many: 25 by default, 1,000 in a nightly run; `PLANARIA_TEST_SEED` says which.
"""

from __future__ import annotations

import importlib.util
import os
import random
import threading
from pathlib import Path

import pytest
from harness import PATIENCE_S, Launcher, Room, kill

KILLS = int(os.environ.get("PLANARIA_TEST_STATE_KILLS", "25"))
SEED = int(os.environ.get("PLANARIA_TEST_SEED", "3"))
pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="the arrays are NumPy's"),
    pytest.mark.timeout(100 + 10 * KILLS),
]
STEPS = 10 * KILLS  # no life makes more of them before it is killed
TRAIN = """
import hashlib, time, numpy as np
from planaria.worker import ElasticState
from planaria.worker.data import ElasticSampler

STEPS, START = int(sys.argv[1]), sys.argv[2]
np.random.seed(100 + RANK)
sampler = ElasticSampler(STEPS * 6, 3, seed=5)
state = ElasticState(sampler=sampler, weights=np.zeros(200_000), order=[], step=0)
state.restore()
if START != "plain":
    tell(f"began {START} {LIFE} {RANK} {os.getpid()} {state.step}")
first = state.step
for batch in sampler.count():
    state.weights[:] = state.weights * 0.9 + np.random.rand(200_000) * sum(batch)
    state.order.extend(batch)
    state.step += 1
    state.commit(wait="disk" if state.step % 5 == 0 else "node")
    if START != "plain":
        tell(f"at {START} {LIFE} {RANK} {state.step}")
        while state.step >= first + 8 and not os.path.exists(ROOM + "/over"):
            time.sleep(0.01)  # the test tells by a file that it kills no more
with open(ROOM + f"/end.{RANK}.{START == 'plain'}", "w") as file:
    file.write(hashlib.sha256(state.weights.tobytes()).hexdigest() + repr(state.order) + repr(np.random.rand()))
"""


class Campaign:
    """One training run through all its starts and lives."""

    def __init__(self, room: Room, flags: tuple[str, ...], rng: random.Random) -> None:
        self._room = room
        self._flags = flags
        self._rng = rng
        self._start = self._life = 0
        self.launcher = self._launch()

    def _launch(self) -> Launcher:
        return self._room.start(self._flags, TRAIN, str(STEPS), str(self._start))

    def _line(self, *words: object) -> list[str]:
        """Wait for the line that begins with these words; return the rest of it."""
        begin = " ".join(map(str, words)) + " "
        return self._room._take(lambda told: told.startswith(begin), PATIENCE_S, begin)[len(begin) :].split()

    def strike(self) -> bool:
        """Kill somebody, a few steps into a life; tell whether there was anybody left to kill."""
        pids, steps = zip(
            *(map(int, self._line("began", self._start, self._life, rank)) for rank in (0, 1)), strict=True
        )
        assert len(set(steps)) == 1, "both ranks go on from the same commit"
        victim = self._rng.choice(("worker", "worker", "all", "agent"))
        target = steps[0] + self._rng.randint(1, 3)
        if target >= STEPS:
            return False
        self._room._take(lambda told: told == f"at {self._start} {self._life} 0 {target}", PATIENCE_S, f"step {target}")
        threading.Event().wait(self._rng.random() * 0.01)
        if victim == "agent":
            kill(self.launcher.agent())
            self.launcher.wait()
            self._start, self._life = self._start + 1, 0
            self.launcher = self._launch()
            return True
        for pid in pids if victim == "all" else [self._rng.choice(pids)]:
            kill(pid)
        self._life += 1
        return True


# By day only with standbys: without them `test_chaos.py` kills the same things, on several nodes.
@pytest.mark.parametrize("standbys", ["0", "auto"] if KILLS > 25 else ["auto"])
def test_a_run_with_many_kills_ends_bit_by_bit_as_one_without(room: Room, tmp_path: Path, standbys: str) -> None:
    flags = (f"--standbys={standbys}", "--nproc-per-node=2", "--always-restart", f"--max-restarts={KILLS}")
    assert room.run(flags, TRAIN, str(STEPS), "plain").status == 0
    campaign = Campaign(room, (*flags, f"--snapshot-dir={tmp_path}"), random.Random(SEED))
    struck = 0
    while struck < KILLS and campaign.strike():
        struck += 1
    assert struck == KILLS, "the run was over before all kills were made"
    room.write("over", "")
    end = campaign.launcher.wait(PATIENCE_S * 2)
    assert end.status == 0, end.err
    assert [room.read(f"end.{rank}.False") for rank in (0, 1)] == [room.read(f"end.{rank}.True") for rank in (0, 1)]
