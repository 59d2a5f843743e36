"""Ranks that die at points of what they do together: a sharded model's commits and restores, and `sync()`, one after the other.

What has reached the disk is there in the next life, whole and of one step on all ranks (`tests/support/collective.py`). The
points are found while the job runs (`mortals.py`), also those of the thread that writes. By day few die, since each life begins
with a process group; at night somebody at every point.
"""

from __future__ import annotations

import importlib.util
import random
from typing import TYPE_CHECKING

import pytest
from mortals import IS_SWEEP, KILLS, MISSES, MOST_DEATHS, SEED, Mortals

if TYPE_CHECKING:
    from harness import Room

DEATHS = min(KILLS, 200) if IS_SWEEP else min(KILLS, 4)
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="commits tensors"),
    pytest.mark.timeout(240 + 30 * DEATHS * (MOST_DEATHS if IS_SWEEP else 1)),
]


@pytest.mark.parametrize("kind", ["sharded", "synced"])
def test_ranks_that_die_anywhere_in_what_they_do_together(room: Room, kind: str) -> None:
    rng = random.Random(SEED)
    flags = ("--nproc-per-node=2", f"--max-restarts={2 * MOST_DEATHS * DEATHS}", "--standbys=auto")
    job = Mortals(room, rng, kind, "--waits=none,disk", program="collective", nodes="1", flags=flags)
    job.add()
    while job.goes_on(DEATHS):
        job.strike_one((job.strike_worker, job.strike_restoring_worker))
    job.end()
    assert job.missed < MISSES * job.deaths, job.told
