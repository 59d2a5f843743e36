"""Who is here: whom a leader takes in, what it tells them, what it grants, and whom it looks after."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from court import join_of
from hall import LAST, SILENCE_S, Hall, claimant, kinds, member_of, places, to_whom

from planaria.base.value import replace
from planaria.rendezvous.messages import Ack, Done, Ended, Failed, Place, Refused, Stop, Waiting, Welcome
from planaria.rendezvous.model import SELF, AskAround, Close, Deputy, Rules, Send, Standing
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
    assert hall.leader.office.phase == "placing"
    told = hall.join("c", standing=Standing("another", 7, 9, 2))
    assert kinds(told) == [Welcome, Place, Ack], "it holds no lease before it knows the newest round of this run"
    assert places(told) == [(1, None)]


def test_a_member_that_comes_back_does_not_keep_newcomers_waiting() -> None:
    hall = Hall()
    hall.begin("ab")
    hall.join("c")
    hall.look(0.15)
    known = hall.leader.office.seats["b"].join
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
    known = hall.leader.office.seats["b"].join
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
    assert hall.leader.office.phase == "gathering"
    assert places(hall.join("x")) == [(0, None)], "round 1 is burnt"


@pytest.mark.parametrize("number", [0, 1])
def test_one_that_still_runs_an_older_round_is_stopped(number: int) -> None:
    hall = Hall()
    hall.begin("ab")
    for _ in range(number + 1):
        hall.stop("ab", failed="b")
        hall.look()
        hall.start("ab")
    older = replace(hall.leader.office.roll.last, round=number, slot=2)
    told = hall.join("c", standing=older, state="running")
    (stop,) = [message for message in told if isinstance(message, Stop)]
    assert stop.round == number + 2
    assert "failed" in stop.reason, "what the others were told"


def test_a_stranger_that_runs_is_told_that_the_job_went_on_without_it() -> None:
    hall = Hall()
    hall.begin("ab")
    stranger = replace(hall.leader.office.roll.last, slot=2)
    told = hall.join("c", standing=stranger, state="running")
    assert Stop not in kinds(told), "its word makes it a member"
    other = replace(hall.leader.office.roll.last, term=7, slot=2)
    told = hall.join("d", standing=other, state="running")
    assert Stop(1, "the job went on without this node", 0.0) in told


def test_a_member_that_returns_while_all_stop_is_told_to_stop_and_a_newcomer_is_not() -> None:
    hall = Hall(max_nodes=4)
    hall.begin("abc")
    known = hall.leader.office.seats["b"].join
    hall.say("c", Failed(0, (), (), ()))
    hall.look()
    assert hall.leader.office.phase == "stopping"
    told = hall.join("b", "in-again", standing=known.standing, state="running")
    assert [message for message in told if isinstance(message, Stop)] == [Stop(1, hall.leader.office.reason, 0.0)]
    assert Stop not in kinds(hall.join("x"))


# Spectators that may have to lead.


def test_a_spectator_that_comes_is_made_known_to_all_who_are_here_with_its_address() -> None:
    hall = Hall(max_nodes=2)
    hall.begin("ab")
    hall.lose("b")
    hall.join("s")
    hall.leader.received("in-t", join_of("t", rules=hall.settings.rules), hall.now)
    hall.conns["t"] = "in-t"
    orders = hall.leader.take_orders()
    assert to_whom(hall, orders, Place) == "ast", "b is away"
    expected = tuple(Deputy(node, f"{node}:1") for node in "abst")
    assert {tuple(replace(one, in_base=False) for one in place.deputies) for place in _places(orders)} == {expected}
    assert hall.leader.office.roll.spares == ["s", "t"]


def _places(orders: list[Effect]) -> list[Place]:
    return [one.message for one in orders if isinstance(one, Send) and isinstance(one.message, Place)]


def test_a_spectator_that_comes_back_is_no_second_deputy_and_nobody_else_is_told() -> None:
    hall = Hall(max_nodes=2)
    hall.begin("ab")
    hall.join("s")
    hall.join("s", "in-again")
    hall.leader.received("in-third", join_of("s", rules=hall.settings.rules), hall.now)
    hall.conns["s"] = "in-third"
    assert to_whom(hall, hall.leader.take_orders(), Place) == "s"
    assert [one.node for one in hall.leader.office.roll.last.deputies] == ["a", "b", "s"]


@pytest.mark.parametrize(("members", "deputies"), [(8, 8), (65, 3)])
def test_where_there_are_deputies_enough_a_spectator_is_told_alone(members: int, deputies: int) -> None:
    hall = Hall(max_nodes=members)
    crowd = "".join(chr(0x100 + index) for index in range(members - 1))
    hall.begin("a" + crowd)
    hall.leader.received("in-s", join_of("s", rules=hall.settings.rules), hall.now)
    hall.conns["s"] = "in-s"
    assert to_whom(hall, hall.leader.take_orders(), Place) == "s"
    assert len(hall.leader.office.roll.last.deputies) == deputies


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
    assert hall.leader.office.phase == "gathering"


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
    assert (hall.leader.office.ask(hall.now).address, hall.leader.office.ask(hall.now).valid) == ("a:1", False)
    hall.join("b", **member_of(LAST, 1))
    hall.renew("ab")
    assert not hall.leader.office.ask(hall.now).valid, "it has not decided yet"
    hall.look()
    assert (hall.leader.office.ask(hall.now).address, hall.leader.office.ask(hall.now).valid) == ("a:1", True)
    assert not hall.leader.office.ask(hall.now + 60.0).valid
    hall.leader.ending.repeat_end(Ended("done", 0, "", (), 0), hall.now)
    assert (hall.leader.office.ask(hall.now).address, hall.leader.office.ask(hall.now).valid) == ("", False)


def test_our_own_silence_closes_nothing_and_hides_nobody_elses() -> None:
    hall = Hall()
    hall.begin("ab")
    hall.live("b", SILENCE_S + 1.5)
    answered_at = hall.now
    orders = hall.look()
    assert Close(SELF) not in orders
    assert "a" in hall.leader.office.seats
    assert hall.now < hall.wake_at <= answered_at + SILENCE_S
    assert Close("in-b") in hall.look(SILENCE_S)


@pytest.mark.parametrize(
    ("what", "changes", "term"),
    [("it is refused", {"rules": Rules(9.0, 1, 9, 9)}, 1), ("it is of another run", {"run_id": "z"}, 1), ("", {}, 8)],
)
def test_one_that_is_turned_away_raises_no_term(what: str, changes: dict[str, object], term: int) -> None:
    hall = Hall(external=True)
    hall.join("b", bound_term=7, **changes)
    assert hall.leader.office.term == term, what
