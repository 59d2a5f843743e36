from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from clocks import FakeLoop
from unmapped import WHY, Unmapped

from planaria.agent.council_messages import Part
from planaria.agent.errands import IS_HERE, LONGEST_WAIT_S, REFUSED, Fetch, Push, Road, damage_of, settle
from planaria.agent.stock import Stock
from planaria.base.value import as_dict
from planaria.contract import snapshot as snapshots
from planaria.contract.commit import Stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planaria.agent.slots import Slot

LAYOUT = snapshots.arrange([], b"values")
LONG_S = 60.0


def part(rank: int = 0) -> Part:
    return Part(1, 4, 7, 70, 2, rank, True, LAYOUT.size_bytes)


def sealed(memory: memoryview, rank: int = 0) -> None:
    snapshots.seal(memory, LAYOUT, Stamp(1, 4, 7, 70, 2, rank))


class Transfer:
    def __init__(self, header: object, on_done: Callable[[str], object]) -> None:
        self.header = header
        self.on_done = on_done
        self.is_cancelled = False
        self.source: memoryview | None = None
        self.into: Callable[[int], memoryview | str] | None = None

    def cancel(self) -> None:
        self.is_cancelled = True


class Rig:
    """A road on which a test decides what becomes of each transfer."""

    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.free = 10**9
        self.memory = Unmapped()
        self.stock = Stock(1, lambda: self.free, self.memory)
        self.transfers: list[Transfer] = []
        self.done: list[str] = []
        self.trouble: list[str] = []
        self.unreached: list[str] = []
        self.is_wanted = True
        self.road = Road(self.loop, self, self.stock, lambda work, then: then(work()), 4)  # type: ignore[arg-type]  # a dock

    def store(
        self, _address: str, _round: int, header: object, source: memoryview, on_done: Callable[[str], object]
    ) -> Transfer:
        self.transfers.append(Transfer(header, on_done))
        self.transfers[-1].source = source
        return self.transfers[-1]

    def fetch(
        self,
        _address: str,
        _round: int,
        header: object,
        into: Callable[[int], memoryview | str],
        on_done: Callable[[str], object],
    ) -> Transfer:
        self.transfers.append(Transfer(header, on_done))
        self.transfers[-1].into = into
        return self.transfers[-1]

    def held(self, rank: int) -> Slot:
        slot = self.stock.lodge(LAYOUT.size_bytes)
        sealed(self.stock.view(slot), rank)
        settle(slot, part(rank))
        self.stock.release(slot)
        return slot

    def push(self, *slots: Slot) -> Push:
        return Push(self.road, "b:1", slots, lambda: self.is_wanted, self.done.append)

    def get(self) -> Fetch:
        return Fetch(self.road, "b:1", part(), self.done.append, self.trouble.append, self.unreached.append)

    def name_size(self, size: int = LAYOUT.size_bytes) -> memoryview | str:
        """Let the holder say how large its part is; return the room there is for it, or why there is none."""
        into = self.transfers[-1].into
        assert into is not None
        return into(size)

    def find_no_room(self, size: int = LAYOUT.size_bytes) -> None:
        why = self.name_size(size)
        assert isinstance(why, str)
        self.transfers[-1].on_done(why)

    def bring(self, *, rank: int = 0, spoiled: bool = False) -> None:
        room = self.name_size()
        assert isinstance(room, memoryview)
        sealed(room, rank)
        if spoiled:
            room[-1] ^= 1
        self.transfers[-1].on_done("")


@pytest.fixture
def rig() -> Iterator[Rig]:
    found = Rig()
    yield found
    found.stock.close()


def test_parts_go_one_after_the_other_and_are_held_until_they_are_there(rig: Rig) -> None:
    first, second = rig.held(0), rig.held(1)
    rig.push(first, second)
    assert [transfer.header for transfer in rig.transfers] == [as_dict(part(0))]
    assert (first.pins, second.pins) == (1, 1)
    rig.transfers[0].on_done("")
    assert (first.pins, second.pins) == (0, 1)
    rig.transfers[1].on_done(IS_HERE)
    assert rig.done == [""]
    assert second.pins == 0


def test_a_lost_connection_is_tried_again_for_as_long_as_it_is_wanted(rig: Rig) -> None:
    slot = rig.held(0)
    rig.push(slot)
    for count in (2, 3):
        rig.transfers[-1].on_done("cut")
        rig.loop.run_until(rig.loop.at + LONG_S)
        assert len(rig.transfers) == count
    rig.is_wanted = False
    rig.transfers[-1].on_done("cut")
    assert rig.done == ["cut"]
    assert slot.pins == 0


def test_an_agent_that_is_out_of_reach_is_given_up_because_training_may_wait(rig: Rig) -> None:
    slot = rig.held(0)
    rig.push(slot)
    began = rig.loop.at
    for _ in range(100):
        rig.transfers[-1].on_done("no route to host")
        if rig.done:
            break
        rig.loop.run_until(rig.loop.at + 6.0)
    assert rig.done == ["no route to host"]
    assert slot.pins == 0
    assert rig.loop.at - began < 2 * LONG_S


def test_a_part_that_comes_through_begins_the_patience_anew(rig: Rig) -> None:
    rig.push(rig.held(0), rig.held(1))
    for _ in range(2):
        for _ in range(6):
            rig.transfers[-1].on_done("cut")
            rig.loop.run_until(rig.loop.at + 6.0)
        assert rig.done == []
        rig.transfers[-1].on_done("")
    assert rig.done == [""]


def test_a_refusal_is_not_tried_again(rig: Rig) -> None:
    slots = [rig.held(0), rig.held(1)]
    rig.push(*slots)
    rig.transfers[0].on_done(f"{REFUSED}no room")
    assert rig.done == ["no room"]
    assert [slot.pins for slot in slots] == [0, 0]


def test_a_part_that_is_forgotten_on_its_way_is_not_sent(rig: Rig) -> None:
    first, second = rig.held(0), rig.held(1)
    rig.push(first, second)
    second.stamp = None
    rig.transfers[0].on_done("")
    assert rig.done == ["it could not be read"]
    assert len(rig.transfers) == 1


def test_a_push_that_is_given_up_lets_go_of_everything(rig: Rig) -> None:
    slot = rig.held(0)
    rig.push(slot).cancel()
    assert rig.transfers[0].is_cancelled
    assert (slot.pins, rig.done) == (0, [])


def test_a_part_that_arrives_counts_once_it_is_verified(rig: Rig) -> None:
    rig.get()
    rig.bring()
    assert rig.done == [""]
    assert rig.stock.parts() == (part(),)
    assert [slot.pins for slot in rig.stock.slots.all()] == [0]


@pytest.mark.parametrize("wrong", [{"spoiled": True}, {"rank": 1}])
def test_a_part_that_is_damaged_or_another_is_of_no_use(rig: Rig, wrong: dict[str, int]) -> None:
    rig.get()
    rig.bring(**wrong)  # type: ignore[arg-type]  # one of its two arguments
    assert rig.done != [""]
    assert rig.stock.parts() == ()


def test_a_fetch_goes_on_over_lost_connections_and_uses_its_memory_again(rig: Rig) -> None:
    rig.get()
    rig.name_size()
    rig.transfers[0].on_done("cut")
    rig.loop.run_until(rig.loop.at + LONG_S)
    rig.bring()
    assert rig.done == [""]
    assert len(rig.stock.slots.all()) == 1


def test_an_agent_that_is_out_of_reach_for_long_is_told_of_now_and_then_and_tried_all_the_same(rig: Rig) -> None:
    rig.get()
    began = rig.loop.at
    told: list[float] = []
    while len(told) < 2:
        before = len(rig.unreached)
        rig.transfers[-1].on_done("no route to host")
        told += [rig.loop.at] * (len(rig.unreached) - before)
        (timer,) = rig.loop.pending()
        rig.loop.run_until(timer.when)
    assert rig.unreached == ["no route to host"] * 2
    assert LONGEST_WAIT_S / 2 < told[0] - began < 2 * LONGEST_WAIT_S
    assert LONGEST_WAIT_S / 2 < told[1] - told[0] < 2 * LONGEST_WAIT_S
    rig.bring()
    assert rig.done == [""]


def test_a_fetch_may_be_given_up_by_who_hears_that_it_is_out_of_reach(rig: Rig) -> None:
    fetch = rig.get()
    fetch._on_unreached = lambda _why: fetch.cancel()
    for _ in range(100):
        rig.transfers[-1].on_done("no route to host")
        if not rig.loop.pending():
            break
        rig.loop.run_until(rig.loop.pending()[0].when)
    assert rig.loop.pending() == []
    assert rig.done == []


def test_who_does_not_have_it_says_so_once(rig: Rig) -> None:
    rig.get()
    rig.transfers[0].on_done(f"{REFUSED}it is not here")
    assert rig.done == ["it is not here"]
    assert rig.loop.pending() == []


def test_a_holder_that_says_another_size_is_of_no_use_and_gets_no_memory(rig: Rig) -> None:
    rig.get()
    rig.find_no_room(1 << 50)
    assert (len(rig.done), rig.trouble) == (1, [])
    assert "bytes" in rig.done[0]
    assert rig.stock.slots.all() == []


def test_a_holder_that_refuses_after_it_named_the_size_leaves_no_memory_held(rig: Rig) -> None:
    rig.get()
    rig.name_size()
    rig.transfers[0].on_done(f"{REFUSED}it is not here")
    assert rig.done == ["it is not here"]
    assert [slot.pins for slot in rig.stock.slots.all()] == [0]


def test_without_room_here_it_is_a_trouble_of_ours(rig: Rig) -> None:
    rig.get()
    rig.free = 100
    rig.find_no_room()
    assert (rig.done, len(rig.trouble)) == ([], 1)
    assert "does not fit" in rig.trouble[0]


def test_where_others_give_memory_back_it_is_tried_again(rig: Rig) -> None:
    given = iter((True,))
    rig.stock.make_room = lambda: next(given, False)
    rig.get()
    rig.free = 100
    rig.find_no_room()
    assert (rig.done, rig.trouble) == ([], [])
    rig.free = 10**9
    rig.loop.run_until(rig.loop.at + 1.0)
    rig.bring()
    assert rig.done == [""]


def test_a_fetch_that_is_given_up_is_over(rig: Rig) -> None:
    fetch = rig.get()
    rig.name_size()
    fetch.cancel()
    rig.transfers[0].on_done("")
    assert rig.done == []
    assert rig.stock.parts() == ()
    assert [slot.pins for slot in rig.stock.slots.all()] == [0]


def test_memory_that_was_never_sealed_is_not_the_part() -> None:
    assert damage_of(memoryview(bytearray(LAYOUT.size_bytes)), part()) == "it is not the part that it should be"


def test_a_part_that_cannot_be_mapped_is_not_sent_and_not_held(rig: Rig) -> None:
    slot = rig.held(0)
    rig.memory.is_short = True
    rig.push(slot)
    assert (rig.done, rig.transfers, slot.pins) == ([f"it cannot be read: {WHY}"], [], 0)


def test_without_memory_to_map_it_is_a_trouble_of_ours(rig: Rig) -> None:
    rig.get()
    rig.memory.is_short = True
    assert rig.name_size() == WHY
    rig.transfers[0].on_done(WHY)
    assert (rig.done, rig.trouble) == ([], [WHY])
    assert [slot.pins for slot in rig.stock.slots.all()] == [0]
