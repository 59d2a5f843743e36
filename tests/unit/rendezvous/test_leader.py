"""The leader's decisions: who is told what when, who is left out, what it costs, and that renewals cost next to nothing."""

from __future__ import annotations

import sys
from itertools import pairwise

import pytest
from court import OWN, Court, claimed, failure_of, join_of, only, to_whom

from planaria.base.value import replace
from planaria.rendezvous import quorum
from planaria.rendezvous.keys import outcome_in_round
from planaria.rendezvous.leader import Leader
from planaria.rendezvous.messages import (
    Ack,
    Departing,
    Done,
    Ended,
    Failed,
    Farewell,
    Heard,
    Leads,
    Leave,
    Place,
    Placed,
    Redirect,
    Refused,
    Renew,
    Start,
    Stop,
    Stopped,
    Waiting,
    Welcome,
)
from planaria.rendezvous.model import Answered, AskAround, Close, Say, Send, Standing, WriteKey

SILENCE_S = 5.5
EPSILON_S = 0.01


# Opening a round.


def test_nobody_starts_before_everybody_knows_spectators_too() -> None:
    court = Court(max_nodes=2)
    for node in "abc":
        court.join(node)
    told = court.look(1.0)
    assert to_whom(told, Place) == ["a", "b", "c"]
    assert {node: place.slot for node, place in told if isinstance(place, Place)} == {"a": 0, "b": 1, "c": None}
    for ready in "ab":
        court.say(ready, Placed(0))
        assert to_whom(court.look(), Start) == []
    court.say("c", Placed(0))
    assert to_whom(court.look(), Start) == ["a", "b"]


def test_to_know_the_last_round_is_not_to_know_this_one() -> None:
    court = Court()
    court.begin("ab")
    court.say("b", failure_of("b"))
    court.look()
    court.say("ab", Stopped(1, 2000, fenced=False))
    assert to_whom(court.look(), Place) == ["a", "b"]
    court.say("ab", Placed(0))
    assert to_whom(court.look(), Start) == []
    court.say("ab", Placed(1))
    assert to_whom(court.look(), Start) == ["a", "b"]


def test_a_node_that_rejoins_while_a_round_is_placed_is_told_again_and_waited_for() -> None:
    court = Court()
    for node in "abc":
        court.join(node)
    court.look(1.0)
    court.say("abc", Placed(0))
    court.join("b", "in-again")
    told = court.look()
    assert [type(message) for node, message in told if node == "b"] == [Welcome, Place, Ack]
    assert Close("in-b") in court.others
    assert to_whom(told, Start) == []
    court.say("b", Placed(0))
    assert to_whom(court.look(), Start) == ["a", "b", "c"]


def test_a_chosen_node_that_is_lost_while_a_round_is_placed_burns_its_number() -> None:
    court = Court(max_nodes=3, min_nodes=2)
    for node in "abc":
        court.join(node)
    court.look(1.0)
    court.say("ab", Placed(0))
    court.lose("c")
    told = court.look(3.0)
    assert to_whom(told, Place) == ["a", "b"]
    assert {place.round for _, place in told if isinstance(place, Place)} == {1}


@pytest.mark.parametrize(
    ("what", "nodes", "limits", "opens_at"),
    [
        ("at the maximum as soon as an older world could have objected", "abc", (1, 3), 0.2),
        ("below it after a quiet time", "ab", (1, 3), 2.0),
        ("below the minimum not at all", "a", (2, 3), None),
    ],
)
def test_a_first_round_opens(what: str, nodes: str, limits: tuple[int, int], opens_at: float | None) -> None:
    court = Court(min_nodes=limits[0], max_nodes=limits[1])
    for node in nodes:
        court.join(node)
    court.look()
    if opens_at is None:
        assert to_whom(court.look(100.0), Place) == [], what
        return
    assert to_whom(court.look(opens_at - EPSILON_S), Place) == [], what
    assert court.wake_at == pytest.approx(opens_at)
    assert to_whom(court.look(EPSILON_S), Place) == list(nodes), what


def test_every_arrival_prolongs_the_quiet_time_of_a_first_round() -> None:
    court = Court(max_nodes=4)
    court.join("a")
    court.look(1.5)
    court.join("b")
    assert to_whom(court.look(1.9), Place) == []
    assert to_whom(court.look(0.2), Place) == ["a", "b"]


def test_a_first_round_that_never_opens_ends_with_124() -> None:
    court = Court(min_nodes=2, join_timeout_s=60.0)
    court.join("a")
    court.look(59.9)
    assert court.leader.ended is None
    court.look(0.2)
    assert court.leader.ended is not None
    assert (court.leader.ended.kind, court.leader.ended.status) == ("timeout", 124)


def test_the_first_slot_is_the_master_at_the_port_it_reserved() -> None:
    court = Court()
    court.join("a", address="[fd00::1]:29400", port=4321)
    court.join("b")
    places = [place for _, place in court.look(3.0) if isinstance(place, Place)]
    assert {(place.master_addr, place.master_port) for place in places} == {("fd00::1", 4321)}


def test_with_a_store_nobody_starts_before_it_has_the_round_and_it_is_written_by_comparing() -> None:
    court = Court(external=True, max_nodes=2)
    court.leader.roll.tie_until = quorum.ALWAYS
    court.leader.round_revision = 40
    for node in "ab":
        court.join(node)
    court.look()
    court.say("ab", Placed(0))
    assert to_whom(court.look(), Start) == []
    (write,) = [one for one in court.others if isinstance(one, WriteKey)]
    assert (write.key, write.expect, write.leased) == ("round", 40, False)
    court.leader.round_written(41, court.now)
    assert to_whom(court.look(), Start) == ["a", "b"]
    assert court.leader.round_revision == 41


def test_a_node_lost_while_the_store_was_asked_is_not_started_with() -> None:
    court = Court(external=True, max_nodes=2)
    court.leader.roll.tie_until = quorum.ALWAYS
    for node in "ab":
        court.join(node)
    court.look()
    court.say("ab", Placed(0))
    court.look()
    court.lose("b")
    court.leader.round_written(41, court.now)
    told = court.look(3.0)
    assert to_whom(told, Start) == []
    assert {place.round for _, place in told if isinstance(place, Place)} == {1}


# Who may join.


@pytest.mark.parametrize(
    ("what", "changes", "kinds"),
    [
        ("another run", {"run_id": "another"}, [Waiting, Redirect]),
        ("a rank that is taken", {"slot_wish": 1}, [Waiting, Redirect]),
        ("a run that is over", {"standing": Standing(epoch="x", round=4, ran=4)}, [Refused]),
    ],
)
def test_whoever_cannot_be_in_this_run_is_told_why_and_dropped(
    what: str, changes: dict[str, object], kinds: list[type]
) -> None:
    court = Court(max_nodes=3)
    court.join("b", slot_wish=1)
    court.join("a")
    court.look(3.0)
    court.say("ab", Placed(0))
    court.look()
    court.join("c", **changes)
    told = court.look()
    assert [type(message) for node, message in told if node == "c"] == kinds, what
    assert Close("in-c") in court.others
    assert "c" not in court.leader.seats


def test_a_node_with_a_rank_of_its_own_may_come_back_with_it() -> None:
    court = Court()
    court.join("b", slot_wish=1)
    court.join("b", "in-again", slot_wish=1)
    assert to_whom(court.look(), Refused) == []


def test_whoever_has_not_joined_is_not_heard() -> None:
    court = Court()
    court.begin("ab")
    court.conns["z"] = "in-z"
    court.say("z", Renew(1, 0), Failed(0, ("{}",), (0.0,), (False,)), Leave(""), Done(0))
    assert court.look() == []


# Stopping, and who is waited for.


def test_a_failure_stops_every_member_once_and_the_next_round_waits_for_all_of_them() -> None:
    court = Court()
    court.begin("abc")
    court.say("b", failure_of("b"))
    told = court.look()
    assert only(told, Stop) == Stop(1, "rank 0 failed on host-b", 0.0)
    assert to_whom(told, Stop) == ["a", "b", "c"]
    court.say("ab", Stopped(1, 2000, fenced=False))
    assert court.look(1.0) == []
    court.say("c", Stopped(1, 2000, fenced=False))
    assert to_whom(court.look(), Place) == ["a", "b", "c"]


def test_having_stopped_for_an_earlier_round_is_not_enough() -> None:
    court = Court()
    court.begin("ab")
    court.say("b", failure_of("b"))
    court.look()
    court.say("ab", Stopped(0, 2000, fenced=False))
    assert court.look() == []


def test_arrivals_within_the_gathering_time_cost_one_stop() -> None:
    court = Court(max_nodes=4, resize_grace_s=7.0)
    court.begin("ab")
    court.join("c")
    told = court.look()
    told += court.look(0.15)
    court.join("d")
    told += court.look(0.1)
    assert to_whom(told, Stop) == []
    assert court.wake_at == pytest.approx(court.now + 0.1)
    told = court.look(0.11)
    assert to_whom(told, Stop) == ["a", "b"]
    assert only(told, Stop) == Stop(1, "node host-c, host-d joined", 7.0)
    told = court.restart("ab")
    assert to_whom(told, Stop) == []
    court.say("cd", Placed(1))
    assert to_whom(court.look(), Start) == ["a", "b", "c", "d"]
    assert court.leader.restart_count == 0


def test_a_node_over_the_maximum_stops_nobody_and_is_told_that_it_waits() -> None:
    court = Court(max_nodes=2)
    court.begin("ab")
    court.join("c")
    told = court.look()
    assert to_whom(told, Stop) == []
    assert ("c", Waiting("2 of 2 nodes run round 0; waiting for a place")) in told
    assert to_whom(told, Place) == ["a", "b", "c"]  # all learn of one more who could lead


def test_a_polite_goodbye_stops_the_others_while_the_node_still_works_and_is_not_waited_for() -> None:
    court = Court(resize_grace_s=7.0)
    court.begin("abc")
    court.say("c", Departing("SIGTERM"))
    told = court.look()
    assert to_whom(told, Stop) == ["a", "b", "c"]
    assert only(told, Stop) == Stop(1, "node host-c is leaving", 7.0)
    court.say("c", Leave("SIGTERM"))
    told = court.restart("ab")
    assert to_whom(told, Start) == ["a", "b"]
    assert court.leader.restart_count == 0


# Death and silence.


def test_a_broken_connection_alone_proves_nothing() -> None:
    court = Court()
    court.begin("abc")
    court.lose("c")
    told = court.look()
    assert told == []
    assert [one.address for one in court.others if isinstance(one, AskAround)] == ["c:1"]
    assert to_whom(court.live("ab", 5.0), Stop) == []


@pytest.mark.parametrize(
    ("what", "answer", "proves"),
    [
        ("it refuses", Answered("c:1", refused=True), True),
        ("another listens there", Answered("c:1", Leads("x", "z", "", 0, -1, valid=False, seeking=True)), True),
        ("it answers", Answered("c:1", Leads("run", "c", "", 0, 0, valid=False, seeking=True)), False),
        ("nobody answers", Answered("c:1"), False),
        ("another address refuses", Answered("x:1", refused=True), False),
    ],
)
def test_death_is_proven_by_its_own_address(what: str, answer: Answered, proves: bool) -> None:
    court = Court()
    court.begin("abc")
    court.lose("c")
    court.leader.answered_probe(answer, court.now)
    assert to_whom(court.look(), Stop) == (["a", "b"] if proves else []), what


def test_a_refusal_does_not_kill_one_who_is_here() -> None:
    court = Court()
    court.begin("abc")
    court.refuse("c")
    assert court.look() == []


def test_the_next_round_waits_from_a_proof_of_death_until_the_last_worker_is_gone() -> None:
    court = Court()
    court.begin("abc")
    court.lose("c")
    court.look()
    court.refuse("c")
    assert only(court.look(), Stop) == Stop(1, "node host-c is gone", 0.0)
    court.say("ab", Stopped(1, 2000, fenced=False))
    assert to_whom(court.look(0.29), Place) == []
    assert court.wake_at == pytest.approx(court.now + 0.01)
    assert to_whom(court.look(0.02), Place) == ["a", "b"]
    court.say("ab", Placed(1))
    court.look()
    assert court.leader.restart_count == 0


def test_a_silent_member_is_left_out_after_its_silence_and_not_before() -> None:
    court = Court()
    court.begin("abc")
    court.renew("c")
    answered_at = court.now
    told = court.live("ab", 5.0)
    court.now = answered_at + SILENCE_S - EPSILON_S
    court.renew("ab")
    told += court.look()
    assert to_whom(told, Stop) == []
    told = court.look(EPSILON_S)
    assert Close("in-c") in court.others
    assert to_whom(told, Stop) == ["a", "b"]
    assert only(told, Stop) == Stop(1, "node host-c fell silent", 0.0)
    assert to_whom(court.restart("ab"), Start) == ["a", "b"]


@pytest.mark.parametrize(
    ("what", "all_nodes", "left", "goes_on"),
    [
        ("two of three", "abc", "ab", True),
        ("one of three", "abc", "a", False),
        ("half of two, with the tie-break of an incumbent", "ab", "a", True),
        ("half of four", "abcd", "ab", True),
        ("one of four", "abcd", "a", False),
    ],
)
def test_the_silent_are_left_out_only_with_enough_of_the_others(
    what: str, all_nodes: str, left: str, goes_on: bool
) -> None:
    court = Court(max_nodes=4)
    court.begin(all_nodes)
    told = court.live(left, 12.0)
    assert bool(to_whom(told, Stop)) == goes_on, what


def test_nobody_is_granted_a_lease_by_a_leader_without_enough_members() -> None:
    court = Court()
    court.begin("abc")
    grants = []
    for _ in range(12):
        court.now += 0.5
        court.renew("a")
        grants += [message.left_s for _, message in court.look() if isinstance(message, Ack)]
    assert grants == sorted(grants, reverse=True)
    assert grants[0] > 3.0
    assert grants[-1] == 0.0


def test_a_lease_never_outlives_what_is_left_of_the_leaders_validity() -> None:
    court = Court()
    court.begin("abc")
    for _ in range(10):
        court.now += 0.4
        court.renew("a")
        until = court.leader.roll.valid_until(court.now)
        for _, message in court.look():
            if isinstance(message, Ack):
                assert court.now + message.left_s <= max(until, court.now) + 1e-9


def test_a_member_that_only_sends_is_not_known_to_hold_to_us() -> None:
    court = Court(max_nodes=2, standing=None)
    court.begin("ab")
    heard = dict(court.leader.roll.heard)
    for seq in (7, 8, 9):
        court.now += 0.5
        court.say("b", Renew(seq, 1))  # it shows no later answer than the first
    assert court.leader.roll.heard["b"] <= heard["b"] + EPSILON_S


# What failures cost.


@pytest.mark.parametrize(
    ("allowed", "failures", "counts", "ends"),
    [(0, 1, [], True), (1, 1, [1], False), (1, 2, [1], True), (3, 3, [1, 2, 3], False), (3, 4, [1, 2, 3], True)],
)
def test_every_round_that_fails_costs_one_restart_until_there_are_none(
    allowed: int, failures: int, counts: list[int], ends: bool
) -> None:
    court = Court(max_restarts=allowed)
    court.begin("abc")
    seen = []
    for number in range(failures):
        court.say("bc", failure_of("b", number))
        court.look()
        told = court.restart("abc")
        seen += sorted({place.restart_count for _, place in told if isinstance(place, Place)})
    assert seen == counts
    assert (court.leader.ended is not None) == ends
    if court.leader.ended is not None:
        assert (court.leader.ended.kind, court.leader.ended.restart_count) == ("failed", allowed)


@pytest.mark.parametrize("excuse", ["dead", "dead later", "left", "departing", "fenced", "free"])
def test_failures_of_a_round_that_lost_somebody_are_free(excuse: str) -> None:
    court = Court(max_restarts=0)
    court.begin("abc")
    court.say("b", failure_of("b", free=excuse == "free"))
    court.look()
    court.say("ab", Stopped(1, 2000, fenced=False))
    if excuse == "left":
        court.say("c", Leave("SIGTERM"))
    elif excuse == "departing":
        court.say("c", Departing("SIGTERM"), Stopped(1, 2000, fenced=False))
    elif excuse == "free":
        court.say("c", Stopped(1, 2000, fenced=False))
    elif excuse == "fenced":
        court.say("c", Stopped(1, 2000, fenced=True))
    else:
        if excuse == "dead later":
            court.say("c", Stopped(1, 2000, fenced=False))
        court.lose("c")
        court.refuse("c")
    told = court.look(0.4)
    assert court.leader.ended is None
    assert court.leader.restart_count == 0
    assert "a" in to_whom(told, Place)


def test_a_failure_of_an_earlier_round_is_not_charged_again() -> None:
    court = Court(max_restarts=1)
    court.begin("ab")
    court.say("b", failure_of("b"))
    court.look()
    court.restart("ab")
    assert court.leader.restart_count == 1
    court.say("b", failure_of("b", 0))
    court.look()
    court.restart("ab")
    assert court.leader.ended is None
    assert court.leader.restart_count == 1


# The end.


def test_the_run_is_done_when_every_member_is_and_our_own_node_hears_it_last() -> None:
    court = Court()
    court.begin("abc")
    court.say("ab", Done(0))
    assert court.look() == []
    court.say("c", Done(0))
    told = court.look()
    assert to_whom(told, Ended) == ["b", "c"]
    assert only(told, Ended) == Ended("done", 0, "", (), 0)
    court.say("b", Heard())
    assert court.look() == []
    court.say("c", Heard())
    assert sorted((node, type(message)) for node, message in court.look()) == sorted(
        [("a", Ended), ("b", Farewell), ("c", Farewell)], key=lambda pair: pair[0]
    )


def test_one_who_does_not_hear_the_end_is_waited_for_for_two_ttl() -> None:
    court = Court()
    court.begin("ab")
    court.say("ab", Done(0))
    court.look()
    court.renew("b")
    court.look(5.0)
    court.renew("b")
    assert to_whom(court.look(4.9), Farewell) == []
    assert to_whom(court.look(0.2), Farewell) == ["b"]


def test_who_only_waited_in_a_run_that_is_over_is_a_newcomer_in_the_next() -> None:
    court = Court(max_nodes=3)
    court.begin("ab")
    court.join("c", standing=Standing(epoch="x", term=9, round=40, size=1, slot=None))
    assert court.leader.seats["c"].join.standing == Standing()
    assert to_whom(court.look(), Place) == ["a", "b", "c"]


def test_a_rank_that_is_taken_is_refused_once_its_holder_was_heard_again() -> None:
    court = Court(max_nodes=3)
    court.join("b", slot_wish=1)
    court.look(1.0)
    court.join("c", slot_wish=1)
    assert to_whom(court.look(0.5), Refused) == [], "the holder may be dead, and this one may be to replace it"
    court.renew("b")
    court.join("c", slot_wish=1)
    told = court.look()
    assert [message.why for _, message in told if isinstance(message, Refused)] == ["--node-rank=1 is taken by host-b"]


def test_each_of_two_that_want_a_rank_that_is_taken_is_refused() -> None:
    court = Court(max_nodes=3)
    court.join("b", slot_wish=1)
    for node in "cd":
        court.join(node, slot_wish=1)
    court.look(0.5)
    court.renew("b")
    for node in "cd":
        court.join(node, slot_wish=1)
    assert to_whom(court.look(), Refused) == ["c", "d"]


def test_a_rank_whose_holder_is_gone_goes_to_who_waited_for_it() -> None:
    court = Court(max_nodes=3)
    court.join("b", slot_wish=1)
    court.join("c", slot_wish=1)
    court.lose("b")
    court.join("c", slot_wish=1)
    assert to_whom(court.look(), Welcome) == ["b", "c"]


def test_a_connection_is_one_node() -> None:
    court = Court()
    court.join("b", "in-b")
    court.join("c", "in-b")
    assert court.leader.seats == {}
    assert Close("in-b") in court.leader.take_orders()


def test_a_node_that_never_shows_what_it_got_does_not_fill_the_memory() -> None:
    court = Court()
    court.join("b")
    for number in range(1, 1000):
        court.leader.received("in-b", Renew(number, 0), court.now)
    assert len(court.leader.seats["b"].sent) <= 100


@pytest.mark.parametrize("phase", ["running", "stopping", "placing"])
def test_nobody_holds_a_lease_who_does_not_know_the_newest_round(phase: str) -> None:
    court = Court(max_nodes=3)
    court.begin("abc")
    if phase != "running":
        court.say("c", Failed(0, (), (), ()))
        court.look()
    if phase == "placing":
        court.say("abc", Stopped(1, 5, fenced=False))
        court.look()
    assert court.leader.phase == phase
    court.join("x", standing=Standing())
    told = [message for node, message in court.look() if node == "x"]
    newest = next(message.round for message in told if isinstance(message, Place))
    assert newest == (1 if phase == "placing" else 0)
    granted = next(message for message in told if isinstance(message, Ack))
    assert granted.seq == 0
    assert granted.left_s > 0
    assert [type(one) for one in told].index(Place) < [type(one) for one in told].index(Ack)


def test_no_round_is_made_while_a_spectator_that_is_away_may_take_the_last_for_the_newest() -> None:
    court = Court(max_nodes=2)
    court.begin("ab")
    court.join("s")
    court.renew("abs")
    court.look()
    court.lose("s")
    court.say("b", Failed(0, (), (), ()))
    court.look()
    court.say("ab", Stopped(1, 5, fenced=False))
    assert to_whom(court.look(), Place) == [], "its lease says that nothing is newer"
    assert to_whom(court.live("ab", 12.0), Place) == ["a", "b"]


def test_a_spectator_that_is_dead_is_not_waited_for() -> None:
    court = Court(max_nodes=2)
    court.begin("ab")
    court.join("s")
    court.look()
    court.lose("s")
    court.say("b", Failed(0, (), (), ()))
    court.look()
    court.say("ab", Stopped(1, 5, fenced=False))
    court.look()
    court.refuse("s")
    assert to_whom(court.look(), Place) == ["a", "b"]


@pytest.mark.parametrize("how", ["left", "killed", "silent"])
def test_a_member_that_is_done_takes_nothing_along_when_it_goes(how: str) -> None:
    court = Court()
    court.begin("abc")
    court.say("c", Done(0))
    court.look()
    if how == "left":
        court.say("c", Leave(""))
    else:
        court.lose("c")
    if how == "killed":
        court.refuse("c")
    told = court.look() + court.live("ab", 12.0)
    assert to_whom(told, Stop) == [], "it was done: there is nothing to start over"
    court.say("ab", Done(0))
    court.look()
    assert court.leader.ended == Ended("done", 0, "", (), 0)


def test_a_member_that_leaves_before_it_is_done_has_not_done_its_part() -> None:
    court = Court()
    court.begin("abc")
    court.say("ab", Done(0))
    court.say("c", Leave(""))
    told = court.look()
    assert court.leader.ended is None
    assert to_whom(told, Stop) == ["a", "b"]


def test_who_comes_while_the_run_finishes_does_not_make_it_start_over() -> None:
    court = Court()
    court.begin("ab")
    court.say("b", Done(0))
    court.join("c")
    told = court.look() + court.live("abc", 2.0)
    assert to_whom(told, Stop) == []


def test_who_comes_back_after_the_end_is_told_and_who_is_new_is_sent_away() -> None:
    court = Court()
    court.begin("ab")
    court.say("ab", Done(0))
    court.look()
    court.now += 2.0
    court.join("b", "in-again", age_s=50.0)
    court.join("z", age_s=1.0)
    told = court.look()
    assert [type(message) for node, message in told if node == "b"] == [Welcome, Ended, Ack]
    assert [message for node, message in told if node == "z"] == [Redirect("", 0)]


def stored_end() -> Court:
    """Return the court of two nodes that are done, by the store's leave; their round has revision 41."""
    court = Court(external=True, max_nodes=2)
    court.leader.roll.tie_until = quorum.ALWAYS
    for node in "ab":
        court.join(node)
    court.look()
    court.say("ab", Placed(0))
    court.look()
    court.leader.round_written(41, court.now)
    court.look()
    court.say("ab", Done(0))
    assert court.look() == []
    return court


def test_with_a_store_the_last_round_is_marked_then_the_outcome_is_written_then_it_is_told() -> None:
    court = stored_end()
    (mark,) = [one for one in court.others if isinstance(one, WriteKey)]
    assert (mark.key, mark.expect) == ("round", 41), "a round that somebody else made meanwhile wins"
    outcome = outcome_in_round(mark.value)
    court.leader.round_written(42, court.now)
    assert court.look() == []
    assert [one for one in court.others if isinstance(one, WriteKey)] == [WriteKey("outcome", outcome, None)]
    court.leader.outcome_written()
    assert to_whom(court.look(), Ended) == ["b"]


def test_a_store_that_is_away_at_the_end_is_not_waited_for_when_all_are_here() -> None:
    court = stored_end()
    assert to_whom(court.live("ab", 6.0), Ended) == ["b"]


def test_without_the_store_a_half_that_could_go_on_alone_is_waited_for() -> None:
    court = stored_end()
    court.lose("b")
    assert to_whom(court.live("a", 30.0), Ended) == []
    assert court.leader.ended is not None
    assert to_whom(court.live("a", 31.0), Ended) == ["a"], "not for ever"


@pytest.mark.parametrize(
    ("what", "told", "heard", "number", "yields"),
    [
        ("nobody was told", "", "", 0, True),
        ("one was told and may have heard", "b", "", 0, False),
        ("one was told, but enough have gone on", "b", "", 1, True),
        ("half knows, and the leader is one of them", "b", "b", 1, False),
    ],
)
def test_an_end_that_too_few_know_gives_way(what: str, told: str, heard: str, number: int, yields: bool) -> None:
    court = Court()
    court.begin("abc")
    court.say("abc", Done(0))
    for node in set("bc") - set(told):
        court.lose(node)
    court.look()
    for node in heard:
        court.say(node, Heard())
    assert court.leader.ended is not None
    assert court.leader.gives_way(number, court.now) == yields, what
    court.look(11.0)
    assert court.leader.is_over(court.now) == bool(heard), "it does not go before the end is certain"
    assert court.leader.is_over(court.now + 60.0)


# Taking over.


def test_a_deputy_decides_nothing_before_it_has_more_than_half_of_the_round() -> None:
    court = claimed("a")
    court.renew("a")
    assert {message.left_s for _, message in court.look() if isinstance(message, Ack)} == {0.0}
    assert not court.leader.established
    court = claimed("a", "b")
    court.renew("ab")
    court.look()
    court.renew("ab")
    court.look()
    assert court.leader.established


def test_a_round_of_which_everybody_is_there_goes_on_as_it_is() -> None:
    court = claimed("a", "b", "c")
    told = court.live("abc", 3.0)
    assert court.leader.phase == "running"
    assert not [message for _, message in told if isinstance(message, Stop | Place | Start)]
    assert court.leader.restart_count == 2


def test_a_round_of_which_one_is_missing_goes_on_without_it_when_it_is_fenced() -> None:
    court = claimed("a", "b")
    told = court.live("ab", 4.0)
    assert to_whom(told, Stop) == []
    told = court.live("ab", 1.5)
    assert to_whom(told, Stop) == ["a", "b"]
    told = court.restart("ab")
    assert {place.round for _, place in told if isinstance(place, Place)} == {5}
    assert to_whom(told, Start) == ["a", "b"]


@pytest.mark.parametrize(
    ("policy", "says", "ends"), [("wait", True, None), ("exit", False, ("lost", 75)), ("continue", False, None)]
)
def test_a_deputy_without_a_majority_does_as_it_was_told(policy: str, says: bool, ends: tuple[str, int] | None) -> None:
    court = claimed("a", on_lost_majority=policy)
    said = []
    for _ in range(20):
        court.now += 0.5
        court.renew("a")
        court.look()
        said += [one.text for one in court.others if isinstance(one, Say)]
    assert [text.startswith("holding: 1 of 3 members of round 4") for text in said] == [True] * says
    ended = court.leader.ended
    assert (None if ended is None else (ended.kind, ended.status)) == ends
    assert court.leader.established == (policy != "wait")


@pytest.mark.parametrize("fenced", [True, False])
def test_the_proofs_that_a_node_brings_count_whatever_became_of_its_lease_since(fenced: bool) -> None:
    court = claimed("a")
    known = replace(court.leader.roll.last, slot=1)
    court.join("b", standing=known, state="idle", bound_term=1, fenced=fenced, dead=("c",), gone=("x",))
    assert set(court.leader.roll.dead) == {"c"}
    assert court.leader.roll.gone == set(), "x is none of the round"


def test_a_leader_that_goes_names_an_heir_and_says_that_it_is_gone() -> None:
    court = Court()
    court.begin("abc")
    out = court.leader.hand_over()
    assert {one.message for one in out if isinstance(one, Send)} == {Redirect("b:1", 1, gone="a")}
    assert [one.conn for one in out if isinstance(one, Close)] == ["in-b", "in-c"]


def test_an_heir_is_somebody_who_is_here_a_spectator_if_need_be() -> None:
    court = Court(max_nodes=1)
    court.join("a")
    court.join("c")
    court.look(3.0)
    court.say("ac", Placed(0))
    court.look()
    out = court.leader.hand_over()
    assert [one.message for one in out if isinstance(one, Send)] == [Redirect("c:1", 1, gone="a")]


# What it costs.


def test_what_is_waited_for_is_not_told_more_often_than_twice_a_second() -> None:
    court = Court(min_nodes=99, max_nodes=99)
    told_at: list[float] = []
    for index in range(40):
        court.join(chr(ord("a") + index))
        told = court.look(0.05)
        if to_whom(told, Waiting):
            told_at.append(court.now)
    assert len(told_at) >= 3
    assert all(later - earlier >= 0.5 - 1e-9 for earlier, later in pairwise(told_at))
    assert court.wake_at <= told_at[-1] + 0.5 + 1e-9


def test_the_same_thing_is_not_told_twice() -> None:
    court = Court(min_nodes=5, max_nodes=9)
    court.join("a")
    assert to_whom(court.look(1.0), Waiting) == ["a"]
    assert to_whom(court.look(1.0), Waiting) == []
    court.join("b")
    assert to_whom(court.look(1.0), Waiting) == ["a", "b"]


def crowd(size: int) -> Leader:
    """Return a leader of so many members that all run."""
    leader = Leader(replace(OWN, max_nodes=size), 0.0, term=1, standing=Standing(), since_ack_s=1e9)
    for index in range(size):
        leader.received(f"in-{index}", replace(join_of("a"), node=f"n{index}", address=f"n{index}:1"), 0.0)
    leader.advance(1.0)
    for index in range(size):
        leader.received(f"in-{index}", Placed(0), 1.0)
    leader.advance(1.0)
    assert leader.phase == "running"
    leader.take_orders()
    return leader


def steps_of_a_renewal(leader: Leader, conn: str, renew: Renew, now: float) -> int:
    """Count the instructions that a renewal costs."""
    count = 0

    def trace(frame: object, event: str, _arg: object) -> object:
        nonlocal count
        frame.f_trace_opcodes = True  # type: ignore[attr-defined]
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        leader.received(conn, renew, now)
    finally:
        sys.settrace(before)
    return count


def test_a_renewal_costs_the_same_with_ten_members_and_a_thousand() -> None:
    costs = []
    for size in (10, 1000):
        leader = crowd(size)
        leader.received("in-1", Renew(1, 0), 1.5)
        costs.append(steps_of_a_renewal(leader, "in-2", Renew(1, 0), 1.5))
        assert not leader.is_dirty
        assert len(leader.take_orders()) == 2
    assert 0 < costs[1] <= costs[0] + 20, costs


def test_a_thousand_renewals_in_a_turn_cost_one_count_of_the_members(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = crowd(1000)
    counted = []
    honest = leader.roll.valid_until
    monkeypatch.setattr(leader.roll, "valid_until", lambda now: counted.append(now) or honest(now))
    for index in range(1000):
        leader.received(f"in-{index}", Renew(1, 0), 1.5)
    assert len(counted) <= 1
    assert {order.message.left_s for order in leader.take_orders()} == {3.5}  # type: ignore[union-attr]
