"""The leader's decisions: who is told what when, who is left out, what it costs, and that renewals cost next to nothing."""

from __future__ import annotations

import sys
from itertools import pairwise

import pytest
from court import OWN, Court, failure_of, join_of, only, to_whom

from planaria.base.value import replace
from planaria.rendezvous import quorum
from planaria.rendezvous.leader import Leader
from planaria.rendezvous.messages import (
    Ack,
    Departing,
    Done,
    Failed,
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
from planaria.rendezvous.model import Answered, AskAround, Close, Held, Standing, WriteKey

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
    leader = Leader(replace(OWN, max_nodes=size), 0.0, term=1, standing=Standing(), held=Held())
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
