"""An owner's order to end the run outlives those who heard it first, and one that gives less time counts more."""

from __future__ import annotations

import pytest
from court import OWN, Court, only, to_whom

from planaria.rendezvous.machine import Rendezvous
from planaria.rendezvous.member import Member
from planaria.rendezvous.messages import Ended, Leave, Place, Quit, Redirect, Start, Stop, Stopped, Welcome
from planaria.rendezvous.model import EndRequested, LeaveRequested, Received, Send, StopWorkers

HOUR = Quit("enough (on node host-b)", 3600.0)
NOW = Quit("now (on node host-c)", 0.0)


def running(now: float = 0.0) -> Member:
    member = Member(OWN, now)
    member.join("b:1", now)
    member.opened(now)
    member.received(Welcome(1, "b"), now)
    place = Place("x", 1, 0, 2, 0, 0, 2, 0, 2, "h", 1, 0, "", ())
    member.received(place, now)
    member.received(Start(0, 4.0), now)
    assert member.post.workers == "running"
    member.out = []
    return member


def test_an_order_that_gives_less_time_is_passed_on_while_all_stop() -> None:
    court = Court()
    court.begin("abc")
    court.say("b", HOUR)
    assert only(court.look(), Stop) == Stop(1, HOUR.reason, 3600.0, final=True)
    court.say("c", NOW)
    assert only(court.look(), Stop) == Stop(1, NOW.reason, 0.0, final=True)
    court.say("abc", Stopped(1, 1, False))
    assert only(court.look(), Ended) == Ended("stopped", 143, NOW.reason, (), 0)


@pytest.mark.parametrize("later", [HOUR, Quit("more time", 7200.0)])
def test_an_order_that_gives_no_less_time_changes_nothing(later: Quit) -> None:
    court = Court()
    court.begin("abc")
    court.say("b", HOUR)
    court.look()
    court.say("c", later)
    assert to_whom(court.look(), Stop) == []


def test_who_stops_for_another_reason_hears_that_it_is_for_good() -> None:
    court = Court()
    court.begin("abc")
    court.say("c", Leave("its owner sent SIGTERM"))
    assert only(court.look(), Stop) == Stop(1, "node host-c left", 0.0)
    court.say("b", NOW)
    assert only(court.look(), Stop) == Stop(1, NOW.reason, 0.0, final=True)


def test_one_who_comes_back_while_all_stop_keeps_the_time_it_was_given() -> None:
    court = Court()
    court.begin("abc")
    court.say("b", HOUR)
    court.look()
    court.lose("c")
    court.join("c", "in-c2", state="stopping", standing=court.leader.office.roll.last)
    assert (("c", Stop(1, HOUR.reason, 3600.0, final=True))) in court.look()


def test_a_leader_that_goes_tells_the_others_what_is_wanted() -> None:
    court = Court()
    court.begin("abc")
    court.say("b", NOW)
    orders = [(order.conn, order.message) for order in court.leader.hand_over() if isinstance(order, Send)]
    told = [message for conn, message in orders if conn == "in-c"]
    assert told == [Stop(1, NOW.reason, 0.0, final=True), Redirect("b:1", 1, "a")]


def test_a_leader_whose_run_has_ended_asks_for_no_other_end() -> None:
    court = Court()
    court.begin("ab")
    court.say("b", NOW)
    court.look()
    court.say("ab", Stopped(1, 1, False))
    court.look()
    assert court.leader.office.ended is not None
    assert [order.message for order in court.leader.hand_over() if isinstance(order, Send)] == [Redirect("b:1", 1, "a")]


def test_whoever_hears_of_the_end_asks_the_next_leader_for_it() -> None:
    member = running()
    member.received(Stop(1, "enough (on node host-b)", 7.0, final=True), 1.0)
    member.post.stopped(4000)
    member.join("c:1", 2.0)
    member.opened(2.0)
    member.out = []
    member.received(Welcome(2, "c"), 2.1)
    assert Send(member.conn, Quit("enough (on node host-b)", 7.0)) in member.out


def test_workers_that_stop_are_told_again_only_when_it_is_for_good() -> None:
    member = running()
    member.received(Stop(1, "a node joined", 10.0), 1.0)
    member.received(Stop(1, "a node left", 0.0), 1.1)
    assert [order for order in member.out if isinstance(order, StopWorkers)] == [StopWorkers(1, "a node joined", 10.0)]
    member.received(Stop(1, "now", 0.0, final=True), 1.2)
    assert member.out[-1] == StopWorkers(1, "now", 0.0)


def test_a_member_keeps_the_order_that_gives_the_least_time() -> None:
    member = running()
    member.ask_end("enough", 60.0)
    member.ask_end("now", 0.0)
    member.ask_end("later", 10.0)
    asked = [order.message for order in member.out if isinstance(order, Send)]
    assert asked == [Quit("enough (on node host-a)", 60.0)] + [Quit("now (on node host-a)", 0.0)] * 2


def test_one_who_leaves_asks_first_and_says_goodbye_then() -> None:
    machine = Rendezvous(OWN, 0.0)
    machine.member = running()
    conn = machine.member.conn
    machine.handle(Received(conn, Stop(1, "node host-a is leaving", 0.0)), 0.1)
    orders = [*machine.handle(EndRequested("enough", 0.0), 0.2), *machine.handle(LeaveRequested("drained"), 0.3)]
    said = [order.message for order in orders if isinstance(order, Send) and order.conn == conn]
    assert said == [Quit("enough (on node host-a)", 0.0), Leave("drained")]
