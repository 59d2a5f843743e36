"""One agent's part at its edges: whom it believes, whom it goes to, when it founds a world or gives one up, when it sleeps."""

from __future__ import annotations

import pytest
from rendezvous_agent import (
    ENDED,
    FIRST,
    LATE_S,
    SECOND,
    STORED,
    Agent,
    ask_of,
    asks,
    goes_to,
    kinds,
    leading_agent,
    leads,
    member_agent,
    place,
    sent_to,
)

from planaria.base.value import replace
from planaria.rendezvous.claim import COMPLAIN_S
from planaria.rendezvous.messages import Done, Ended, Farewell, Heard, Redirect, Welcome
from planaria.rendezvous.model import (
    Answered,
    Connect,
    Deputy,
    EndRun,
    LeaveRequested,
    Lost,
    Opened,
    Received,
    Send,
    Ticked,
    WakeAt,
    WorkersDone,
    WorkersStopped,
)
from planaria.rendezvous.rivals import ELDER_S

# Whom an agent without a leader goes to.


@pytest.mark.parametrize(
    ("what", "claim", "joins"),
    [
        ("of a newer term", {"term": 2, "round": 0}, True),
        ("of the term of the one that was lost", {"term": 1, "round": 0}, False),
        ("newer", {"term": 2, "round": 5}, True),
        ("behind us", {"term": 0, "round": 0}, False),
        ("without a round, which has to hear of ours", {"term": 9, "round": -1}, False),
    ],
)
def test_one_who_seeks_goes_to_a_leader_that_asks_it_and_is(what: str, claim: dict[str, object], joins: bool) -> None:
    agent = member_agent()
    agent.loses_leader()
    out = agent.hear(Received("in-9", replace(ask_of("c", "c:1"), **claim)))
    assert goes_to(out) == (["c:1"] if joins else []), what


def test_one_who_has_a_leader_does_not_go_to_another_that_asks_it() -> None:
    assert goes_to(member_agent().hear(Received("in-9", ask_of("c", "c:1", term=9, round=5, valid=True)))) == []


def test_one_who_knows_a_round_does_not_go_to_a_leader_that_is_said_to_have_none() -> None:
    agent = member_agent()
    agent.loses_leader()
    assert goes_to(agent.hear(Answered("c:1", leads("c", "z:1", term=9, round=-1)))) == []


def test_one_who_knows_a_round_does_not_go_back_behind_a_term_that_it_was_bound_to() -> None:
    agent = member_agent(term=3)
    agent.loses_leader()
    assert goes_to(agent.hear(Received("in-9", ask_of("c", "c:1", term=2, round=0)))) == []
    assert goes_to(agent.hear(Received("in-9", ask_of("c", "c:1", term=3, round=0)))) == []
    assert goes_to(agent.hear(Received("in-9", ask_of("a", "a:1", term=3, round=0)))) == ["a:1"]


def test_one_who_knows_no_round_is_bound_to_no_term() -> None:
    agent = Agent(SECOND)
    agent.hear(Opened(agent.machine.member.conn))
    agent.told(Welcome(5, "a"))
    agent.hear(Ticked(), later_s=1.0)
    agent.machine.member.seek()
    assert goes_to(agent.hear(Received("in-9", ask_of("c", "c:1", term=1, round=-1)))) == ["c:1"]


def test_an_owner_does_not_ask_its_own_endpoint_under_whatever_name() -> None:
    agent = Agent(replace(FIRST, endpoints=("me:1", "x:1")))
    assert asks(agent.out) == ["x:1"]
    assert "me:1" not in asks(leading_agent(settings=replace(FIRST, endpoints=("me:1",))).pass_time(2.0))


def test_one_who_was_told_that_nobody_leads_asks_around_at_once() -> None:
    agent = member_agent()
    assert asks(agent.told(Redirect("", 1))) == ["a:1", "c:1"]


def test_one_whose_next_leader_never_answers_takes_a_breath() -> None:
    agent = member_agent()
    agent.told(Redirect("c:1", 1))
    gives_up_at = agent.now + agent.machine.settings.suspect_s
    assert asks(agent.pass_time(gives_up_at)) == []
    assert asks(agent.pass_time(gives_up_at + 0.2)) == ["c:1", "a:1"]


def test_being_sent_on_does_not_make_the_next_pause_longer() -> None:
    agent = Agent(SECOND)
    agent.hear(Opened("to-1"))
    assert goes_to(agent.told(Redirect("c:1", 1))) == ["c:1"]
    agent.hear(Lost("to-2", refused=True))
    assert agent.wake_at == pytest.approx(0.15)


def test_a_death_that_is_found_after_our_own_lease_proves_nothing() -> None:
    agent = member_agent()
    agent.loses_leader(later_s=LATE_S)
    agent.hear(Answered("a:1", refused=True))
    assert agent.machine.member.dead == set()


# Who founds a world, and who leads one on.


def later_owner() -> Agent:
    """Return an agent that owns the second endpoint, and finds nobody at the first."""
    agent = Agent(replace(SECOND, endpoints=("a:1", "b:1"), owned=1, boot_quiet_s=2.0))
    agent.hear(Answered("a:1", refused=True))
    return agent


def leads_at(agent: Agent, until: float) -> float | None:
    """Return when an agent that is refused everywhere begins to lead."""
    while agent.now < until and not agent.machine.is_leading:
        out = agent.pass_time(min(agent.wake_at or until, until))
        agent.hear(*(Answered(address, refused=True) for address in asks(out)))
    return agent.now if agent.machine.is_leading else None


def test_a_newcomer_that_asks_does_not_keep_an_owner_from_founding() -> None:
    agent = later_owner()
    agent.hear(Received("in-9", ask_of("z", round=-1)), later_s=1.0)
    assert (leads_at(agent, 20.0) or 99.0) < 4.0


def test_one_of_an_older_world_that_asks_keeps_an_owner_from_founding_for_a_while() -> None:
    agent = later_owner()
    agent.hear(Received("in-9", ask_of("z", round=0)), later_s=1.0)
    assert 1.0 + ELDER_S <= (leads_at(agent, 20.0) or 0.0) < 3.0 + ELDER_S


def spectating_owner() -> Agent:
    """Return an agent that owns an endpoint, knows round 0 without being in it or a deputy, and has lost its leader."""
    settings = replace(SECOND, endpoints=("e:1", "b:1"), owned=1, boot_quiet_s=0.0)
    deputies = (Deputy("a", "a:1"), Deputy("c", "c:1"))
    agent = member_agent(settings, known=place(None, deputies=deputies))
    assert asks(agent.loses_leader()) == ["a:1", "c:1", "e:1"]
    agent.hear(Answered("a:1", refused=True), Answered("e:1", refused=True))
    return agent


def test_an_owner_that_is_not_in_line_leads_a_round_on_if_nobody_else_can() -> None:
    agent = spectating_owner()
    agent.hear(Answered("c:1", refused=True))
    assert agent.machine.is_leading


def test_an_owner_that_is_not_in_line_leaves_a_round_to_those_who_know_it() -> None:
    agent = spectating_owner()
    agent.hear(Answered("c:1", leads("c", round=0)))
    assert not agent.machine.is_leading


def test_an_owner_does_not_leave_a_round_to_one_who_knows_of_none() -> None:
    agent = spectating_owner()
    agent.hear(Answered("c:1", leads("y", round=-1)))
    assert agent.machine.is_leading


def test_being_asked_does_not_keep_one_who_knows_the_round_from_leading_it_on() -> None:
    agent = spectating_owner()
    agent.hear(Received("in-9", ask_of("z", round=0)))
    agent.hear(Answered("c:1", refused=True))
    assert agent.machine.is_leading


# The end.


def test_an_agent_that_has_ended_hears_nothing_more() -> None:
    agent = member_agent()
    agent.hear(WorkersStopped(2000))
    agent.told(ENDED, Farewell())
    assert kinds(agent.told(Redirect("c:1", 1), place(), ENDED), Connect, Send, EndRun) == []


def test_a_member_that_leaves_is_gone_and_sleeps() -> None:
    agent = member_agent()
    agent.hear(WorkersStopped(2000))
    out = agent.hear(LeaveRequested("SIGTERM"))
    assert agent.machine.is_ended
    assert kinds(out, WakeAt) == [WakeAt(None)]


def test_a_leader_leads_until_everybody_knows_the_end() -> None:
    agent = leading_agent()
    agent.hear(WorkersStopped(2000), WorkersDone(), *(Received(f"in-{node}", Done(0)) for node in "bc"), Ticked())
    assert agent.machine.is_leading
    agent.hear(Received("in-b", Heard()), Ticked())
    assert agent.machine.is_leading
    out = agent.hear(Received("in-c", Heard()), Ticked())
    assert Farewell() in sent_to("in-b", out)
    assert kinds(out, EndRun) == [EndRun(ENDED)]
    assert agent.machine.leader is None


def test_who_found_nobody_says_where_it_looked() -> None:
    agent = Agent(replace(SECOND, join_timeout_s=3.0))
    (ended,) = kinds(agent.pass_time(60.0), EndRun)
    assert ended == EndRun(Ended("timeout", 124, "no leader was found at a:1 within 3 s", (), 0))
    (ended,) = kinds(Agent(replace(STORED, join_timeout_s=3.0)).pass_time(60.0), EndRun)
    assert ended == EndRun(Ended("timeout", 124, "no leader was found through the store within 3 s", (), 0))


def test_one_who_was_in_a_round_looks_for_a_leader_without_limit() -> None:
    agent = member_agent(replace(SECOND, join_timeout_s=3.0))
    agent.hear(WorkersStopped(2000))
    agent.loses_leader(later_s=LATE_S)
    assert not agent.machine.is_ended


# When it wakes.


def test_one_who_seeks_wakes_for_its_limit_only_before_its_first_round() -> None:
    assert Agent(replace(STORED, join_timeout_s=3.0)).wake_at == 3.0
    agent = member_agent(replace(SECOND, join_timeout_s=3.0))
    agent.hear(WorkersStopped(2000))
    agent.loses_leader(later_s=LATE_S)
    assert (agent.wake_at or 0.0) > agent.now


def test_one_who_waits_for_a_store_wakes_to_say_so() -> None:
    assert Agent(STORED).wake_at == COMPLAIN_S


def test_a_leader_sleeps_between_two_looks_whenever_it_began() -> None:
    agent = leading_agent(now=100.0)
    agent.pass_time(101.5)
    assert (agent.wake_at or 0.0) > agent.now


def test_an_event_that_tells_a_leader_nothing_does_not_wake_it() -> None:
    agent = leading_agent()
    assert agent.hear(Opened("nobody's")) == []
