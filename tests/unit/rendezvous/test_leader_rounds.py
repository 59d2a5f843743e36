"""From one round to the next: what a leader waits for, whom it chooses, and how it judges failures."""

from __future__ import annotations

import pytest
from court import Court, asking_store, candidate_of, deputy_of, failure_of, rejoin, to_whom

from planaria.rendezvous.messages import (
    Ack,
    Departing,
    Done,
    Leave,
    Place,
    Placed,
    Start,
    Stop,
    Stopped,
)
from planaria.rendezvous.model import Standing, WriteKey

SILENCE_S = 5.5
EPSILON_S = 0.01
STOPPED = Stopped(1, 2000, fenced=False)
"""What a member of round 0 says when its workers are dead."""


@pytest.mark.parametrize("number", [0, 4])
def test_a_deputy_opens_the_next_round_without_waiting_for_more_whatever_the_number_of_the_last(number: int) -> None:
    court = deputy_of("abc", number, "ab")
    court.refuse("c")
    assert to_whom(court.look(), Stop) == ["a", "b"]
    court.say("ab", Stopped(number + 1, 2000, fenced=False))
    assert to_whom(court.look(0.4), Place) == ["a", "b"]


def test_one_that_replaces_another_is_not_kept_waiting_for_more() -> None:
    court = Court(min_nodes=3, max_nodes=4)
    court.begin("abc")
    court.say("c", Leave("SIGTERM"))
    court.look()
    court.restart("ab")
    court.join("d")
    told = court.look()
    assert {message.round for _, message in told if isinstance(message, Place)} == {0, 1}


@pytest.mark.parametrize(
    ("what", "nodes", "opens_at"), [("after it", "ab", 4.0), ("or a quiet time after the last to come", "abc", 5.0)]
)
def test_a_first_round_below_the_maximum_gives_slow_hosts_the_time_to_boot(
    what: str, nodes: str, opens_at: float
) -> None:
    court = Court(max_nodes=4, quiet_s=2.0, boot_quiet_s=4.0)
    for node in nodes[:2]:
        court.join(node)
    court.look(3.0)
    for node in nodes[2:]:
        court.join(node)
    assert to_whom(court.look(opens_at - 3.0 - EPSILON_S), Place) == [], what
    assert to_whom(court.look(EPSILON_S), Place) == list(nodes), what


def test_a_run_that_has_begun_does_not_wait_for_hosts_to_boot_when_it_is_short_of_nodes() -> None:
    court = Court(min_nodes=3, max_nodes=4, quiet_s=2.0, boot_quiet_s=60.0)
    court.begin("abcd")
    court.say("cd", Leave("SIGTERM"))
    court.look()
    court.restart("ab")
    court.join("e")
    told = court.look()
    told += court.live("abe", 1.5)
    assert {message.round for _, message in told if isinstance(message, Place)} == {0}
    told = court.live("abe", 0.5)
    assert to_whom(told, Place) == ["a", "b", "e"]


def test_a_full_round_goes_on_however_long_a_node_waits_for_a_place() -> None:
    court = Court(max_nodes=2)
    court.begin("ab")
    court.join("c")
    assert to_whom(court.look() + court.live("abc", 5.0), Stop) == []


def test_a_newcomer_that_is_leaving_stops_nobody() -> None:
    court = Court()
    court.begin("ab")
    court.join("c")
    court.say("c", Departing("SIGTERM"))
    assert to_whom(court.look() + court.live("abc", 1.0), Stop) == []


def test_members_keep_their_slots_whoever_was_last_to_connect_and_newcomers_get_none_of_them() -> None:
    court = Court(max_nodes=3)
    court.begin("abc")
    court.join("x", standing=Standing("a", 0, 0, 1, None, home=0, ran=0))
    court.lose("b")
    rejoin(court, "b", 1)
    court.look()
    court.say("c", failure_of("c"))
    court.look()
    court.say("abc", STOPPED)
    places = {node: message.slot for node, message in court.look() if isinstance(message, Place)}
    assert places == {"a": 0, "b": 1, "c": 2, "x": None}


def test_a_round_says_who_of_the_one_before_was_there_when_it_was_announced() -> None:
    court = Court(max_nodes=4)
    court.begin("abc")
    court.say("c", Leave("SIGTERM"))
    court.join("d")
    court.look()
    court.say("ab", STOPPED)
    places = {node: message for node, message in court.look() if isinstance(message, Place)}
    assert {node: (place.base, place.in_base) for node, place in places.items()} == {
        "a": (2, True),
        "b": (2, True),
        "d": (2, False),
    }


def test_who_is_leaving_has_no_place_in_the_next_round() -> None:
    court = Court()
    court.begin("abc")
    court.say("c", Departing("SIGTERM"))
    court.look()
    court.say("abc", STOPPED)
    places = {node: message.slot for node, message in court.look() if isinstance(message, Place)}
    assert places == {"a": 0, "b": 1, "c": None}


def test_with_a_store_a_spectator_that_is_away_is_not_waited_for() -> None:
    court = asking_store("abs")
    court.leader.round_written(41, court.now)
    court.look()
    court.renew("abs")
    court.lose("s")
    court.say("b", failure_of("b"))
    court.look()
    court.say("ab", STOPPED)
    assert to_whom(court.look(), Place) == ["a", "b"], "the store knows which round is the newest"


def test_to_be_done_with_an_earlier_round_is_not_to_be_done_with_this_one() -> None:
    court = Court()
    court.begin("ab")
    court.say("b", failure_of("b"))
    court.look()
    court.restart("ab")
    court.say("b", Done(0))
    court.say("a", Done(1))
    court.look()
    assert court.leader.office.ended is None


def test_a_run_that_has_begun_waits_for_nodes_without_a_limit() -> None:
    court = Court(min_nodes=2, join_timeout_s=60.0)
    court.begin("ab")
    court.say("b", Leave("SIGTERM"))
    court.look()
    court.say("a", STOPPED)
    court.live("a", 70.0)
    assert court.leader.office.phase == "gathering"


def test_to_have_heard_of_an_older_round_does_not_show_that_a_node_holds_to_us_now() -> None:
    court = Court()
    court.begin("abc")
    court.say("b", failure_of("b"))
    court.look()
    court.say("abc", STOPPED)
    assert to_whom(court.look(3.5), Place) == ["a", "b", "c"]
    court.say("bc", Placed(0))
    court.now += 1.0
    court.renew("a")
    assert [message.left_s for _, message in court.look() if isinstance(message, Ack)] == [0.0]


@pytest.mark.parametrize(
    ("what", "node", "count"),
    [("a member of the round that failed: it was lost after all", "c", 0), ("a newcomer: no excuse", "d", 1)],
)
def test_a_charge_is_taken_back_when_a_round_cannot_be_placed_for_want_of(what: str, node: str, count: int) -> None:
    court = Court(max_nodes=4)
    court.begin("abc")
    court.say("b", failure_of("b"))
    court.join("d")
    court.look()
    court.say("abc", STOPPED)
    told = court.look()
    assert to_whom(told, Place).count("d") == 1
    assert court.leader.office.restart_count == 1
    court.lose(node)
    court.refuse(node)
    told = court.look()
    places = [message for _, message in told if isinstance(message, Place)]
    assert {(place.round, place.restart_count) for place in places} == {(2, count)}, what


def test_a_node_that_rejoins_while_the_store_is_asked_is_told_again_before_anybody_starts() -> None:
    court = asking_store("ab")
    court.join("b", "in-again")
    assert to_whom(court.look(), Place) == ["b"]
    court.leader.round_written(41, court.now)
    assert to_whom(court.look(), Start) == []
    court.say("b", Placed(0))
    assert to_whom(court.look(), Start) == []
    assert [one.expect for one in court.others if isinstance(one, WriteKey)] == [41]
    court.leader.round_written(42, court.now)
    assert to_whom(court.look(), Start) == ["a", "b"]


def test_a_last_failure_that_blames_a_peer_waits_for_news_of_the_peer() -> None:
    court = Court(max_restarts=0)
    court.begin("abc")
    failed_at = court.now
    court.say("b", failure_of("b", names_peer=(True,)))
    court.look()
    court.say("abc", STOPPED)
    court.look()
    assert court.leader.office.ended is None
    court.live("abc", 9.5)
    assert court.leader.office.ended is None
    assert court.leader.office.restart_count == 0
    assert court.wake_at <= failed_at + 10.0
    court.live("abc", 0.5)
    assert court.leader.office.ended is not None
    assert court.leader.office.ended.kind == "failed"


@pytest.mark.parametrize("how", ["killed", "departing"])
def test_a_member_that_is_lost_after_it_stopped_its_workers_excuses_the_failures_too(how: str) -> None:
    court = Court(max_restarts=0)
    court.begin("abc")
    court.say("b", failure_of("b"))
    court.look()
    court.say("c", STOPPED)
    court.look()
    if how == "killed":
        court.lose("c")
        court.refuse("c")
    else:
        court.say("c", Departing("SIGTERM"))
    court.say("ab", STOPPED)
    told = court.look()
    assert court.leader.office.ended is None
    assert court.leader.office.restart_count == 0
    assert "a" in to_whom(told, Place)


def test_a_member_that_was_done_and_falls_silent_excuses_no_failure() -> None:
    court = Court(max_restarts=3)
    court.begin("abc")
    court.say("c", Done(0))
    court.look()
    court.lose("c")
    court.say("b", failure_of("b"))
    court.look()
    court.say("ab", Stopped(1, 2000, fenced=False))
    court.look()
    assert court.leader.office.restart_count == 1, "at once: nothing was lost with it"


def test_the_vote_of_one_that_left_counts_no_more() -> None:
    court = candidate_of("abcdef", "abc")
    assert not court.leader.office.is_valid(court.now), "three of six, without the tie-break"
    court.say("b", Leave("SIGTERM"))
    court.look()
    assert not court.leader.office.is_valid(court.now), "two of five are here"


def test_a_candidate_believes_refusals_only_while_its_own_lease_runs_whoever_joins() -> None:
    court = candidate_of("abcde", "ab")
    court.now += 400.0
    rejoin(court, "b", 1)
    for node in "cde":
        court.refuse(node)
    court.look()
    assert court.leader.office.roll.dead == {}
    assert not court.leader.office.is_valid(court.now)


def test_a_round_that_was_burnt_is_told_to_nobody_again() -> None:
    court = Court(max_nodes=5)
    court.begin("abc")
    court.join("d")
    court.live("abcd", 1.0)
    court.say("abc", Stopped(1, 2000, fenced=False))
    court.look()
    assert court.leader.office.phase == "placing"
    court.lose("d")
    court.look()
    court.say("abc", Placed(1))
    court.look()
    court.join("n")
    assert {message.round for _, message in court.look() if isinstance(message, Place)} <= {0, 2}
