"""The leader's rarer decisions: a bad moment, a second loss, a majority that is not there, a node nobody can name."""

from __future__ import annotations

import pytest
from court import Court, claimed, deputy_of, failure_of, only, reasons, rejoin, said, short_of_one, to_whom

from planaria.base.value import replace
from planaria.rendezvous.messages import (
    Departing,
    Done,
    Ended,
    Leave,
    Place,
    Placed,
    Start,
    Stop,
    Stopped,
    Waiting,
)
from planaria.rendezvous.model import Standing

SILENCE_S = 5.5
EPSILON_S = 0.01
STOPPED = Stopped(1, 2000, fenced=False)
"""What a member of round 0 says when its workers are dead."""


# What comes at a bad moment.


def test_a_connection_that_ends_before_anybody_joined_over_it_is_no_event() -> None:
    court = Court()
    court.begin("ab")
    court.leader.lost("in-z", court.now)
    assert not court.leader.office.orders.is_dirty
    assert court.look() == []


def test_a_round_that_is_placed_while_the_term_rises_is_placed_again_with_the_new_one() -> None:
    court = Court(max_nodes=2)
    for node in "ab":
        court.join(node)
    court.look(1.0)
    court.say("a", Placed(0))
    court.leader.raise_term(7)
    places = [message for _, message in court.look() if isinstance(message, Place)]
    assert {(place.term, place.round) for place in places} == {(7, 1)}, "some may have heard of the other"
    court.say("b", Placed(0))
    assert to_whom(court.look(), Start) == []


def test_a_round_that_runs_goes_on_when_the_term_rises() -> None:
    court = Court()
    court.begin("ab")
    court.leader.raise_term(7)
    assert court.look() == []
    assert (court.leader.office.term, court.leader.office.next_round) == (7, 1)


# Who comes back.


def test_a_member_that_comes_back_without_its_workers_makes_all_start_over() -> None:
    court = Court(resize_grace_s=7.0)
    court.begin("abc")
    court.lose("c")
    rejoin(court, "c", 2, state="idle")
    told = court.look()
    assert only(told, Stop) == Stop(1, "node host-c had lost touch and stopped its workers", 7.0)
    assert to_whom(told, Stop) == ["a", "b", "c"]


def test_a_goodbye_is_enough_also_from_one_that_had_just_come_back() -> None:
    court = Court()
    court.begin("abc")
    court.lose("c")
    rejoin(court, "c", 2)
    court.look()
    court.say("c", Leave("SIGTERM"))
    assert only(court.look(), Stop) == Stop(1, "node host-c left", 0.0)
    assert to_whom(court.restart("ab"), Start) == ["a", "b"]


# Who is waited for until no worker of the last round can be alive.


def test_a_member_that_went_without_a_word_is_waited_for_until_it_is_fenced() -> None:
    court = Court(max_nodes=3)
    court.begin("abc")
    answered_at = court.now
    court.say("b", failure_of("b"))
    court.look()
    court.lose("c")
    court.say("ab", STOPPED)
    assert to_whom(court.live("ab", 5.0), Place) == []
    told = court.look(answered_at + SILENCE_S - court.now - EPSILON_S)
    assert to_whom(told, Place) == []
    assert court.wake_at == pytest.approx(answered_at + SILENCE_S)
    told = court.look(EPSILON_S)
    assert to_whom(told, Place) == ["a", "b"]
    assert reasons(told) == {"node host-c fell silent"}
    assert court.leader.office.restart_count == 0


def test_a_member_that_stopped_its_workers_and_went_is_waited_for_as_long_as_it_may_go_on_by_its_lease() -> None:
    court = Court(max_nodes=4)
    court.begin("abc")
    court.join("d")
    court.look(0.3)
    court.say("c", STOPPED)
    court.look()
    court.lose("c")
    court.say("ab", STOPPED)
    assert to_whom(court.live("abd", 5.0), Place) == []
    assert to_whom(court.live("abd", 0.5), Place) == ["a", "b", "d"]


def test_a_member_that_stopped_its_workers_and_said_goodbye_is_not_waited_for() -> None:
    court = Court(max_nodes=4)
    court.begin("abc")
    court.join("d")
    court.look(0.3)
    court.say("c", STOPPED)
    court.look()
    court.say("c", Leave("SIGTERM"))
    court.say("ab", STOPPED)
    assert to_whom(court.look(), Place) == ["a", "b", "d"]


def test_a_member_that_was_done_and_went_is_waited_for_likewise() -> None:
    court = Court(max_nodes=4)
    court.begin("abcd")
    court.say("c", Done(0))
    court.look()
    court.lose("c")
    court.say("b", Departing("SIGTERM"))
    court.look()
    court.say("b", Leave("SIGTERM"))
    court.say("ad", STOPPED)
    assert to_whom(court.live("ad", 5.0), Place) == []
    assert to_whom(court.live("ad", 0.5), Place) == ["a", "d"]


@pytest.mark.parametrize("number", [0, 4])
def test_nobody_starts_while_a_node_that_came_has_workers_of_an_older_world(number: int) -> None:
    court = Court(max_nodes=2)
    court.join("a")
    court.join("b")
    court.join("c", standing=Standing("x", 1, number, 1, 0), state="running")
    told = court.look(1.0)
    assert to_whom(told, Stop) == ["c"]
    assert to_whom(told, Place) == []
    court.say("c", Stopped(0, 2000, fenced=False))
    assert to_whom(court.look(), Place) == ["a", "b", "c"]


def test_workers_of_an_older_world_are_stopped_with_the_others_and_waited_for_before_a_failure_is_judged() -> None:
    court = Court(max_restarts=0)
    court.begin("ab")
    court.join("x", standing=Standing("a", 0, 0, 1, 0), state="running")
    court.look()
    court.say("b", failure_of("b"))
    assert to_whom(court.look(), Stop) == ["a", "b", "x"]
    court.say("ab", STOPPED)
    court.look()
    assert court.leader.office.ended is None
    court.say("x", STOPPED)
    court.look()
    assert court.leader.office.ended is not None
    assert court.leader.office.ended.kind == "failed"


def test_a_member_that_nobody_can_name_is_waited_for_until_it_is_fenced() -> None:
    court = deputy_of("ab", 4, "ab")  # of three
    fenced_at = court.now - 1.0 + SILENCE_S
    court.say("b", failure_of("b", 4))
    court.look()
    court.say("ab", Stopped(5, 2000, fenced=False))
    assert to_whom(court.live("ab", 4.0), Place) == []
    assert court.wake_at <= fenced_at
    told = court.live("ab", 0.5)
    assert to_whom(told, Place) == ["a", "b"]
    assert court.leader.office.restart_count == 2, "it was lost, so the failure is free"


# Failures, and what excuses them.


def test_failures_are_not_judged_by_a_leader_without_a_majority() -> None:
    court = Court(max_restarts=0)
    court.begin("abc")
    court.say("b", failure_of("b"))
    court.look()
    court.say("abc", STOPPED)
    court.look(4.5)
    assert court.leader.office.ended is None, "the others may have gone on without us"
    court.renew("abc")
    court.look()
    court.renew("abc")
    court.look()
    assert court.leader.office.ended is not None
    assert court.leader.office.ended.kind == "failed"


@pytest.mark.parametrize("comes_back", [True, False])
def test_failures_are_not_judged_while_a_member_that_went_may_turn_out_lost(comes_back: bool) -> None:
    court = Court(max_restarts=0)
    court.begin("abc")
    court.say("b", failure_of("b"))
    court.look()
    court.say("c", STOPPED)
    court.look()
    court.lose("c")
    court.say("ab", STOPPED)
    assert court.look() == []
    assert court.leader.office.ended is None
    if comes_back:
        rejoin(court, "c", 2, state="idle")
        court.look()
        assert court.leader.office.ended is not None
        assert court.leader.office.ended.kind == "failed"
    else:
        assert to_whom(court.live("ab", 6.0), Place) == ["a", "b"]
        assert court.leader.office.restart_count == 0


def test_a_member_that_comes_back_from_beyond_its_lease_excuses_the_failures_of_that_round() -> None:
    court = Court(max_restarts=0)
    court.begin("abc")
    court.say("b", failure_of("b"))
    court.lose("c")
    rejoin(court, "c", 2, state="idle", fenced=True)
    court.look()
    court.say("abc", STOPPED)
    assert to_whom(court.look(), Place) == ["a", "b", "c"]
    assert court.leader.office.restart_count == 0


@pytest.mark.parametrize("how", ["left", "killed"])
def test_a_member_that_was_done_when_it_went_excuses_nothing(how: str) -> None:
    court = Court(max_restarts=0)
    court.begin("abc")
    court.say("c", Done(0))
    court.look()
    if how == "left":
        court.say("c", Leave(""))
    else:
        court.lose("c")
        court.refuse("c")
    court.say("b", failure_of("b"))
    court.look()
    court.say("ab", STOPPED)
    court.look()
    assert court.leader.office.ended is not None
    assert court.leader.office.ended.kind == "failed"


# Without a majority.


def test_a_leader_that_is_to_exit_without_a_majority_ends_when_those_it_stops_are_silent() -> None:
    court = Court(on_lost_majority="exit")
    court.begin("abc")
    court.say("b", failure_of("b"))
    court.look()
    court.say("a", STOPPED)
    court.live("a", 5.0)
    assert court.leader.office.ended is None
    court.live("a", 1.0)
    assert court.leader.office.ended == Ended("lost", 75, "only 1 of 3 members of the last round are left", (), 0)


def test_a_deputy_does_not_say_that_it_holds_while_enough_are_here_and_have_yet_to_answer() -> None:
    court = claimed("a")
    court.look(SILENCE_S - 0.1)
    assert said(court) == []
    known = replace(court.leader.office.roll.last, slot=1, home=1)
    court.join("b", standing=known, state="running", bound_term=1, since_ack_s=9.0)
    court.look(0.2)
    assert said(court) == []


def test_newcomers_do_not_replace_a_majority_that_went() -> None:
    court = short_of_one()
    for node in "bcd":
        court.lose(node)
    for node in "fghi":
        court.join(node)
    told = court.live("afghi", 5.5)
    assert said(court)[0].startswith("holding: 1 of 4 members of round 0 are here")
    told += court.live("afghi", 3.0)
    assert to_whom(told, Start) == []
    assert {message.round for _, message in told if isinstance(message, Place)} == {0}, "they learn of the last one"


def test_a_majority_that_is_here_but_has_not_answered_for_a_lease_does_not_open_a_round() -> None:
    court = short_of_one()
    court.look(4.5)
    court.join("f")
    told = court.look()
    assert {message.round for _, message in told if isinstance(message, Place)} == {0}
    assert said(court) == []
    court.renew("abcd")
    told = court.look()
    court.renew("abcd")
    told += court.look()
    assert to_whom(told, Place) == ["a", "b", "c", "d", "f"]


def test_a_leader_that_lacks_both_nodes_and_a_majority_says_that_it_waits_for_nodes() -> None:
    court = short_of_one()
    for node in "bcd":
        court.lose(node)
    told = court.live("a", 8.0)
    assert said(court) == []
    assert [message.text for _, message in told if isinstance(message, Waiting)][-1].endswith(
        "waiting for 4 more (host-b, host-c, host-d went missing)"
    )


def test_a_leader_that_is_to_continue_without_a_majority_opens_a_round_when_the_others_are_fenced() -> None:
    court = Court(on_lost_majority="continue")
    court.begin("abc")
    told = court.live("a", 6.0)
    assert to_whom(told, Stop) == ["a"]
    court.say("a", STOPPED)
    assert to_whom(court.look(), Place) == ["a"]


def test_a_first_round_that_was_announced_to_many_is_not_made_by_few_and_nobody_is_told_to_hold() -> None:
    court = Court()
    for node in "abc":
        court.join(node)
    court.look(1.0)
    court.lose("b")
    court.lose("c")
    assert to_whom(court.look(4.0), Place) == []
    assert said(court) == []
    assert court.wake_at <= court.now + 0.5
    court.join("b", "in-again")
    court.renew("b")
    assert to_whom(court.look(2.0), Place) == ["a", "b"]


@pytest.mark.parametrize(("external", "goes_on"), [(False, True), (True, False)])
def test_a_deputy_that_leads_keeps_half_of_a_round_unless_a_store_has_the_tie_break(
    external: bool, goes_on: bool
) -> None:
    court = claimed("a", "b", "c", external=external)
    court.live("abc", 1.0)
    court.say("c", Leave("SIGTERM"))
    assert to_whom(court.look(), Stop) == ["a", "b"]
    court.say("a", Stopped(5, 2000, fenced=False))
    told = court.live("a", 7.0)
    assert to_whom(told, Place) == (["a"] if goes_on else [])
