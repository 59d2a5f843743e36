from __future__ import annotations

import pytest

from planaria.agent.slots import Slot, Slots, whole_pages
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
    slot = taken(slots, rank)
    assert slot is not None
    return slots.seal(rank, slot.number, stamp(generation, rank))


def test_a_commit_is_complete_when_the_last_rank_has_sealed_it() -> None:
    slots = Slots(2)
    assert not commit(slots, 1, 0)
    assert slots.kept() == {}
    assert commit(slots, 1, 1)
    assert slots.complete == (1, 0, 1)
    assert {rank: slot.stamp for rank, slot in slots.kept().items()} == {0: stamp(1, 0), 1: stamp(1, 1)}


def test_who_is_ahead_waits_rather_than_overwrite_what_is_complete() -> None:
    slots = Slots(2)
    for rank in (0, 1):
        commit(slots, 1, rank)
    commit(slots, 2, 0)
    assert taken(slots, 0, may_add=True) is None, "one slot is the complete commit, the other one may become it"
    assert commit(slots, 2, 1)
    free = taken(slots, 0)
    assert free is not None
    assert free not in slots.kept().values()


def test_a_slot_that_is_read_is_not_lent_and_a_third_is_made_where_there_is_room() -> None:
    slots = Slots(1)
    for generation in (1, 2):
        slot = taken(slots, 0)
        assert slot is not None
        slots.seal(0, slot.number, stamp(generation, 0, 1))
    slots.of(0)[0].pins = 1
    assert taken(slots, 0, may_add=False) is None
    third = taken(slots, 0, may_add=True)
    assert third is not None
    assert len(slots.of(0)) == 3


def test_a_round_that_ends_takes_with_it_what_it_did_not_complete() -> None:
    slots = Slots(2)
    for rank in (0, 1):
        commit(slots, 1, rank)
    commit(slots, 2, 0)
    slots.end_round()
    assert slots.complete == (1, 0, 1)
    assert [slot.stamp for slot in slots.of(0)] == [stamp(1, 0), None]
    slot = taken(slots, 1)
    assert slot is not None
    slots.seal(1, slot.number, stamp(2, 1))
    assert slots.complete == (1, 0, 1), "the half of rank 0 does not count any more"


def test_an_older_commit_never_takes_the_place_of_a_newer_one() -> None:
    slots = Slots(1)
    first, second = slots.add(0, 100), slots.add(0, 100)
    assert slots.seal(0, first.number, stamp(5, 0, 1, round_=2))
    assert not slots.seal(0, second.number, stamp(9, 0, 1, round_=1))
    assert slots.complete == (1, 2, 5)


def test_a_slot_of_another_rank_is_refused() -> None:
    slots = Slots(2)
    slot = slots.add(0, 100)
    with pytest.raises(ValueError, match="another"):
        slots.seal(1, slot.number, stamp(1, 1))


def test_what_cannot_be_read_is_forgotten() -> None:
    slots = Slots(1)
    slot = slots.add(0, 100)
    slots.seal(0, slot.number, stamp(1, 0, 1))
    slots.forget_commits()
    assert (slots.complete, slots.kept(), slot.stamp) == (None, {}, None)


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
