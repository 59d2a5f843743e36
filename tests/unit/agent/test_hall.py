from __future__ import annotations

from typing import TYPE_CHECKING

from clocks import FakeLoop

from planaria.agent.council import Council
from planaria.agent.council_messages import Plan, Present, Ready, Sealed, Unsealed, Welcome, encode
from planaria.agent.hall import MOST_REFUSALS, TELL_AFTER_S, Hall

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
    return Hall(Council(0, 2, 2, has_directory=False, has_buddies=True), own.append, FakeLoop(), lambda _: None), own


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

    hall = Hall(council, own, FakeLoop(), lambda _: None)
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


class Chamber:
    """A hall of three whose clock a test moves, and what it tells people."""

    def __init__(self) -> None:
        self.loop = FakeLoop()
        self.said: list[str] = []
        council = Council(0, 3, 3, has_directory=False, has_buddies=True)
        self.hall = Hall(council, lambda _: None, self.loop, self.said.append)
        self.lines: dict[int, Line] = {}
        self.hall.hear(0, self.present(0))

    def present(self, slot: int) -> Present:
        return Present(slot, slot, 1, f"n{(slot + 1) % 3}:1", 0, 0, (), (), (), ())

    def attend(self, slot: int) -> Line:
        line = self.lines[slot] = Line()
        self.hall.attended(encode(self.present(slot)), line)
        return line

    def seal(self, slot: int, generation: int) -> None:
        message = Sealed(1, (1, 0, generation), 10 * generation)
        self.hall.hear(0, message) if slot == 0 else self.lines[slot].hear(encode(message))

    def wait(self, seconds: float = 3 * TELL_AFTER_S) -> None:
        self.loop.run_until(self.loop.at + seconds)


def test_members_that_do_not_come_are_named_once() -> None:
    chamber = Chamber()
    chamber.wait()
    chamber.attend(1)
    chamber.wait()
    named = "nothing of it was heard from group rank 1 (n1:1), group rank 2"
    assert chamber.said == [f"no commit was complete for 30 s: {named}"]


def test_commits_none_of_which_all_have_sealed_are_told_once() -> None:
    chamber = Chamber()
    chamber.attend(1)
    chamber.attend(2)
    for generation in range(1, 9):
        for slot in (0, 2):
            chamber.seal(slot, generation)
        chamber.lines[1].hear(encode(Unsealed(1, (1, 0, generation), "")))
        chamber.wait(TELL_AFTER_S / 4)
    chamber.wait()
    assert [line.split(";")[0] for line in chamber.said] == [
        "no commit was complete for 30 s: none was sealed by all ranks"
    ]


def test_a_member_that_seals_nothing_is_named_once_and_only_when_it_is_late() -> None:
    chamber = Chamber()
    chamber.attend(1)
    chamber.attend(2)
    chamber.wait()
    for generation in (1, 2):
        for slot in (0, 1, 2):
            chamber.wait(TELL_AFTER_S / 2 - 1)
            chamber.seal(slot, generation)
    chamber.wait()
    assert chamber.said == [], "slow is not late, and nobody has to commit"
    for generation in (3, 4):
        chamber.seal(0, generation)
        chamber.seal(2, generation)
        chamber.wait()
    named = "nothing of it was heard from group rank 1 (n1:1)"
    assert chamber.said == [f"no commit was complete for 30 s: {named}"]


def test_a_hall_that_is_closed_tells_nothing_more() -> None:
    chamber = Chamber()
    chamber.hall.close()
    chamber.wait()
    assert chamber.said == []
    assert chamber.loop.pending() == []


def test_who_is_refused_is_told_with_the_reason_once_and_not_without_end() -> None:
    chamber = Chamber()
    for _ in range(2):
        chamber.hall.attended(encode(chamber.present(0)), Line())
        chamber.attend(1)
        chamber.attend(2).hear({"type": "nonsense"})
        chamber.attend(1).hear(encode(Sealed(1, (1, 7, 1), 1)))
    assert chamber.said == [
        "somebody was refused a say about commits: not how a member introduces itself",
        "group rank 2 (n2:1) was refused a say about commits: not a message of a council",
        "group rank 1 (n1:1) was refused a say about commits: a commit of another round",
    ]
    for number in range(3 * MOST_REFUSALS):
        chamber.attend(10 + number)
    assert "group rank 10 was refused a say about commits: a member without a place in this round" in chamber.said
    assert len(chamber.said) == MOST_REFUSALS
