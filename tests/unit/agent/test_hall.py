from __future__ import annotations

from typing import TYPE_CHECKING

from planaria.agent.council import Council
from planaria.agent.council_messages import Plan, Present, Ready, Welcome, encode
from planaria.agent.hall import Hall

if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.agent.council_messages import Ruling


class Line:
    """The anchor's end of a member's line."""

    def __init__(self) -> None:
        self.sent: list[object] = []
        self.is_closed = False
        self.on_message: Callable[[object], object] | None = None
        self.on_lost: Callable[[str], object] | None = None

    def send(self, value: object) -> None:
        self.sent.append(value)

    def close(self) -> None:
        self.is_closed = True

    def hear(self, value: object) -> None:
        assert self.on_message is not None
        self.on_message(value)


def present(slot: int) -> Present:
    return Present(slot, slot, 1, f"n{1 - slot}", 0, 0, (), (), (), ())


def hall_of_two() -> tuple[Hall, list[Ruling]]:
    own: list[Ruling] = []
    return Hall(Council(0, 2, 2, has_directory=False, has_buddies=True), own.append), own


def test_own_member_and_others_are_told_the_same() -> None:
    hall, own = hall_of_two()
    line = Line()
    hall.hear(0, present(0))
    hall.attended(encode(present(1)), line)
    assert [type(one) for one in own] == [Welcome, Plan]
    assert line.sent == [encode(one) for one in own]


def test_what_is_said_while_a_ruling_is_told_waits_its_turn() -> None:
    """Our own member answers at once, in the midst of what is told to all."""
    told: list[str] = []
    council = Council(0, 2, 2, has_directory=False, has_buddies=True)
    hall: Hall

    def own(ruling: Ruling) -> None:
        told.append(type(ruling).__name__)
        if isinstance(ruling, Plan):
            hall.hear(0, Ready(1))
            told.append("said")

    hall = Hall(council, own)
    hall.hear(0, present(0))
    hall.attended(encode(present(1)), Line())
    assert told == ["Welcome", "Plan", "said"]


def test_a_line_without_sense_is_closed() -> None:
    for header in (None, {"type": "ready", "version": 1}, encode(present(0)), encode(present(7))):
        hall, _ = hall_of_two()
        line = Line()
        hall.attended(header, line)
        assert line.is_closed


def test_a_member_that_talks_nonsense_loses_its_line_and_may_come_again() -> None:
    hall, own = hall_of_two()
    hall.hear(0, present(0))
    for nonsense in ({"type": "nonsense"}, encode(Welcome(1)), {"type": "ready", "version": -1}):
        line = Line()
        hall.attended(encode(present(1)), line)
        assert [one["type"] for one in line.sent] == ["welcome", "plan"]  # type: ignore[index]
        line.hear(nonsense)
        assert line.is_closed
    assert len(own) == 2, "nobody else hears of it"


def test_a_newer_line_takes_the_place_of_an_older_one() -> None:
    hall, _ = hall_of_two()
    hall.hear(0, present(0))
    first, second = Line(), Line()
    hall.attended(encode(present(1)), first)
    hall.attended(encode(present(1)), second)
    assert (first.is_closed, second.is_closed) == (True, False)
    first.hear({"type": "nonsense"})
    assert not second.is_closed
    assert first.on_lost is not None
    first.on_lost("late")
    hall.close()
    assert second.is_closed
