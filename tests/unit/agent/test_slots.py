from __future__ import annotations

import pytest

from planaria.agent.slots import LODGER, Slot, Slots, whole_pages
from planaria.contract.commit import Stamp
from planaria.errors import StateRefused


def stamp(generation: int, rank: int, world_size: int = 2, round_: int = 0) -> Stamp:
    return Stamp(1, round_, generation, generation * 10, world_size, rank)


def taken(slots: Slots, rank: int, *, may_add: bool = False) -> Slot | None:
    """Choose a slot as the keeper does."""
    found = slots.choose(rank, may_add=may_add)
    if isinstance(found, int):
        return slots.add(rank, 100)
    if found is not None:
        found.stamp = None
    return found


def commit(slots: Slots, generation: int, rank: int) -> bool:
    """Commit; tell whether all workers have sealed that commit."""
    slot = taken(slots, rank)
    assert slot is not None
    slots.seal(rank, slot.number, stamp(generation, rank))
    return (1, 0, generation) in slots.whole()


def test_a_node_has_a_commit_when_its_last_rank_has_sealed_it() -> None:
    slots = Slots(2)
    assert not commit(slots, 1, 0)
    assert slots.whole() == []
    assert commit(slots, 1, 1)
    assert slots.whole() == [(1, 0, 1)]
    found = slots.find((1, 0, 1), 1)
    assert found is not None
    assert found.stamp == stamp(1, 1)
    assert slots.find((1, 0, 1), 2) is None


def test_who_is_ahead_waits_rather_than_overwrite_what_is_complete() -> None:
    slots = Slots(2)
    for rank in (0, 1):
        commit(slots, 1, rank)
    slots.complete = (1, 0, 1)
    commit(slots, 2, 0)
    assert taken(slots, 0, may_add=True) is None, "one slot is the complete commit, the other one may become it"
    assert commit(slots, 2, 1)
    assert taken(slots, 0) is None, "other nodes may not have it yet"
    slots.complete = (1, 0, 2)
    free = taken(slots, 0)
    assert free is not None
    assert free is not slots.find((1, 0, 2), 0)


def test_a_slot_that_is_read_is_not_lent_and_a_third_is_made_where_there_is_room() -> None:
    slots = Slots(1)
    for generation in (1, 2):
        slot = taken(slots, 0)
        assert slot is not None
        slots.seal(0, slot.number, stamp(generation, 0, 1))
    slots.complete = (1, 0, 2)
    slots.of(0)[0].pins = 1
    assert taken(slots, 0, may_add=False) is None
    third = taken(slots, 0, may_add=True)
    assert third is not None
    assert len(slots.of(0)) == 3


def holding(*generations: int, owner: int = 0, rank: int = 0) -> Slots:
    """Return slots of one worker with a commit in each."""
    slots = Slots(1)
    for generation in generations:
        slots.add(owner, 100).stamp = stamp(generation, rank, 1)
    return slots


@pytest.mark.parametrize("kept", ["safe", "copying"])
def test_what_is_safe_or_on_its_way_to_the_buddy_is_kept_until_something_newer_is(kept: str) -> None:
    slots = holding(1, 2)
    slots.complete = (1, 0, 2)
    setattr(slots, kept, (1, 0, 1))
    assert slots.choose(0, may_add=False) is None
    assert slots.choose(0, may_add=True) == 2, "where there is room, training does not wait"
    setattr(slots, kept, (1, 0, 2))
    assert slots.choose(0, may_add=False) is slots.of(0)[0]


def test_no_rank_has_more_than_four_slots() -> None:
    slots = holding(1, 2, 3, 4)
    slots.complete, slots.safe = (1, 0, 4), (1, 0, 1)
    for slot in slots.of(0):
        slot.pins = 1
    assert slots.choose(0, may_add=True) is None


def test_when_copies_fail_and_there_is_no_room_what_was_safe_is_given_up() -> None:
    slots = holding(1, 2)
    slots.complete, slots.safe = (1, 0, 2), (1, 0, 1)
    slots.is_stuck = True
    assert slots.choose(0, may_add=True) == 2
    assert slots.choose(0, may_add=False) is slots.of(0)[0]


def test_a_round_begins_with_its_commit_and_what_is_safe_and_nothing_else() -> None:
    slots = holding(1, 2, 3, 4)
    slots.begin((1, 0, 3), (1, 0, 1))
    assert [slot.stamp and slot.stamp.generation for slot in slots.of(0)] == [1, None, 3, None]
    slots.begin(None, None)
    assert slots.parts() == []


def test_parts_of_neighbours_go_when_nobody_needs_them_any_more() -> None:
    slots = holding(1, 2, 3, 4, 5, owner=LODGER)
    slots.complete, slots.safe, slots.copying, slots.arriving = (1, 0, 5), (1, 0, 1), (1, 0, 2), (1, 0, 4)
    assert [slot.stamp and slot.stamp.generation for slot in slots.lodgers_gone()] == [3]


def test_memory_that_a_part_lodged_in_is_used_again() -> None:
    slots = Slots(1)
    small, large = slots.add(LODGER, 10_000), slots.add(LODGER, 100_000)
    assert slots.free_lodging(50_000) is large
    assert slots.free_lodging(5_000) is small
    small.pins = 1
    assert slots.free_lodging(5_000) is large
    large.stamp = stamp(1, 0)
    assert slots.free_lodging(5_000) is None


def test_who_leaves_hands_over_all_of_the_newest_commit_its_own_parts_first() -> None:
    slots = holding(1, 2, 3)
    lodged = [slots.add(LODGER, 100) for _ in range(3)]
    for slot, generation in zip(lodged, (1, 2, 3), strict=True):
        slot.stamp = stamp(generation, 1, 2)
    slots.complete = slots.safe = (1, 0, 2)
    assert slots.newest_parts() == [slots.of(0)[1], slots.of(0)[2], lodged[1], lodged[2]]


def test_what_a_worker_passed_over_is_void_and_its_memory_free() -> None:
    """Rank 1 was refused commit 2. Rank 0 would wait for it for ever: its other slot is the complete commit."""
    slots = Slots(2)
    for rank in (0, 1):
        commit(slots, 1, rank)
    slots.note_complete((1, 0, 1))
    commit(slots, 2, 0)
    assert slots.choose(0, may_add=True) is None
    slot = taken(slots, 1)
    assert slot is not None
    assert slots.seal(1, slot.number, stamp(3, 1)) == {(1, 0, 2): ""}
    assert slots.voids == {(1, 0, 2): ""}
    assert commit(slots, 3, 0)
    assert slots.whole() == [(1, 0, 1), (1, 0, 3)]


def test_a_worker_that_is_behind_seals_what_is_void_for_nobody() -> None:
    slots = Slots(2)
    commit(slots, 1, 0)
    commit(slots, 3, 0)
    assert not commit(slots, 2, 1), "which the other one has passed over"
    assert [slot.stamp for slot in slots.of(1)] == [None]


def test_parts_of_different_steps_are_void_and_it_is_said_why() -> None:
    slots = Slots(2)
    commit(slots, 1, 0)
    slot = taken(slots, 1)
    assert slot is not None
    why = "step is 10 on rank 0 and 7 on rank 1; it must be the same on all ranks"
    assert slots.seal(1, slot.number, Stamp(1, 0, 1, 7, 2, 1)) == {(1, 0, 1): why}
    assert slots.parts() == []
    assert slots.voids == {(1, 0, 1): why}


def test_a_worker_says_what_it_will_not_seal_but_not_of_what_it_has_sealed() -> None:
    slots = Slots(2)
    commit(slots, 1, 0)
    assert not slots.skip(0, (1, 0, 1)), "it was sealed before something went wrong"
    assert slots.skip(1, (1, 0, 1))
    assert not slots.skip(1, (1, 0, 1))
    assert slots.parts() == []
    slots.note_complete((1, 0, 5))
    assert not slots.skip(1, (1, 0, 5))


def test_what_is_void_is_void_before_anybody_here_has_sealed_it() -> None:
    slots = Slots(2)
    assert slots.void((1, 0, 1), "")
    assert not commit(slots, 1, 0)
    assert slots.parts() == []
    slots.begin(None, None)
    commit(slots, 1, 0)
    assert len(slots.parts()) == 1, "another plan, and another commit of that name"


def test_a_slot_of_another_rank_is_refused() -> None:
    slots = Slots(2)
    slot = slots.add(0, 100)
    with pytest.raises(ValueError, match="another"):
        slots.seal(1, slot.number, stamp(1, 1))


def test_what_others_were_promised_is_not_free() -> None:
    """Each rank has two of its largest: 10 MB of rank 0 take 20, of which nothing was touched yet."""
    slots = Slots(2)
    slots.add(0, 10_000_000)
    taken_bytes = 2 * whole_pages(10_000_000)
    slots.check(1, 10_000_000, taken_bytes + 20_000_000, 0)
    with pytest.raises(StateRefused, match=r"does not fit: it takes 20\.0 MB"):
        slots.check(1, 10_000_000, taken_bytes + 20_000_000 - 1, 0)
    slots.check(1, 10_000_000, 20_000_000, taken_bytes)


def test_the_own_slots_of_a_rank_are_its_own_to_use() -> None:
    slots = Slots(1)
    slots.add(0, 10_000_000)
    slots.check(0, 10_000_000, 20_000_000, 0)


def test_there_is_room_for_a_third_when_everybody_has_got_two() -> None:
    slots = Slots(1)
    slots.add(0, 10_000_000)
    promised = 2 * whole_pages(10_000_000)
    assert not slots.has_room(10_000_000, promised + whole_pages(10_000_000), 0)
    assert slots.has_room(10_000_000, promised + whole_pages(10_000_000) + 1, 0)


def test_with_a_buddy_two_of_a_neighbours_parts_have_to_fit_too() -> None:
    slots = Slots(1)
    slots.has_buddy = True
    slots.check(0, 10_000_000, 40_000_000, 0)
    with pytest.raises(StateRefused, match=r"twice 10\.0 MB of a buddy's"):
        slots.check(0, 10_000_000, 39_999_999, 0)
