"""Commits that not all ranks have made, or not of one step: they count for nobody."""

from __future__ import annotations

import pytest
from council_room import FIRST, SECOND, Room, for_all, part, plans, present

from planaria.agent.council_messages import Complete, Sealed, Unsealed, Void
from planaria.base.value import replace

WHY = "step is 10 on rank 0 and 12 on rank 1; it must be the same on all ranks"


def test_what_a_node_has_passed_over_is_void_for_all() -> None:
    room = Room(buddies=False)
    room.open()
    room.say(0, Sealed(1, (1, 4, 1), 10))
    assert room.say(1, Sealed(1, (1, 4, 2), 20)) == for_all(Void((1, 4, 1), ""))
    assert room.say(2, Sealed(1, (1, 4, 1), 10)) == [(2, Void((1, 4, 1), ""))], "it could not hear so in time"
    room.say(0, Sealed(1, (1, 4, 2), 20))
    assert room.say(2, Sealed(1, (1, 4, 2), 20)) == for_all(Complete((1, 4, 2), 20))


def test_nodes_with_different_steps_have_no_commit_and_hear_why() -> None:
    room = Room(buddies=False)
    room.open()
    room.say(0, Sealed(1, (1, 4, 1), 10))
    assert room.say(1, Sealed(1, (1, 4, 1), 12)) == for_all(Void((1, 4, 1), WHY))
    assert room.say(2, Sealed(1, (1, 4, 1), 10)) == [(2, Void((1, 4, 1), WHY))]
    assert room.council.void_count == 1
    assert for_all(Complete((1, 4, 2), 20))[0] in room.seal((1, 4, 2))
    assert room.council.void_count == 0


def test_a_node_says_that_its_workers_will_not_have_a_commit() -> None:
    room = Room(buddies=False)
    room.open()
    for slot in (0, 2):
        room.say(slot, Sealed(1, (1, 4, 1), 10))
    assert room.council.missing() == (1,)
    assert room.say(1, Unsealed(1, (1, 4, 1), "")) == for_all(Void((1, 4, 1), ""))
    assert room.council.missing() == ()
    assert room.say(1, Unsealed(1, (1, 4, 1), "")) == [(1, Void((1, 4, 1), ""))], "said again, and answered"
    assert room.say(2, Unsealed(1, (1, 4, 1), WHY)) == for_all(Void((1, 4, 1), WHY)), "a reason is news"
    room.seal((1, 4, 2))
    assert room.say(1, Unsealed(1, (1, 4, 2), "")) == [], "it was sealed everywhere"
    with pytest.raises(ValueError, match="another round"):
        room.say(1, Unsealed(1, (1, 3, 9), ""))


def test_who_was_out_of_reach_hears_what_is_void() -> None:
    room = Room(buddies=False)
    room.open()
    room.say(1, Unsealed(1, (1, 4, 1), WHY))
    assert (2, Void((1, 4, 1), WHY)) in room.say(2, present(2))


def test_nobody_begins_from_parts_of_different_steps() -> None:
    """Their nodes died before anybody could compare them."""
    other = replace(part(SECOND, 1), step=21)
    told = Room().open(
        present(0, part(FIRST, 0), part(SECOND, 0)),
        present(1, part(FIRST, 1), other),
        present(2, part(FIRST, 2), part(SECOND, 2)),
    )
    assert {plan.order for plan in plans(told).values()} == {FIRST}


def test_a_member_that_is_far_ahead_of_all_others_is_none_of_ours() -> None:
    room = Room(buddies=False)
    room.open()
    for generation in range(1, 65):
        room.say(1, Sealed(1, (1, 4, generation), generation))
    with pytest.raises(ValueError, match="too many"):
        room.say(1, Sealed(1, (1, 4, 65), 65))
