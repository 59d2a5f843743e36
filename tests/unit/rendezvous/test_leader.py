"""The leader's decisions: who is told what when, who is left out, what it costs, and that renewals cost next to nothing."""

from __future__ import annotations

import pytest
from court import Court, asking_store, failure_of, only, to_whom

from planaria.rendezvous import quorum
from planaria.rendezvous.messages import (
    Ack,
    Departing,
    Done,
    Failed,
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
from planaria.rendezvous.model import Close, Standing, WriteKey

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
    court.join("a", age_s=0.0)
    court.look(59.9)
    assert court.leader.office.ended is None
    court.look(0.2)
    assert court.leader.office.ended is not None
    assert (court.leader.office.ended.kind, court.leader.office.ended.status) == ("timeout", 124)


def test_the_first_slot_is_the_master_at_the_port_it_reserved() -> None:
    court = Court()
    court.join("a", address="[fd00::1]:29400", port=4321)
    court.join("b")
    places = [place for _, place in court.look(3.0) if isinstance(place, Place)]
    assert {(place.master_addr, place.master_port) for place in places} == {("fd00::1", 4321)}


def test_with_a_store_nobody_starts_before_it_has_the_round_and_it_is_written_by_comparing() -> None:
    court = Court(external=True, max_nodes=2)
    court.leader.office.roll.tie_until = quorum.ALWAYS
    court.leader.ending.round_revision = 40
    for node in "ab":
        court.join(node)
    court.look()
    court.say("ab", Placed(0))
    assert to_whom(court.look(), Start) == []
    (write,) = [one for one in court.others if isinstance(one, WriteKey)]
    assert (write.key, write.expect, write.leased) == ("round", 40, False)
    court.leader.round_written(41, court.now)
    assert to_whom(court.look(), Start) == ["a", "b"]
    assert court.leader.ending.round_revision == 41


def test_a_node_lost_while_the_store_was_asked_is_not_started_with() -> None:
    court = asking_store("ab")
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
    assert "c" not in court.leader.office.seats


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
    assert court.leader.office.restart_count == 0


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
    assert court.leader.office.restart_count == 0
