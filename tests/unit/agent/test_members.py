"""What a council knows of the members of its round."""

from __future__ import annotations

import pytest

from planaria.agent.council_messages import Present
from planaria.agent.members import MOST_IN_RING, Members


def members(size: int, *slots: int) -> Members:
    found = Members(size, 2 * size)
    for slot in slots:
        found.add(slot, Present(slot, 2 * slot, 2, f"n{(slot + 1) % size}", slot, slot, (), (1, 0, slot), (), ()))
    return found


def test_a_slot_is_where_the_one_before_it_says_and_the_first_where_the_last_says() -> None:
    found = members(3, 0, 2)
    assert [found.address_of(slot) for slot in range(5)] == ["n0", "n1", "", "", ""]
    assert (found.missing(), found.are_all_here, found.has(1)) == ((1,), False, False)


def test_a_ring_goes_on_behind_the_buddy_and_not_to_oneself() -> None:
    assert members(4, 0, 1, 2, 3).ring(2) == ("n0", "n1")
    assert members(2, 0, 1).ring(0) == ()
    assert len(members(100, *range(100)).ring(7)) == MOST_IN_RING - 1


def test_members_know_their_ranks_and_the_newest_of_all() -> None:
    found = members(3, 1, 0, 2)
    assert [*found.ranks_of(1)] == [2, 3]
    assert (found.run, found.last_round) == (2, 2)
    assert found.complete() == {0: (1, 0, 0), 1: (1, 0, 1), 2: (1, 0, 2)}
    assert found.safe() == found.on_disk() == []
    with pytest.raises(ValueError, match="place"):
        found.add(3, Present(3, 6, 2, "", 0, 0, (), (), (), ()))
