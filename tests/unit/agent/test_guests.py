from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from unmapped import WHY, Unmapped

from planaria.agent.errands import IS_HERE, REFUSED
from planaria.agent.guests import Guests
from planaria.agent.stock import Stock
from planaria.base.value import as_dict, replace
from planaria.contract import snapshot as snapshots
from planaria.contract.commit import Stamp, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

from planaria.agent.council_messages import Part

ROUND = 4
LAYOUT = snapshots.arrange([], b"values")
PART = Part(1, ROUND, 7, 70, 2, 1, True, LAYOUT.size_bytes)


class Rig:
    """Guests whose verifying happens when a test says so."""

    def __init__(self) -> None:
        self.free = 10**9
        self.memory = Unmapped()
        self.stock = Stock(1, lambda: self.free, self.memory)
        self.later: list[Callable[[], object]] = []
        self.guests = Guests(self.stock, lambda work, then: self.later.append(lambda: then(work())))
        self.guests.round = ROUND
        self.told: list[str] = []

    def bring(self, part: Part = PART, *, spoiled: bool = False) -> None:
        room = self.guests.offered(ROUND, as_dict(part), part.size_bytes)
        assert isinstance(room, memoryview), room
        stamp = Stamp(part.run, part.round, part.generation, part.step, part.world_size, part.rank)
        snapshots.seal(room, LAYOUT, stamp)
        if spoiled:
            room[-1] ^= 1
        self.guests.arrived(ROUND, as_dict(part), self.told.append)

    def verify(self) -> None:
        self.later.pop(0)()


@pytest.fixture
def rig() -> Iterator[Rig]:
    found = Rig()
    yield found
    found.stock.close()


def test_a_part_counts_once_it_is_verified(rig: Rig) -> None:
    rig.bring()
    assert rig.stock.parts() == ()
    rig.verify()
    assert rig.told == [""]
    assert rig.stock.parts() == (PART,)
    assert rig.guests.offered(ROUND, as_dict(PART), PART.size_bytes) == IS_HERE


def test_a_damaged_part_is_refused_and_its_memory_used_again(rig: Rig) -> None:
    rig.bring(spoiled=True)
    rig.verify()
    assert rig.told[0].startswith(REFUSED)
    assert rig.stock.parts() == ()
    rig.bring()
    assert len(rig.stock.slots.all()) == 1


def test_a_part_of_another_rank_than_it_says_is_refused(rig: Rig) -> None:
    room = rig.guests.offered(ROUND, as_dict(PART), PART.size_bytes)
    assert isinstance(room, memoryview)
    snapshots.seal(room, LAYOUT, Stamp(1, ROUND, 7, 70, 2, 0))
    rig.guests.arrived(ROUND, as_dict(PART), rig.told.append)
    rig.verify()
    assert "not the part" in rig.told[0]


def test_what_does_not_come_leaves_nothing_behind(rig: Rig) -> None:
    assert isinstance(rig.guests.offered(ROUND, as_dict(PART), PART.size_bytes), memoryview)
    assert rig.guests.offered(ROUND, as_dict(PART), PART.size_bytes) == "it is on its way here"
    rig.guests.dropped(ROUND, as_dict(PART), "cut")
    rig.bring()
    assert len(rig.stock.slots.all()) == 1


@pytest.mark.parametrize("number", [ROUND - 1, ROUND + 1])
def test_another_round_is_refused_which_says_nothing_about_the_part(rig: Rig, number: int) -> None:
    """A member that is late in an old round would take it for damage, and have all others forget a good commit."""
    for why in (
        rig.guests.offered(number, as_dict(PART), PART.size_bytes),
        rig.guests.wanted(number, as_dict(PART)),
    ):
        assert isinstance(why, str)
        assert not why.startswith(REFUSED)


def test_a_round_that_ends_while_a_part_is_verified_does_not_keep_it(rig: Rig) -> None:
    rig.bring()
    rig.guests.round = ROUND + 1
    rig.verify()
    assert "is over" in rig.told[0]
    assert rig.stock.parts() == ()


@pytest.mark.parametrize("header", [None, {}, {**as_dict(PART), "rank": 2}])
def test_a_header_that_is_no_part_is_refused(rig: Rig, header: object) -> None:
    assert str(rig.guests.offered(ROUND, header, 5000)).startswith(REFUSED)
    assert str(rig.guests.wanted(ROUND, header)).startswith(REFUSED)


def test_a_part_of_another_size_than_it_says_is_refused(rig: Rig) -> None:
    assert rig.guests.offered(ROUND, as_dict(PART), 5) == f"{REFUSED}a part of another size"


def test_without_room_a_part_is_refused_with_the_numbers(rig: Rig) -> None:
    rig.free = 1000
    why = rig.guests.offered(ROUND, as_dict(PART), PART.size_bytes)
    size = size_text(PART.size_bytes)
    assert why == f"{REFUSED}the buddy has no room: a part of {size} does not fit into the 1.00 kB that are free"


def test_a_part_that_is_read_stays_until_its_reader_lets_go(rig: Rig) -> None:
    rig.bring()
    rig.verify()
    found = rig.guests.wanted(ROUND, as_dict(PART))
    assert not isinstance(found, str)
    memory, let_go = found
    assert snapshots.read(memory) is not None
    (slot,) = rig.stock.slots.all()
    assert slot.pins == 1
    let_go()
    assert slot.pins == 0
    assert rig.guests.wanted(ROUND, as_dict(replace(PART, rank=0))) == f"{REFUSED}it is not here"


def test_of_a_neighbours_parts_the_safe_one_and_the_arriving_one_stay(rig: Rig) -> None:
    slots = rig.stock.slots
    for generation in (1, 2, 3):
        rig.bring(replace(PART, generation=generation))
        rig.verify()
        if generation == 1:
            slots.safe = (1, ROUND, 1)
        slots.complete = (1, ROUND, generation)
        rig.stock.tidy()
    assert sorted(part.generation for part in rig.stock.parts()) == [1, 3]
    assert len(slots.all()) == 3


def test_who_leaves_takes_nothing_more_and_says_so_for_good(rig: Rig) -> None:
    rig.guests.is_leaving = True
    why = rig.guests.offered(ROUND, as_dict(PART), PART.size_bytes)
    assert isinstance(why, str)
    assert why.startswith(REFUSED)


def test_a_line_is_closed_where_no_council_sits(rig: Rig) -> None:
    closed: list[str] = []

    class Line:
        def close(self) -> None:
            closed.append("closed")

    rig.guests.attended(ROUND, {}, Line())  # type: ignore[arg-type]  # all that it uses of a line
    assert closed == ["closed"]


def test_memory_that_cannot_be_mapped_is_refused_with_the_reason_and_not_held(rig: Rig) -> None:
    rig.memory.is_short = True
    assert rig.guests.offered(ROUND, as_dict(PART), PART.size_bytes) == f"{REFUSED}the buddy has no room: {WHY}"
    assert [slot.pins for slot in rig.stock.slots.all()] == [0]
    rig.memory.is_short = False
    rig.bring()
    rig.memory.is_short = True
    rig.verify()
    assert rig.told == [""], "it is mapped once, not again when all of it is there"
    assert rig.guests.wanted(ROUND, as_dict(PART)) == f"{REFUSED}it cannot be read: {WHY}"
    assert [slot.pins for slot in rig.stock.slots.all()] == [0]


def test_where_others_give_memory_back_a_part_may_be_brought_again(rig: Rig) -> None:
    rig.free = 100
    answers = []
    for makes_room in (True, False):
        rig.stock.make_room = lambda makes_room=makes_room: makes_room  # type: ignore[misc]  # called in this turn
        answers.append(rig.guests.offered(ROUND, as_dict(PART), PART.size_bytes))
    assert [str(one).startswith(REFUSED) for one in answers] == [False, True]
