from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from clocks import FakeLoop
from unmapped import WHY, Unmapped

from planaria.agent.chores import Chores
from planaria.agent.council_messages import Part, Write, Written
from planaria.agent.disk import Disk
from planaria.agent.errands import REFUSED, Road, settle
from planaria.agent.stock import Stock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PART = Part(1, 4, 7, 70, 2, 0, True, 5000)


class Rig:
    """A node that leaves; a test says what each other one answers."""

    def __init__(self, directory: str) -> None:
        self.memory = Unmapped()
        self.stock = Stock(1, lambda: 10**9, self.memory)
        slot = self.stock.lodge(PART.size_bytes)
        settle(slot, PART)
        self.stock.release(slot)
        self.stock.slots.complete = PART.order
        self.loop = FakeLoop()
        self.answers: dict[str, str] = {}
        self.asked: list[str] = []
        road = Road(self.loop, self, self.stock, lambda work, then: then(work()), 4)  # type: ignore[arg-type]  # a dock
        self.sent: list[object] = []
        self.said: list[str] = []
        disk = Disk(directory, 1, self.loop, lambda call: call(), self.said.append)
        self.chores = Chores(self.stock, disk, road, "b:1", self.sent.append)

    def store(self, address: str, _round: int, _header: object, _view: object, done: Callable[[str], object]) -> object:
        self.asked.append(address)
        return self.loop.call_later(0.0, lambda: done(self.answers.get(address, "")))

    def hand_over(self) -> list[bool]:
        told: list[bool] = []
        self.chores.hand_over(("c:1", "d:1"), told.append)
        self.loop.run_until(self.loop.at + 600.0)
        return told


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    found = Rig(str(tmp_path))
    yield found
    found.stock.close()


def test_who_leaves_brings_its_parts_to_its_buddy(rig: Rig) -> None:
    assert rig.hand_over() == [True]
    assert rig.asked == ["b:1"]


def test_when_the_buddy_leaves_as_well_or_is_gone_the_next_one_that_stays_gets_them(rig: Rig) -> None:
    rig.answers = {"b:1": f"{REFUSED}that node leaves as well", "c:1": "connection refused"}
    assert rig.hand_over() == [True]
    assert [*dict.fromkeys(rig.asked)] == ["b:1", "c:1", "d:1"]


def test_when_nobody_takes_them_that_is_known(rig: Rig) -> None:
    rig.answers = dict.fromkeys(("b:1", "c:1", "d:1"), f"{REFUSED}that node leaves as well")
    assert rig.hand_over() == [False]


def test_who_has_nothing_to_bring_has_handed_nothing_over(rig: Rig) -> None:
    rig.stock.begin(None, None)
    assert rig.hand_over() == [False]
    assert rig.asked == []


def test_a_plan_that_comes_while_a_node_leaves_does_not_keep_it_waiting(rig: Rig) -> None:
    told: list[bool] = []
    rig.chores.hand_over(("c:1",), told.append)
    rig.chores.cancel()
    rig.loop.run_until(rig.loop.at + 600.0)
    assert told == [True]


def test_parts_that_a_plan_makes_void_meanwhile_are_passed_over(rig: Rig) -> None:
    for part in (Part(1, 4, 8, 80, 2, 0, True, 5000), Part(1, 4, 7, 70, 2, 1, False, 5000)):
        slot = rig.stock.lodge(5000)
        settle(slot, part)
        rig.stock.release(slot)
    told: list[bool] = []
    rig.chores.hand_over(("c:1",), told.append)
    rig.chores.cancel()
    rig.stock.begin(PART.order, None)
    rig.loop.run_until(rig.loop.at + 600.0)
    assert told == [True]
    assert rig.asked == ["b:1", "b:1"], "both parts of the commit that counts"


def test_at_the_end_of_a_round_nothing_is_brought_any_more(rig: Rig) -> None:
    told: list[bool] = []
    rig.chores.hand_over(("c:1",), told.append)
    rig.chores.close()
    rig.loop.run_until(rig.loop.at + 600.0)
    assert told == []


def test_parts_that_cannot_be_mapped_are_not_written_which_is_told_once_and_the_next_are_tried(rig: Rig) -> None:
    rig.memory.is_short = True
    for number in (1, 2):
        rig.chores.write(Write(number, PART.order, (0,)))
    assert rig.sent == [Written(1, False, WHY), Written(2, False, WHY)]
    assert rig.said == [
        f"a commit cannot be written to disk: {WHY}; training goes on, the next commit is tried (said once)"
    ]
    assert [slot.pins for slot in rig.stock.slots.all()] == [0]
