"""Who is here: whom a leader takes in, what it tells them, what it grants, and whom it looks after."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from court import join_of
from hall import LAST, LEASE_S, SILENCE_S, Hall, kinds, member_of, places, to_whom

from planaria.base.value import replace
from planaria.rendezvous import quorum
from planaria.rendezvous.attendance import MOST_UNECHOED
from planaria.rendezvous.messages import (
    Ack,
    Done,
    Ended,
    Failed,
    Place,
    Refused,
    Renew,
    Stop,
    Stopped,
    Waiting,
    Welcome,
)
from planaria.rendezvous.model import SELF, AskAround, Close, Deputy, Send, Standing
from planaria.rendezvous.seats import Seat

if TYPE_CHECKING:
    from planaria.rendezvous.model import Effect


# What a seat is taken for.


@pytest.mark.parametrize(
    ("state", "slot", "runs", "done", "owes", "can_run"),
    [
        ("idle", 1, -1, -1, False, True),
        ("idle", None, -1, -1, False, True),
        ("running", 1, 0, -1, False, False),
        ("stopping", 1, 0, -1, False, False),
        ("done", 1, -1, 0, False, True),
        ("done", None, -1, -1, False, True),
        ("failed", 1, -1, -1, True, True),
    ],
)
def test_a_node_runs_is_done_or_owes_a_report_as_it_says(
    state: str, slot: int | None, runs: int, done: int, owes: bool, can_run: bool
) -> None:
    standing = Standing("x", 1, 0, 2, slot)
    seat = Seat("in-b", join_of("b", state=state, standing=standing), 0, 0.0)
    assert (seat.runs, seat.done, seat.owes_report, seat.can_run) == (runs, done, owes, can_run)


def test_a_node_that_departs_can_run_nothing_more() -> None:
    seat = Seat("in-b", join_of("b"), 0, 0.0)
    seat.departing = True
    assert not seat.can_run


# Who is taken in.


def test_nodes_with_ranks_of_their_own_are_welcome_beside_each_other() -> None:
    hall = Hall()
    assert Welcome in kinds(hall.join("b", slot_wish=1))
    assert Welcome in kinds(hall.join("c", slot_wish=2))
    assert Welcome in kinds(hall.join("a"))


def test_a_rank_is_waited_for_as_long_as_its_holder_is_not_heard_again() -> None:
    hall = Hall()
    hall.join("b", slot_wish=1)
    for _ in range(3):
        hall.now += 0.1
        assert Refused not in kinds(hall.join("c", slot_wish=1))
    hall.now += 0.1
    hall.renew("b")
    assert Refused in kinds(hall.join("c", slot_wish=1))
    hall.now += 0.1
    assert Refused in kinds(hall.join("c", slot_wish=1)), "the first answer may have been lost"


def test_what_was_heard_of_a_ranks_holder_before_one_asked_does_not_refuse_it() -> None:
    hall = Hall()
    hall.join("b", slot_wish=1)
    hall.join("c", slot_wish=1)
    hall.now += 0.5
    hall.renew("b")
    hall.now += 0.5
    for _ in range(2):
        hall.now += 0.1
        assert Waiting in kinds(hall.join("d", slot_wish=1)), "b may have died since it was heard"


@pytest.mark.parametrize("ran", [0, 3])
def test_a_node_that_ran_in_a_run_that_is_over_is_refused(ran: int) -> None:
    hall = Hall()
    hall.begin("ab")
    assert kinds(hall.join("c", standing=Standing("another", 7, 9, 2, ran=ran))) == [Refused]


def test_a_node_that_only_waited_in_a_run_that_is_over_knows_nothing_of_this_one() -> None:
    hall = Hall(max_nodes=2)
    hall.begin("ab")
    hall.stop("ab", failed="b")
    hall.look()
    assert hall.leader.phase == "placing"
    told = hall.join("c", standing=Standing("another", 7, 9, 2))
    assert kinds(told) == [Welcome, Place, Ack], "it holds no lease before it knows the newest round of this run"
    assert places(told) == [(1, None)]


def test_a_member_that_comes_back_does_not_keep_newcomers_waiting() -> None:
    hall = Hall()
    hall.begin("ab")
    hall.join("c")
    hall.look(0.15)
    known = hall.leader.seats["b"].join
    hall.join("b", "in-again", standing=known.standing, state="running")
    assert to_whom(hall, hall.look(0.06), Stop) == "ab"


# What one who comes learns.


def test_a_node_that_rejoins_while_a_round_is_placed_is_told_its_own_place_again() -> None:
    hall = Hall()
    for node in "abc":
        hall.join(node)
    hall.look(3.0)
    assert places(hall.join("b", "in-again")) == [(0, 1)]


def test_a_member_that_rejoins_a_round_it_runs_is_told_nothing_of_it() -> None:
    hall = Hall()
    hall.begin("ab")
    known = hall.leader.seats["b"].join
    told = hall.join("b", "in-again", standing=known.standing, state="running")
    assert kinds(told) == [Welcome, Ack]


def test_a_newcomer_for_whom_there_is_room_is_not_told_that_it_waits_nor_to_stop() -> None:
    hall = Hall()
    hall.begin("ab")
    assert kinds(hall.join("c")) == [Welcome, Place, Ack]


def test_before_a_first_round_a_welcome_is_all_that_one_of_thousands_costs() -> None:
    hall = Hall(min_nodes=2)
    assert kinds(hall.join("a")) == [Welcome]


def test_who_comes_while_a_first_round_is_placed_holds_no_lease_before_it_knows_of_it() -> None:
    hall = Hall(max_nodes=2)
    for node in "ab":
        hall.join(node)
    hall.look(3.0)
    told = hall.join("s")
    assert kinds(told) == [Welcome, Place, Ack]
    assert places(told) == [(0, None)]


def test_a_round_that_was_announced_and_given_up_is_not_told_to_who_comes_then() -> None:
    hall = Hall(min_nodes=3)
    hall.begin("abc")
    hall.stop("abc", failed="b")
    assert to_whom(hall, hall.look(), Place) == "abc"
    hall.lose("c")
    hall.look()
    assert hall.leader.phase == "gathering"
    assert places(hall.join("x")) == [(0, None)], "round 1 is burnt"


@pytest.mark.parametrize("number", [0, 1])
def test_one_that_still_runs_an_older_round_is_stopped(number: int) -> None:
    hall = Hall()
    hall.begin("ab")
    for _ in range(number + 1):
        hall.stop("ab", failed="b")
        hall.look()
        hall.start("ab")
    older = replace(hall.leader.roll.last, round=number, slot=2)
    told = hall.join("c", standing=older, state="running")
    (stop,) = [message for message in told if isinstance(message, Stop)]
    assert stop.round == number + 2
    assert "failed" in stop.reason, "what the others were told"


def test_a_stranger_that_runs_is_told_that_the_job_went_on_without_it() -> None:
    hall = Hall()
    hall.begin("ab")
    stranger = replace(hall.leader.roll.last, slot=2)
    told = hall.join("c", standing=stranger, state="running")
    assert Stop not in kinds(told), "its word makes it a member"
    other = replace(hall.leader.roll.last, term=7, slot=2)
    told = hall.join("d", standing=other, state="running")
    assert Stop(1, "the job went on without this node", 0.0) in told


def test_a_member_that_returns_while_all_stop_is_told_to_stop_and_a_newcomer_is_not() -> None:
    hall = Hall(max_nodes=4)
    hall.begin("abc")
    known = hall.leader.seats["b"].join
    hall.say("c", Failed(0, (), (), ()))
    hall.look()
    assert hall.leader.phase == "stopping"
    told = hall.join("b", "in-again", standing=known.standing, state="running")
    assert [message for message in told if isinstance(message, Stop)] == [Stop(1, hall.leader._reason, 0.0)]
    assert Stop not in kinds(hall.join("x"))


# Spectators that may have to lead.


def test_a_spectator_that_comes_is_made_known_to_all_who_are_here_with_its_address() -> None:
    hall = Hall(max_nodes=2)
    hall.begin("ab")
    hall.lose("b")
    hall.join("s")
    hall.leader.received("in-t", join_of("t"), hall.now)
    hall.conns["t"] = "in-t"
    orders = hall.leader.take_orders()
    assert to_whom(hall, orders, Place) == "ast", "b is away"
    expected = tuple(Deputy(node, f"{node}:1") for node in "abst")
    assert {tuple(replace(one, in_base=False) for one in place.deputies) for place in _places(orders)} == {expected}
    assert hall.leader.roll.spares == ["s", "t"]


def _places(orders: list[Effect]) -> list[Place]:
    return [one.message for one in orders if isinstance(one, Send) and isinstance(one.message, Place)]


def test_a_spectator_that_comes_back_is_no_second_deputy_and_nobody_else_is_told() -> None:
    hall = Hall(max_nodes=2)
    hall.begin("ab")
    hall.join("s")
    hall.join("s", "in-again")
    hall.leader.received("in-third", join_of("s"), hall.now)
    hall.conns["s"] = "in-third"
    assert to_whom(hall, hall.leader.take_orders(), Place) == "s"
    assert [one.node for one in hall.leader.roll.last.deputies] == ["a", "b", "s"]


@pytest.mark.parametrize(("members", "deputies"), [(8, 8), (65, 3)])
def test_where_there_are_deputies_enough_a_spectator_is_told_alone(members: int, deputies: int) -> None:
    hall = Hall(max_nodes=members)
    crowd = "".join(chr(0x100 + index) for index in range(members - 1))
    hall.begin("a" + crowd)
    hall.leader.received("in-s", join_of("s"), hall.now)
    hall.conns["s"] = "in-s"
    assert to_whom(hall, hall.leader.take_orders(), Place) == "s"
    assert len(hall.leader.roll.last.deputies) == deputies


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
    assert hall.leader.phase == "placing"
    assert not hall.leader.is_valid(hall.now), "one of four"
    hall.renew("b")
    hall.look()
    assert hall.leader.is_valid(hall.now), "two of four, and it is the incumbent"


def test_those_who_are_dead_are_not_needed_while_no_round_is_made() -> None:
    hall = Hall()
    hall.begin("abc")
    hall.lose("c")
    hall.look()
    hall.refuse("c")
    hall.look()
    hall.live("a", 4.5)
    assert hall.leader.phase == "stopping", "b has not stopped"
    assert hall.leader.is_valid(hall.now), "one of two that may live, and it is the incumbent"


def counted(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list that grows with every count of the members."""
    counts: list[float] = []
    honest = hall.leader.roll.valid_until

    def count(now: float) -> float:
        counts.append(now)
        return honest(now)

    monkeypatch.setattr(hall.leader.roll, "valid_until", count)
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
    assert hall.leader.roll.heard["b"] == sent_at[2]
    hall.say("b", Renew(6, 4))
    assert hall.leader.roll.heard["b"] == sent_at[4]
    hall.say("b", Renew(7, 3))
    assert hall.leader.roll.heard["b"] == sent_at[4]


def test_answers_that_a_node_never_shows_to_have_got_are_not_kept_beyond_a_number() -> None:
    hall = Hall()
    hall.join("b")
    for number in range(1, 3 * MOST_UNECHOED):
        hall.say("b", Renew(number, -1))
        assert len(hall.leader.seats["b"].sent) <= MOST_UNECHOED


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
    assert not hall.leader.is_dirty
    hall.renew("a")
    assert hall.leader.is_dirty == (what != "one that has what it needs")


# Proofs of death.


def claimant(**changes: object) -> Hall:
    hall = Hall(LAST, **changes)
    hall.join("a", **member_of(LAST, 0))
    return hall


@pytest.mark.parametrize(
    ("what", "tie_until", "heard", "decides", "counts"),
    [
        ("the store says that we lead, whoever else is here", quorum.ALWAYS, "", False, True),
        ("the store is away, and we claim", quorum.NEVER, "b", False, False),
        ("the store is away, and most hold to us", quorum.NEVER, "b", True, True),
        ("the store is away, and most did", quorum.NEVER, "", True, False),
    ],
)
def test_with_a_store_a_refusal_proves_death_to_who_cannot_have_missed_a_round(
    what: str, tie_until: float, heard: str, decides: bool, counts: bool
) -> None:
    hall = claimant(external=True)
    hall.join("b", **member_of(LAST, 1))
    if decides:
        hall.renew("ab")
        hall.look()
        assert hall.leader.phase == "running"
        hall.live("a" + heard, 4.5)
    else:
        hall.renew(heard)
    hall.leader.roll.tie_until = tie_until
    hall.refuse("c")
    assert ("c" in hall.leader.roll.dead) == counts, what


@pytest.mark.parametrize(
    ("what", "own", "later_s", "counts"),
    [
        ("its lease runs", {}, 0.0, True),
        ("its lease is nearly over", {}, 2.9, True),
        ("its lease is over by now", {}, 3.1, False),
        ("its lease was over when it came", {"fenced": True}, 0.0, False),
        ("its own node is not here yet", None, 0.0, False),
    ],
)
def test_a_refusal_proves_death_to_a_claimant_while_the_lease_of_its_node_runs(
    what: str, own: dict[str, object] | None, later_s: float, counts: bool
) -> None:
    hall = Hall(LAST)
    if own is not None:
        hall.join("a", **member_of(LAST, 0, **own))
    hall.now += later_s
    hall.refuse("c")
    assert ("c" in hall.leader.roll.dead) == counts, what


def test_a_refusal_proves_nothing_to_a_leader_without_enough_members() -> None:
    hall = Hall()
    hall.begin("abc")
    hall.live("a", 12.0)
    hall.refuse("c")
    assert "c" not in hall.leader.roll.dead


@pytest.mark.parametrize(
    ("what", "standing", "node", "counts"),
    [
        ("a member", replace(LAST, slot=1), "b", True),
        ("a spectator that was announced with the round", LAST, "s", True),
        ("one who learnt of the round later", LAST, "t", False),
        ("a member of the round before", replace(LAST, round=3, slot=1), "t", False),
        ("a stranger", Standing(), "t", False),
    ],
)
def test_proofs_count_from_those_without_whom_no_newer_round_could_have_begun(
    what: str, standing: Standing, node: str, counts: bool
) -> None:
    known = replace(LAST, deputies=(*LAST.deputies, Deputy("s", "s:1")))
    hall = Hall(known)
    hall.join(node, standing=standing, dead=("c",), gone=("a",))
    assert (set(hall.leader.roll.dead), hall.leader.roll.gone) == (({"c"}, {"a"}) if counts else (set(), set())), what


def test_a_proof_is_void_for_who_is_here_and_for_who_is_none_of_the_round() -> None:
    hall = claimant()
    hall.join("c", **member_of(LAST, 2))
    hall.join("b", **member_of(LAST, 1, dead=("c", "z")))
    assert hall.leader.roll.dead == {}


# Which round is the newest.


def test_a_newer_round_that_may_have_started_is_taken_from_who_knows_it() -> None:
    hall = claimant()
    newer = replace(LAST, round=5, size=2, slot=1, restart_count=3, next_round=6, deputies=LAST.deputies[1:])
    hall.join("c", **member_of(newer, 1, since_ack_s=0.5))
    roll = hall.leader.roll
    assert (roll.last.round, roll.members, hall.leader.restart_count) == (5, {"b": 0, "c": 1}, 3)
    assert hall.leader.next_round == 6


@pytest.mark.parametrize(("ran", "newest"), [(4, 4), (5, 5)])
def test_a_newer_round_that_one_of_its_members_does_not_know_never_started_unless_another_ran_it(
    ran: int, newest: int
) -> None:
    hall = claimant()
    newer = replace(LAST, round=5, next_round=6, ran=ran)
    hall.join("c", **member_of(newer, 2))
    assert hall.leader.roll.last.round == newest, "a is in round 5 and was not told of it"


@pytest.mark.parametrize("number", [0, 3])
def test_a_round_that_one_of_its_members_was_never_told_of_gives_way_to_the_one_before(number: int) -> None:
    older = replace(LAST, round=number, ran=number, next_round=number + 1)
    announced = replace(LAST, round=number + 1, ran=number, next_round=number + 2)
    hall = Hall(announced)
    hall.join("c", **member_of(older, 2))
    assert hall.leader.roll.last.round == number
    assert hall.leader.next_round == number + 2, "a number is never used twice"


def test_one_that_is_not_in_the_newest_round_proves_nothing_by_not_knowing_it() -> None:
    hall = claimant()
    hall.join("x", **member_of(replace(LAST, round=3), 1))
    assert hall.leader.roll.last.round == 4


def test_a_member_that_remembers_nothing_does_not_make_a_round_forgotten() -> None:
    hall = claimant()
    hall.join("c")
    assert hall.leader.roll.last.round == 4


def test_who_is_done_while_a_deputy_claims_is_still_done_when_the_next_one_joins() -> None:
    hall = claimant()
    hall.join("b", **member_of(LAST, 1))
    hall.say("ab", Done(4))
    hall.join("c", **member_of(LAST, 2, state="done"))
    hall.renew("abc")
    hall.look()
    assert hall.leader.ended == Ended("done", 0, "", (), 2)


def test_a_leader_that_decides_takes_no_newer_round_from_who_comes() -> None:
    hall = Hall()
    hall.begin("ab")
    newer = replace(hall.leader.roll.last, term=9, round=9, next_round=10)
    told = hall.join("c", **member_of(newer, 2, dead=("b",)))
    assert Stop in kinds(told)
    assert hall.leader.roll.last.round == 0
    assert hall.leader.next_round == 1


@pytest.mark.parametrize(("bound_term", "fenced_at"), [(1, 105.4), (0, 104.5)])
def test_silence_is_counted_from_when_any_who_held_to_the_former_leader_last_heard_from_it(
    bound_term: int, fenced_at: float
) -> None:
    hall = claimant()
    hall.join("b", **member_of(LAST, 1, bound_term=bound_term, since_ack_s=0.1))
    assert hall.leader.roll.fenced_at("c") == pytest.approx(fenced_at)


# Looking for those who are not here.


def asked(orders: list[Effect]) -> list[str]:
    return [one.address for one in orders if isinstance(one, AskAround)]


def test_a_member_that_went_is_looked_after_at_growing_intervals_and_not_at_every_turn() -> None:
    hall = Hall()
    hall.begin("abc")
    hall.lose("c")
    assert asked(hall.look()) == ["c:1"]
    assert asked(hall.look(0.01)) == []
    assert hall.wake_at == pytest.approx(hall.now + 0.01)
    assert asked(hall.look(0.011)) == ["c:1"]
    assert asked(hall.look(0.03)) == []
    assert asked(hall.look(0.021)) == ["c:1"]


def test_a_spectator_that_went_is_looked_after_once_a_round_has_to_wait_for_it() -> None:
    hall = Hall(max_nodes=2)
    hall.begin("ab")
    hall.join("s")
    hall.renew("abs")
    hall.look()
    hall.lose("s")
    assert asked(hall.look()) == []
    hall.stop("ab", failed="b")
    assert asked(hall.look()) == ["s:1"]
    assert hall.leader.phase == "gathering"


def test_a_spectator_that_went_is_looked_after_at_the_end() -> None:
    hall = Hall(max_nodes=2)
    hall.begin("ab")
    hall.join("s")
    hall.look()
    hall.lose("s")
    hall.say("ab", Done(0))
    assert asked(hall.look()) == ["s:1"]


def test_whoever_asks_says_that_it_leads_only_while_it_does_and_that_it_may_only_while_it_may() -> None:
    hall = claimant()
    assert (hall.leader.ask(hall.now).address, hall.leader.ask(hall.now).valid) == ("a:1", False)
    hall.join("b", **member_of(LAST, 1))
    hall.renew("ab")
    assert not hall.leader.ask(hall.now).valid, "it has not decided yet"
    hall.look()
    assert (hall.leader.ask(hall.now).address, hall.leader.ask(hall.now).valid) == ("a:1", True)
    assert not hall.leader.ask(hall.now + 60.0).valid
    hall.leader.repeat_end(Ended("done", 0, "", (), 0), hall.now)
    assert (hall.leader.ask(hall.now).address, hall.leader.ask(hall.now).valid) == ("", False)


def test_our_own_silence_closes_nothing_and_hides_nobody_elses() -> None:
    hall = Hall()
    hall.begin("ab")
    hall.live("b", SILENCE_S + 1.5)
    answered_at = hall.now
    orders = hall.look()
    assert Close(SELF) not in orders
    assert "a" in hall.leader.seats
    assert hall.now < hall.wake_at <= answered_at + SILENCE_S
    assert Close("in-b") in hall.look(SILENCE_S)
