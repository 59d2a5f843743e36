"""Leases: what a leader grants, for how long, and how often it counts."""

from __future__ import annotations

import pytest
from hall import LAST, LEASE_S, Hall, member_of

from planaria.rendezvous.attendance import MOST_UNECHOED
from planaria.rendezvous.messages import Departing, Failed, Placed, Renew, Stopped

# What is granted.


def test_a_claimant_grants_nothing_before_it_has_decided_that_it_leads() -> None:
    hall = Hall(LAST)
    for slot, node in enumerate("abc"):
        hall.join(node, **member_of(LAST, slot))
    assert hall.renew("abc") == [0.0, 0.0, 0.0], "one might still come that knows of a newer round"
    hall.look()
    assert hall.renew("abc") == [LEASE_S, LEASE_S, LEASE_S]


def test_while_a_round_is_made_enough_of_its_members_are_needed_beside_those_of_the_last() -> None:
    hall = Hall(max_nodes=4)
    hall.begin("a")
    for node in "bcd":
        hall.join(node)
    hall.look(0.3)
    hall.say("a", Stopped(1, 2000, fenced=False))
    hall.look()
    assert hall.leader.office.phase == "placing"
    assert not hall.leader.office.is_valid(hall.now), "one of four"
    hall.renew("b")
    hall.look()
    assert hall.leader.office.is_valid(hall.now), "two of four, and it is the incumbent"


def hall_after_deaths(members: str, dead: str, here: str) -> Hall:
    """Return a leader of some members after some have died; of the others, only those who are `here` are heard of since."""
    hall = Hall(max_nodes=len(members))
    hall.begin(members)
    for node in dead:
        hall.lose(node)
    hall.look()
    for node in dead:
        hall.refuse(node)
    hall.look()
    hall.live(here, 4.5)
    assert hall.leader.office.phase == "stopping", "b has not stopped"
    return hall


def test_those_who_are_dead_are_not_needed_while_no_round_is_made() -> None:
    hall = hall_after_deaths("abcde", "cde", "ab")
    assert hall.leader.office.is_valid(hall.now), "two of two that may live"


def test_half_of_those_who_may_live_is_not_enough_where_another_may_have_been_made_leader_by_the_dead() -> None:
    hall = hall_after_deaths("abc", "c", "a")
    assert not hall.leader.office.is_valid(hall.now), (
        "c may have voted for b before it died, and b lead with the other half"
    )


@pytest.mark.parametrize(("policy", "phase"), [("wait", "gathering"), ("continue", "running")])
def test_a_round_does_not_start_when_its_leader_has_lost_its_majority_while_it_waited_for_an_answer(
    policy: str, phase: str
) -> None:
    hall = Hall(on_lost_majority=policy)
    hall.begin("abc")
    hall.say("c", Departing("SIGTERM"))
    hall.lose("b")
    hall.look()
    hall.say("ac", Stopped(1, 2000, fenced=False))
    hall.live("ac", 6.0)
    assert hall.leader.office.phase == "placing", "a alone, and c has to know"
    hall.say("a", Placed(1))
    hall.live("a", 6.0)
    assert hall.leader.office.phase == phase, "c is silent: it may have made b the leader"


def counted(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list that grows with every count of the members."""
    counts: list[float] = []
    honest = hall.leader.office.roll.valid_until

    def count(now: float) -> float:
        counts.append(now)
        return honest(now)

    monkeypatch.setattr(hall.leader.office.roll, "valid_until", count)
    return counts


def test_as_long_as_validity_is_far_from_its_end_members_are_not_counted_at_every_renewal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hall = Hall()
    hall.begin("abc")
    hall.renew("abc")
    counts = counted(hall, monkeypatch)
    for _ in range(8):
        hall.now += 0.01
        hall.renew("abc")
    assert len(counts) <= 1


def test_where_validity_is_about_to_end_a_renewal_that_prolongs_it_is_granted_in_full() -> None:
    hall = Hall()
    hall.begin("abc")
    hall.live("a", 3.0)
    hall.renew("bc")  # what they show now is three seconds old; it is the answers to come that count
    hall.now += 0.1
    (before,) = hall.renew("a")
    assert before < LEASE_S / 2
    hall.now += 0.01
    (after,) = hall.renew("b")
    assert after > LEASE_S - 0.2


def test_many_members_are_not_counted_at_every_renewal_even_where_validity_is_about_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hall = Hall(max_nodes=70)
    crowd = "a" + "".join(chr(0x100 + index) for index in range(69))
    hall.begin(crowd)
    hall.now += 3.0
    counts = counted(hall, monkeypatch)
    hall.renew(crowd[:20])
    assert len(counts) <= 1


def test_a_node_that_shows_an_old_answer_late_is_heard_as_of_when_that_answer_was_sent() -> None:
    hall = Hall()
    hall.join("b")
    sent_at = {}
    for number in (1, 2, 3, 4):
        hall.now += 1.0
        hall.say("b", Renew(number, -1))  # its link is slow: nothing has come yet
        sent_at[number] = hall.now
    hall.say("b", Renew(5, 2))
    assert hall.leader.office.roll.heard["b"] == sent_at[2]
    hall.say("b", Renew(6, 4))
    assert hall.leader.office.roll.heard["b"] == sent_at[4]
    hall.say("b", Renew(7, 3))
    assert hall.leader.office.roll.heard["b"] == sent_at[4]


def test_answers_that_a_node_never_shows_to_have_got_are_not_kept_beyond_a_number() -> None:
    hall = Hall()
    hall.join("b")
    for number in range(1, 3 * MOST_UNECHOED):
        hall.say("b", Renew(number, -1))
        assert len(hall.leader.office.seats["b"].sent) <= MOST_UNECHOED
    assert len(hall.leader.office.seats["b"].sent) == MOST_UNECHOED


@pytest.mark.parametrize("what", ["a claimant", "one that holds", "one that has what it needs"])
def test_a_renewal_is_looked_at_at_once_where_it_may_decide_something(what: str) -> None:
    hall = Hall(LAST if what == "a claimant" else None)
    if what == "a claimant":
        hall.join("a", **member_of(LAST, 0))
    else:
        hall.begin("abc")
    if what == "one that holds":
        hall.say("a", Failed(0, (), (), ()))
        hall.look()
        hall.say("a", Stopped(1, 2000, fenced=False))
        hall.live("a", 12.0)
    hall.look()
    assert not hall.leader.office.orders.is_dirty
    hall.renew("a")
    assert hall.leader.office.orders.is_dirty == (what != "one that has what it needs")
