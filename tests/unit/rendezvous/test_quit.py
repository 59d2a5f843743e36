"""An owner ends the run from any node: the leader stops everybody, then ends it, once for all."""

from __future__ import annotations

import pytest
from court import OWN, Court, failure_of, only, to_whom
from ports import free_port
from rendezvous_rig import Rig, meeting_at

from planaria.rendezvous.member import Member
from planaria.rendezvous.messages import Done, Ended, Heard, Placed, Quit, Redirect, Start, Stop, Stopped, Welcome
from planaria.rendezvous.model import EndRequested, EndRun, Send, WriteKey

WHY = "its owner asked for the end of the run (on node host-b)"
QUIT = Quit(WHY, 0.0)


def test_everybody_stops_before_the_run_ends_and_hears_the_same() -> None:
    court = Court()
    court.begin("abc")
    court.say("b", QUIT)
    told = court.look()
    assert to_whom(told, Stop) == ["a", "b", "c"]
    assert only(told, Stop) == Stop(1, WHY, 0.0, final=True)
    court.say("ab", Stopped(1, 1, False))
    assert court.look() == [], "one still has workers"
    court.say("c", Stopped(1, 1, False))
    assert only(court.look(), Ended) == Ended("stopped", 143, WHY, (), 0)
    court.say("bc", Heard())
    assert to_whom(court.look(), Ended) == ["a"]


def test_a_drain_passes_its_grace_on() -> None:
    court = Court()
    court.begin("ab")
    court.say("a", Quit("enough", 7.0))
    assert only(court.look(), Stop) == Stop(1, "enough", 7.0, final=True)


def test_failures_on_the_way_do_not_change_the_outcome() -> None:
    court = Court()
    court.begin("ab")
    court.say("b", QUIT)
    court.look()
    court.say("a", Stopped(1, 1, False), failure_of("a"))
    court.say("b", Stopped(1, 1, False))
    assert only(court.look(), Ended) == Ended("stopped", 143, WHY, (), 0)


def test_a_run_that_stops_for_a_failure_ends_instead_of_starting_again() -> None:
    court = Court()
    court.begin("ab")
    court.say("a", Stopped(1, 1, False), failure_of("a"))
    court.look()
    court.say("b", Stopped(1, 1, False), QUIT)
    assert to_whom(court.look(), Start) == []
    court.look(40.0)
    assert court.leader.office.ended == Ended("stopped", 143, WHY, (), 0)


def test_a_run_that_is_done_is_done() -> None:
    court = Court()
    court.begin("ab")
    court.say("ab", Done(0))
    court.say("b", QUIT)
    assert only(court.look(), Ended) == Ended("done", 0, "", (), 0)


def test_a_round_that_is_being_made_does_not_start() -> None:
    court = Court(max_nodes=2)
    court.join("a")
    court.join("b")
    court.look(0.3)
    court.say("b", QUIT)
    court.say("ab", Placed(0))
    assert to_whom(court.look(), Start) == []
    assert only(court.look(3.0), Ended) == Ended("stopped", 143, WHY, (), 0)


def test_one_who_has_just_founded_a_run_waits_for_an_older_one_to_object() -> None:
    court = Court(min_nodes=3)
    court.join("a")
    court.join("b")
    court.say("b", QUIT)
    assert to_whom(court.look(1.9), Ended) == []
    assert to_whom(court.look(0.2), Ended) == ["b"]


def test_with_a_store_the_end_is_written_before_it_is_told() -> None:
    court = Court(external=True, max_nodes=2)
    court.leader.office.roll.tie_until = float("inf")
    court.join("a")
    court.join("b")
    court.say("b", QUIT)
    told = court.look(0.5)
    assert to_whom(told, Ended) == []
    assert [order.key for order in court.others if isinstance(order, WriteKey)] == ["round"]


def test_a_member_asks_every_leader_it_holds_to() -> None:
    member = Member(OWN, 0.0)
    member.ask_end("enough", 2.0)
    assert member.out == [], "nobody to ask yet"
    for number in (1, 2):
        member.join("b:1", 1.0)
        member.opened(1.0)
        member.out = []
        member.received(Welcome(number, "b"), 1.1)
        assert Send(member.conn, Quit("enough (on node host-a)", 2.0)) in member.out


@pytest.mark.parametrize("asker", [0, 1])
def test_over_real_sockets_all_agents_end_alike(asker: int) -> None:
    with Rig() as rig:
        meeting = meeting_at(f"127.0.0.1:{free_port()}", nodes="2")
        agents = [rig.add(meeting, hostname=name) for name in ("one", "two")]
        rig.meet(*agents)
        agents[asker].driver.post(EndRequested("enough", 0.0))
        assert rig.turn(lambda: all(agent.ended for agent in agents))
        assert agents[0].ended == agents[1].ended
        assert agents[0].ended is not None
        assert (agents[0].ended.kind, agents[0].ended.status) == ("stopped", 143)
        assert agents[0].ended.explanation.startswith("enough (on node ")
        assert [len(agent.stops) for agent in agents] == [1, 1]


def told_the_end() -> Member:
    member = Member(OWN, 0.0)
    member.join("b:1", 1.0)
    member.opened(1.0)
    member.received(Welcome(1, "b"), 1.1)
    member.received(Ended("stopped", 143, WHY, (), 0), 1.2)
    member.out = []
    return member


def test_an_end_stands_when_its_leader_leaves_while_it_tells_it() -> None:
    member = told_the_end()
    member.received(Redirect("c:1", 1, gone="b"), 1.3)
    assert member.phase == "seeking", "it is not to be followed: whoever drives this tells the rest"
    assert member.parting == Ended("stopped", 143, WHY, (), 0)


def test_an_end_is_void_when_its_leader_gives_way_to_one_who_went_on() -> None:
    member = told_the_end()
    member.received(Redirect("c:1", 2), 1.3)
    assert (member.phase, member.address, member.parting) == ("joining", "c:1", None)
    member.tick(100.0)
    assert not any(isinstance(order, EndRun) for order in member.out)
