"""Hundreds of jobs whose nodes commit, in virtual time: whatever dies, what was promised to be kept is kept.

`PLANARIA_SIM_CLUSTERS` says how many there are, 500 by default.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from commitsim import Violation, World
from commitsim.bugs import BUGS
from commitsim.checks import PLENTY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

WORLDS = int(os.environ.get("PLANARIA_SIM_CLUSTERS", "500"))
SHARES = 10  # so that several processes have something to do
WITHIN = 300
"""How many worlds may pass before a planted bug is noticed. Most need a few dozen."""


@pytest.mark.parametrize("share", range(SHARES))
def test_no_world_loses_what_was_promised(share: int) -> None:
    for seed in range(share, WORLDS, SHARES):
        world = World(seed)
        try:
            world.run()
        except Violation as broken:
            pytest.fail(f"seed {seed}, at {world.clock.now:.3f} s, round {world.round}: {broken}", pytrace=False)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_noticed(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    for seed in range(WITHIN):
        try:
            World(seed).run()
        except Violation:
            return
    pytest.fail(f"no world of {WITHIN} noticed it")


def test_who_cannot_reach_one_holder_begins_with_what_another_has() -> None:
    """A node that joins reaches the anchor, and not the one it is sent to first. Nobody mends that."""
    count = 0
    for seed in range(WITHIN):
        world = World(seed)
        if not world.has_buddies or world.free_bytes != PLENTY_BYTES or len(world.entering) + len(world.members) != 3:
            continue
        world.clock.run_until(10.0)
        world.join()
        new = world.entering[0]
        world.clock.run_until(20.0, lambda: new.delegate is not None and new.delegate.plan is not None)  # noqa: B023  # called at once
        assert new.delegate is not None
        assert new.delegate.plan is not None
        (source,) = new.delegate.plan.fetch[:1] or (None,)
        if source is None or source.address == world.members[0].name:
            continue  # what its buddy or the anchor has it would copy there as well, and that has to work
        world.net.wall_off(new, world.net.nodes[source.address])
        world.end()
        world.clock.run_until(200.0, world.checks.is_settled)
        world.checks.check_settled()
        assert any("is out of reach" in line for line in new.said)
        count += 1
    assert count > 5


def test_the_same_seed_is_the_same_world() -> None:
    worlds = [World(7), World(7)]
    for world in worlds:
        world.run()
    assert worlds[0].checks.stamps == worlds[1].checks.stamps
    assert worlds[0].clock.now == worlds[1].clock.now
