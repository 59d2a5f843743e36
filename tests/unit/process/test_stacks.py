"""Processes that share a black box and are asked for their stacks, on a clock of the test's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

import pytest
from clocks import FakeLoop

from planaria.process.stacks import Stacks
from planaria.process.turns import QUIET_S, TURN_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planaria.base.loop import Loop

WORKER, CHILD, OTHER = 10, 11, 12


class Place:
    """A black box, a clock, and who was asked so far."""

    def __init__(self) -> None:
        self.box = os.memfd_create("box")
        self.loop = FakeLoop()
        self.asked: list[int] = []
        self.deaf: set[int] = set()
        self.stacks = Stacks(cast("Loop", self.loop), self.box, self._ask)

    def _ask(self, pid: int) -> bool:
        self.asked.append(pid)
        return pid not in self.deaf

    def write(self) -> None:
        os.write(self.box, b"some words ")

    def run(self, seconds: float) -> None:
        self.loop.run_until(self.loop.at + seconds)


@pytest.fixture
def place() -> Iterator[Place]:
    found = Place()
    yield found
    os.close(found.box)


@pytest.mark.parametrize("order", [(WORKER, CHILD), (CHILD, WORKER)])
def test_a_worker_and_its_child_are_asked_one_after_the_other_in_either_order(
    place: Place, order: tuple[int, int]
) -> None:
    first, second = order
    place.stacks.want(first)
    place.stacks.want(second)
    for _ in range(5):  # longer than a quiet moment, in all
        place.write()
        place.run(QUIET_S / 2)
        assert place.asked == [first]
    place.run(QUIET_S)
    assert place.asked == [first, second]
    place.write()
    place.run(2 * QUIET_S)
    assert place.loop.pending() == [], "nobody looks when nobody writes"


def test_one_that_never_answers_costs_the_next_its_time_and_no_more(place: Place) -> None:
    place.stacks.want(CHILD)
    place.stacks.want(WORKER)
    place.run(TURN_S * 0.9)
    assert place.asked == [CHILD]
    place.run(TURN_S * 0.2)
    assert place.asked == [CHILD, WORKER]


def test_those_that_cannot_answer_are_passed_over_at_once(place: Place) -> None:
    place.deaf = {CHILD, OTHER}
    for pid in (CHILD, OTHER, WORKER):
        place.stacks.want(pid)
    assert place.asked == [CHILD, OTHER, WORKER]


def test_after_its_end_nobody_is_asked_and_the_box_is_not_touched(place: Place) -> None:
    place.stacks.want(WORKER)
    place.stacks.want(CHILD)
    place.stacks.close()
    assert place.loop.pending() == []
    place.run(2 * TURN_S)
    assert place.asked == [WORKER]
