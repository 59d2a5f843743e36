"""Members that are lost: death, silence, and what failures cost."""

from __future__ import annotations

import pytest
from court import Court, claimed, failure_of, only, to_whom

from planaria.base.value import replace
from planaria.rendezvous.messages import Ack, Departing, Leads, Leave, Place, Placed, Renew, Start, Stop, Stopped
from planaria.rendezvous.model import Answered, AskAround, Close

SILENCE_S = 5.5
EPSILON_S = 0.01


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
    assert court.leader.office.restart_count == 0


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
        until = court.leader.office.roll.valid_until(court.now)
        (granted,) = [message for _, message in court.look() if isinstance(message, Ack)]
        assert court.now + granted.left_s <= max(until, court.now) + 1e-9


def test_a_member_that_only_sends_is_not_known_to_hold_to_us() -> None:
    court = Court(max_nodes=2, standing=None)
    court.begin("ab")
    heard = dict(court.leader.office.roll.heard)
    for seq in (7, 8, 9):
        court.now += 0.5
        court.say("b", Renew(seq, 1))  # it shows no later answer than the first
    assert court.leader.office.roll.heard["b"] <= heard["b"] + EPSILON_S


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
    assert (court.leader.office.ended is not None) == ends
    if court.leader.office.ended is not None:
        assert (court.leader.office.ended.kind, court.leader.office.ended.restart_count) == ("failed", allowed)


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
    assert court.leader.office.ended is None
    assert court.leader.office.restart_count == 0
    assert "a" in to_whom(told, Place)


def test_a_node_that_gets_no_further_ends_the_run_as_failed_with_its_failures() -> None:
    court = Court(max_restarts=9)
    court.begin("ab")
    court.say("b", failure_of("b", why="3 lives in a row"))
    court.look()
    court.say("ab", Stopped(1, 2000, fenced=False))
    court.look()
    ended = court.leader.office.ended
    assert ended is not None
    assert (ended.kind, ended.status, ended.explanation, len(ended.failures)) == ("failed", 1, "3 lives in a row", 1)


def test_a_failure_of_an_earlier_round_is_not_charged_again() -> None:
    court = Court(max_restarts=1)
    court.begin("ab")
    court.say("b", failure_of("b"))
    court.look()
    court.restart("ab")
    assert court.leader.office.restart_count == 1
    court.say("b", failure_of("b", 0))
    court.look()
    court.restart("ab")
    assert court.leader.office.ended is None
    assert court.leader.office.restart_count == 1


@pytest.mark.parametrize(
    ("what", "state", "bound_term", "ran", "names_peer", "costs"),
    [
        ("its peers saw no more than that it went", "idle", 1, 4, True, 0),
        ("a worker failed by itself", "idle", 1, 4, False, 1),
        ("nobody had stopped it", "running", 1, 4, True, 1),
        ("it was us who stopped it", "idle", 2, 4, True, 1),
        ("it had no worker in that round", "idle", 1, 3, True, 1),
    ],
)
def test_a_failure_that_came_of_a_stop_which_another_leader_ordered_costs_nothing(
    what: str, state: str, bound_term: int, ran: int, names_peer: bool, costs: int
) -> None:
    court = court_of_one_that_came_late(state, bound_term, ran)
    fails_in(4, court, names_peer=names_peer)
    assert court.leader.office.restart_count == 2 + costs, what


def court_of_one_that_came_late(state: str = "idle", bound_term: int = 1, ran: int = 4) -> Court:
    """Return the court of a deputy to which `c`, a member of round 4, came from another leader."""
    court = claimed("a", "b", max_restarts=9)
    known = replace(court.leader.office.roll.last, slot=2, home=2, ran=ran)
    court.join("c", standing=known, state=state, bound_term=bound_term, since_ack_s=1.0)
    return court


def fails_in(number: int, court: Court, *, names_peer: bool) -> None:
    """Let `b` fail in this round, and all stop for the next."""
    court.say("b", failure_of("b", number, names_peer=(names_peer,)))
    court.live("abc", 1.0)
    assert court.leader.office.phase == "stopping"
    court.say("abc", Stopped(number + 1, 2000, fenced=False))
    court.live("abc", 1.0)


def test_a_stop_which_another_leader_ordered_excuses_no_failure_of_a_later_round() -> None:
    court = court_of_one_that_came_late()
    fails_in(4, court, names_peer=True)
    court.say("abc", Placed(5))
    assert to_whom(court.look(), Start) == ["a", "b", "c"]
    fails_in(5, court, names_peer=True)
    assert court.leader.office.restart_count == 3
