"""What a leader makes of what others say in the store: a cluster, that nodes are gone for good; nodes, that they have left."""

from __future__ import annotations

import pytest
from hall import LAST, SILENCE_S, Hall, claimant, member_of

from planaria.base.value import replace
from planaria.rendezvous import quorum
from planaria.rendezvous.leader import Leader
from planaria.rendezvous.model import Deputy, Held, Say
from planaria.rendezvous.roll import DEAD_S


def stranger() -> Hall:
    """Return a leader that has nothing but the store: it was not in the last round, and nobody of it is here."""
    hall = Hall(LAST, external=True, node="x", address="x:1")
    hall.leader = Leader(hall.settings, hall.now, term=2, standing=LAST, held=Held())
    hall.leader.office.roll.tie_until = quorum.ALWAYS
    hall.join("x")
    return hall


def said(orders: list[object]) -> list[str]:
    return [order.text for order in orders if isinstance(order, Say)]


def test_without_a_note_a_stranger_holds() -> None:
    hall = stranger()
    assert any("holding: 0 of 3" in text for text in said([*hall.look(), *hall.look(SILENCE_S)]))
    assert hall.leader.office.phase == "claiming"


def test_when_all_are_buried_a_stranger_goes_on() -> None:
    hall = stranger()
    hall.leader.hear_of_dead(frozenset("abc"))
    hall.look()
    told = said([*hall.look(SILENCE_S), *hall.look(1.0)])
    assert [text.split()[0] for text in told if "gone for good" in text] == ["a", "b", "c"]
    hall.live("x", 3.0)
    assert hall.leader.office.phase == "placing"


def test_half_is_enough_when_the_store_says_that_we_lead() -> None:
    hall = claimant(external=True)
    hall.leader.office.roll.tie_until = quorum.ALWAYS
    hall.leader.hear_of_dead(frozenset("b"))
    hall.live("a", SILENCE_S + 1)
    assert hall.leader.office.phase != "claiming", "one of two that may be alive"


def test_a_note_counts_only_after_the_time_in_which_the_silent_are_fenced() -> None:
    hall = claimant(external=True)
    hall.leader.office.roll.tie_until = quorum.ALWAYS
    hall.leader.hear_of_dead(frozenset("bc"))
    hall.look()
    assert hall.leader.office.roll.dead == {}
    assert hall.wake_at <= hall.leader.office.began_at + SILENCE_S, "it looks again by itself"
    hall.look(SILENCE_S - 0.1)
    assert hall.leader.office.roll.dead == {}
    hall.look(0.2)
    assert set(hall.leader.office.roll.dead) == {"b", "c"}


def test_who_is_here_lives_whatever_is_said() -> None:
    hall = claimant(external=True)
    hall.leader.office.roll.tie_until = quorum.ALWAYS
    hall.join("b", **member_of(LAST, 1))
    hall.leader.hear_of_dead(frozenset("abc"))
    hall.live("ab", 2 * SILENCE_S)
    assert set(hall.leader.office.roll.dead) == {"c"}


@pytest.mark.parametrize(("tie_until", "counts"), [(quorum.ALWAYS, True), (quorum.NEVER, False)])
def test_a_note_counts_as_a_refusal_does_where_no_round_can_have_been_missed(tie_until: float, counts: bool) -> None:
    hall = claimant(external=True)
    hall.leader.office.roll.tie_until = tie_until
    hall.leader.hear_of_dead(frozenset("bc"))
    hall.live("a", SILENCE_S + 1)
    assert bool(hall.leader.office.roll.dead) == counts


def test_another_agent_in_its_pod_buries_a_node_and_one_in_another_pod_does_not() -> None:
    pods = (
        "resnet-worker-0-00000001.00000000",
        "resnet-worker-1-00000002.00000000",
        "resnet-worker-2-00000001.00000000",  # by chance
    )
    last = replace(LAST, deputies=tuple(Deputy(node, "10.0.0.1:1") for node in pods))
    own = "resnet-worker-0-00000001.11111111"
    hall = Hall(last, external=True, node=own, address="x:1")
    hall.leader = Leader(hall.settings, hall.now, term=2, standing=last, held=Held())
    hall.leader.office.roll.tie_until = quorum.ALWAYS
    hall.join(own)
    hall.look()
    assert hall.leader.office.roll.dead == {}
    hall.look(SILENCE_S)
    assert set(hall.leader.office.roll.dead) == {pods[0]}


def test_names_that_nobody_knows_are_passed_over() -> None:
    hall = claimant(external=True)
    hall.leader.office.roll.tie_until = quorum.ALWAYS
    hall.leader.hear_of_dead(frozenset({"z", ""}))
    hall.live("a", SILENCE_S + 1)
    assert hall.leader.office.roll.dead == {}


def test_one_that_says_in_the_store_that_it_has_left_is_not_waited_for() -> None:
    hall = claimant(external=True)
    hall.leader.office.roll.tie_until = quorum.ALWAYS
    hall.leader.hear_of_left(frozenset("bc"), hall.now)
    assert hall.leader.office.roll.gone.keys() == {"b", "c"}
    hall.live("a", 1.0)
    assert hall.leader.office.phase != "claiming"


def test_members_of_whom_nothing_but_their_goodbye_is_known_are_not_waited_for() -> None:
    hall = Hall(replace(LAST, size=5), external=True)
    hall.join("a", **member_of(replace(LAST, size=5), 0))
    hall.leader.office.roll.tie_until = quorum.ALWAYS
    roll = hall.leader.office.roll
    assert (roll.size(), roll.has_unknown()) == (5, True)
    hall.leader.hear_of_left(frozenset("bcyz"), hall.now)
    assert (roll.size(), roll.has_unknown()) == (1, False)
    assert sorted(roll.members.values()) == [0, 1, 2, 3, 4]


def test_one_that_is_here_or_was_has_yet_to_say_goodbye_whatever_others_say_in_the_store() -> None:
    hall = claimant(external=True)
    hall.join("b", **member_of(LAST, 1))
    hall.leader.hear_of_left(frozenset("b"), hall.now)
    assert hall.leader.office.roll.gone == {}
    hall.lose("b")
    hall.leader.hear_of_left(frozenset("b"), hall.now)
    assert hall.leader.office.roll.gone == {}


def test_who_leaves_says_of_the_dead_only_what_is_certain() -> None:
    roll = claimant(external=True).leader.office.roll
    roll.gone, roll.dead = {"b": 40.0}, {"c": 50.0}
    assert roll.gone_for_good(50.0 + DEAD_S / 2) == {"b"}
    assert roll.gone_for_good(50.0 + DEAD_S) == {"b", "c"}
