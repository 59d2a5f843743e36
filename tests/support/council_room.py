"""A council, and members that say what a test makes them say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planaria.agent.council import Council
from planaria.agent.council_messages import Part, Plan, Present, Ready, Sealed
from planaria.base.value import replace

if TYPE_CHECKING:
    from planaria.agent.council_messages import Ruling, Saying

Order = tuple[int, int, int]
FIRST, SECOND, THIRD = (1, 3, 1), (1, 3, 2), (1, 3, 3)


def part(order: Order, rank: int, world: int = 3, *, shared: bool = True) -> Part:
    return Part(*order, order[2] * 10, world, rank, shared, 5000)


def present(slot: int, *parts: Part, size: int = 3, local: int = 1, **fields: object) -> Present:
    """Return a member of round 4 that was in round 3."""
    buddy = f"n{(slot + 1) % size}" if size > 1 else ""
    made = Present(slot, slot * local, local, buddy, 1, 3, parts, (), (), ())
    return replace(made, **fields)


class Room:
    """A council, and what each slot was told last."""

    def __init__(self, size: int = 3, *, local: int = 1, disk: bool = False, buddies: bool = True) -> None:
        self.council = Council(4, size, size * local, has_directory=disk, has_buddies=buddies)
        self.size = size

    def say(self, slot: int, message: Saying) -> list[tuple[int, Ruling]]:
        return self.council.hear(slot, message)

    def open(self, *members: Present) -> list[tuple[int, Ruling]]:
        told = []
        for member in members or [present(slot, size=self.size) for slot in range(self.size)]:
            told = self.say(member.slot, member)
        return told

    def ready(self, version: int = 1) -> list[tuple[int, Ruling]]:
        return [one for slot in range(self.size) for one in self.say(slot, Ready(version))]

    def seal(self, order: Order, version: int = 1) -> list[tuple[int, Ruling]]:
        return [one for slot in range(self.size) for one in self.say(slot, Sealed(version, order, order[2] * 10))]


def plans(told: list[tuple[int, Ruling]]) -> dict[int, Plan]:
    return {slot: one for slot, one in told if isinstance(one, Plan)}


def for_all(message: Ruling, size: int = 3) -> list[tuple[int, Ruling]]:
    return [(slot, message) for slot in range(size)]
