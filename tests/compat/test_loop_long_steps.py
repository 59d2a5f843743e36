"""`train_loop` over torch's process group when steps are long: the one that runs when a drain begins is the last."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "real"))

from harness import Room

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
LOOP = """
import time
import torch
from planaria import worker
from planaria.worker import ElasticState, agreement

agreement.LONG_S = 0.0  # every step is long
torch.distributed.init_process_group("gloo")
state = ElasticState(step=0)

def step(state):
    tell(f"step {state.step}")
    if state.step != 3:
        wait_at("step")
    while state.step == 3 and worker.drain_notice() is None:
        time.sleep(0.005)  # a step that goes on; the signal, which is the condition, interrupts it

worker.train_loop(state, step, commit_every=100, check_every=10)
"""


def test_a_stop_comes_after_the_step_that_runs_however_rarely_ranks_ask() -> None:
    """One step more would wait at a gate that nobody opens, until the grace is over."""
    room = Room()
    try:
        room.make_gate("step")
        flags = ("--nproc-per-node=2", "--shutdown-timeout=120", f"--snapshot-dir={room.path('commits')}")
        job = room.start(flags, LOOP, env={"OMP_NUM_THREADS": "1"})
        room.open_gate("step", 6)
        room.hear("step 3", 2)
        job.signal(signal.SIGTERM)
        end = job.wait()
        assert end.status == 128 + signal.SIGTERM, end.err
        assert end.err.count("this rank has committed and stops: this node drains (SIGTERM)") == 2, end.err
        room.assert_deserted()
    finally:
        room.close()
