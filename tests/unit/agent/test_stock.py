from __future__ import annotations

from collections.abc import Iterator

import pytest

from planaria.agent.slots import LODGER
from planaria.agent.stock import Stock
from planaria.errors import StateRefused

PART_BYTES = 100_000


class Rig:
    """A stock on a machine with so much free memory; what was lent counts once it is touched."""

    def __init__(self) -> None:
        self.free = 10**9
        self.stock = Stock(1, lambda: self.free)


@pytest.fixture
def rig() -> Iterator[Rig]:
    found = Rig()
    yield found
    found.stock.close()


def test_parts_that_grow_with_every_commit_do_not_leave_their_old_memory_behind(rig: Rig) -> None:
    size = PART_BYTES
    for _ in range(100):
        slot = rig.stock.lodge(size)
        rig.stock.release(slot)
        size += size // 50
    assert len(rig.stock.slots.of(LODGER)) == 1


def test_memory_that_is_read_or_counts_is_not_given_back_for_a_larger_part(rig: Rig) -> None:
    first = rig.stock.lodge(PART_BYTES)
    second = rig.stock.lodge(2 * PART_BYTES)
    assert rig.stock.slots.of(LODGER) == [first, second]


def test_what_was_lent_and_not_touched_yet_is_not_free_for_a_neighbour(rig: Rig) -> None:
    rig.free = 5 * PART_BYTES
    for _ in range(4):
        rig.stock.lodge(PART_BYTES)
    with pytest.raises(StateRefused, match="does not fit"):
        rig.stock.lodge(PART_BYTES)
