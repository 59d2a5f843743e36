"""Hundreds of jobs whose nodes commit, in virtual time: whatever dies, what was promised to be kept is kept.

`PLANARIA_SIM_CLUSTERS` says how many there are, 500 by default.
"""

from __future__ import annotations

import os

import pytest
from commitsim import Violation, World

WORLDS = int(os.environ.get("PLANARIA_SIM_CLUSTERS", "500"))
SHARES = 10  # so that several processes have something to do


@pytest.mark.parametrize("share", range(SHARES))
def test_no_world_loses_what_was_promised(share: int) -> None:
    for seed in range(share, WORLDS, SHARES):
        world = World(seed)
        try:
            world.run()
        except Violation as broken:
            pytest.fail(f"seed {seed}, at {world.clock.now:.3f} s, round {world.round}: {broken}", pytrace=False)
