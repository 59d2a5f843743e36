"""What a leader asks of those who join, whom it tells of others, and for how long it says that it waits."""

from __future__ import annotations

import pytest
from court import Court, claimed, failure_of, only, rejoin, to_whom

from planaria.base.value import replace
from planaria.rendezvous.messages import Ended, Place, Placed, Refused, Start, Stop, Stopped, Waiting, Welcome
from planaria.rendezvous.model import Close

MANY = 300


def waiting_in(told: list[tuple[str, object]]) -> str:
    """Return the one line about waiting that everybody was told."""
    line = only(told, Waiting)
    assert isinstance(line, Waiting)
    return line.text


# What has to be the same on every node.


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ttl_s": 60.0}, "--rdzv-conf ttl is 60 s on this node and 5 s on host-a"),
        ({"max_nodes": 4}, "--nnodes is 1:4 on this node and 1:3 on host-a"),
        ({"min_nodes": 3}, "--nnodes is 3 on this node and 1:3 on host-a"),
        ({"max_restarts": 7}, "--max-restarts is 7 on this node and 1 on host-a"),
    ],
)
def test_a_node_that_was_told_something_else_is_refused_with_the_flag(change: dict[str, object], said: str) -> None:
    court = Court()
    court.join("a")
    court.join("b", rules=replace(court.settings.rules, **change))
    (refused,) = [message for node, message in court.look() if node == "b"]
    assert isinstance(refused, Refused)
    assert refused.why == f"{said}: it has to be the same on every node of a run"
    assert "b" not in court.leader.office.seats


def test_a_lease_that_two_nodes_count_alike_is_no_reason_to_refuse() -> None:
    court = Court(ttl_s=0.1 + 0.2)
    court.join("a")
    court.join("b", rules=replace(court.settings.rules))
    assert to_whom(court.look(), Welcome) == ["a", "b"]


# Who is told of a spectator.


def test_members_hear_of_a_spectator_from_a_leader_that_took_over_too() -> None:
    court = claimed("a", "b", "c")
    for _ in range(2):
        court.renew("abc")
        court.look()
    assert court.leader.office.phase == "running"
    court.join("d")
    told = court.look()
    placed = {node: place for node, place in told if isinstance(place, Place)}
    assert sorted(placed) == ["a", "b", "c", "d"]
    assert all(place.deputies[-1].node == "d" for place in placed.values())
    assert all((place.term, place.round) == (1, 4) for place in placed.values())
    assert court.leader.office.roll.spares == ["d"]


# What is counted once.


def test_a_failure_that_is_reported_again_after_a_broken_connection_counts_once() -> None:
    court = Court(max_restarts=0)
    court.begin("ab")
    court.say("b", Stopped(0, 2000, fenced=False), failure_of("b"))
    assert to_whom(court.look(), Stop) == ["a", "b"]
    court.lose("b")
    rejoin(court, "b", 1, state="failed")
    court.say("b", failure_of("b"), Stopped(1, 2000, fenced=False))
    court.say("a", Stopped(1, 2000, fenced=False))
    ended = only(court.look(), Ended)
    assert isinstance(ended, Ended)
    assert len(ended.failures) == 1


def test_who_joins_twice_over_one_connection_keeps_it() -> None:
    court = Court()
    court.join("a")
    court.join("b")
    court.look()
    court.join("b")
    told = court.look()
    assert to_whom(told, Welcome) == ["b"]
    assert not any(isinstance(one, Close) for one in court.others)


def test_agents_that_come_and_go_are_forgotten() -> None:
    court = Court(max_nodes=1)
    court.begin("a")
    for number in range(MANY):
        court.join(f"spare-{number}")
        court.look()
        court.lose(f"spare-{number}")
        court.renew("a")
    roll = court.leader.office.roll
    assert max(map(len, (roll.addresses, roll.hosts, roll.heard, roll.answered))) < MANY / 2
    assert "a" in roll.addresses


# Until when a first round is waited for.


def test_the_time_for_a_first_round_is_that_of_the_eldest_who_waits() -> None:
    court = Court(min_nodes=3, join_timeout_s=600.0)
    court.join("a", age_s=500.0)
    court.join("b", age_s=1.0)
    assert waiting_in(court.look()).endswith("waiting for 1 more, at most 100 s")
    assert to_whom(court.live("ab", 99.0), Ended) == []
    ended = only(court.live("ab", 2.0), Ended)
    assert isinstance(ended, Ended)
    assert ended.kind == "timeout"


def test_a_node_that_waited_in_another_run_has_its_whole_time() -> None:
    court = Court(min_nodes=2, max_nodes=2, join_timeout_s=600.0)
    court.join("a", age_s=0.0)
    court.join("b", age_s=9000.0, standing=claimed().leader.office.roll.last)
    told = court.look(1.0)
    assert to_whom(told, Ended) == []
    court.say("ab", Placed(court.leader.office.next_round))
    assert to_whom(court.look(), Start) == ["a", "b"]


def test_the_line_about_waiting_says_what_is_left_and_stays_true_for_a_while() -> None:
    court = Court(min_nodes=2, join_timeout_s=600.0)
    court.join("a", age_s=0.0)
    assert waiting_in(court.look()) == "1 of 2 to 3 nodes are here (host-a); waiting for 1 more, at most 600 s"
    assert court.live("a", 50.0) == []
    lines = [message.text for _, message in court.live("a", 540.0) if isinstance(message, Waiting)]
    left = [int(line.rpartition("at most ")[2].removesuffix(" s")) for line in lines]
    assert left == [540, 480, 420, 360, 300, 240, 180, 120, 110, 100, 90, 80, 70, 60, 50, 40, 30, 20, 10]


def test_the_line_about_waiting_names_who_went_missing() -> None:
    court = Court(min_nodes=2, max_nodes=2)
    court.begin("ab")
    court.lose("b")
    court.refuse("b")
    court.look()
    court.say("a", Stopped(1, 2000, fenced=False))
    court.live("a", 1.0)
    court.leader.office.roll.dead.clear()  # nobody knows what became of it
    text = waiting_in(court.live("a", 2.0))
    assert "(host-b went missing)" in text
    assert "at most" not in text
