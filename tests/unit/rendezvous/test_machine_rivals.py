"""Two who lead: who gives way, what is said to those who ask, and where rivals are looked for."""

from __future__ import annotations

import pytest
from rendezvous_agent import (
    ENDED,
    FIRST,
    LATE_S,
    STORED,
    Agent,
    ask_of,
    asks,
    founding_agent,
    goes_to,
    join_of,
    kinds,
    leading_agent,
    leads,
    lines,
    member_agent,
    sent_to,
    stored_agent,
)

from planaria.base.value import replace
from planaria.rendezvous.messages import Ended, Leads, Redirect, Renew, Waiting
from planaria.rendezvous.model import Answered, Close, Lost, Opened, Received, Send, Standing
from planaria.rendezvous.tenure import MEET_S

# Who gives a world up.


@pytest.mark.parametrize(("number", "yields"), [(-1, False), (0, True), (5, True)])
def test_a_leader_of_nothing_gives_way_to_a_question_from_a_round(number: int, yields: bool) -> None:
    agent = founding_agent()
    before = agent.machine.leader
    agent.hear(Received("in-9", ask_of("z", round=number)))
    assert (agent.machine.leader is not before) == yields


@pytest.mark.parametrize(("number", "yields"), [(-1, False), (0, True), (5, True)])
def test_a_leader_of_nothing_gives_way_to_an_answer_from_a_round(number: int, yields: bool) -> None:
    agent = founding_agent(replace(FIRST, endpoints=("a:1", "x:1")))
    before = agent.machine.leader
    agent.hear(Answered("x:1", leads("z", "", round=number)))
    assert (agent.machine.leader is not before) == yields


@pytest.mark.parametrize("number", [0, 5])
def test_a_leader_of_nothing_does_not_take_in_one_that_is_of_a_round(number: int) -> None:
    agent = founding_agent()
    out = agent.hear(Received("in-z", join_of("z", standing=Standing("z", 1, number, 2))))
    assert kinds(out, Send, Close)[:2] == [Send("in-z", Redirect("", 0)), Close("in-z")]
    assert not agent.machine.is_leading


def test_a_leader_of_nothing_does_not_give_way_to_a_round_of_another_run() -> None:
    agent = founding_agent()
    out = agent.hear(Received("in-z", join_of("z", run_id="other", standing=Standing("z", 1, 5, 2))))
    assert agent.machine.is_leading
    assert Waiting("a:1 serves run 'run', not 'other'") in sent_to("in-z", out)


def test_a_leader_that_has_nobody_to_meet_sleeps_until_something_is_due() -> None:
    agent = leading_agent()
    for wakes in range(1, 11):
        agent.pass_time(agent.wake_at or agent.now)
        for node in "bc":
            agent.hear(Received(f"in-{node}", Renew(wakes + 1, wakes)))
    assert agent.now > 1.01 + 5 * agent.machine.settings.renew_s / 2


def test_a_leader_of_a_round_is_not_impressed_by_a_question_or_an_answer_from_another() -> None:
    agent = leading_agent(settings=replace(FIRST, endpoints=("a:1", "x:1")))
    before = agent.machine.leader
    agent.hear(Received("in-9", ask_of("z", round=5)))
    agent.hear(Answered("x:1", leads("z", "", round=5)))
    assert agent.machine.leader is before


def test_a_leader_that_finds_a_stronger_one_gives_way_and_goes_there() -> None:
    agent = leading_agent(settings=replace(FIRST, endpoints=("a:1", "x:1")))
    out = agent.hear(Answered("x:1", leads("z", "x:1", valid=True, round=3, term=9)))
    assert not agent.machine.is_leading
    assert goes_to(out) == ["x:1"]


def test_a_leader_that_has_lost_its_majority_is_no_stronger_than_one_without() -> None:
    claim = ask_of("z", "z:1", round=0, term=9, valid=False)
    agent = leading_agent()
    agent.hear(Received("in-9", claim))
    assert agent.machine.is_leading
    assert goes_to(agent.hear(Received("in-9", claim), later_s=LATE_S)) == ["z:1"]


def test_hearsay_of_another_leader_is_looked_into_only_by_one_that_has_lost_its_majority() -> None:
    agent = leading_agent(settings=replace(FIRST, endpoints=("a:1", "x:1")))
    hearsay = Answered("x:1", leads("y", "z:1", valid=True, round=3, term=9))
    assert "z:1" not in asks(agent.hear(hearsay))
    assert "z:1" in asks(agent.hear(hearsay, later_s=LATE_S))
    assert agent.machine.is_leading


def test_with_a_store_no_claim_of_another_counts() -> None:
    agent = stored_agent()
    agent.hear(Received("in-9", ask_of("z", "z:1", valid=True, round=99, term=99)))
    assert agent.machine.is_leading


# What is said to those who ask.


def answer_of(agent: Agent, later_s: float = 0.0) -> Leads:
    (answer,) = sent_to("in-9", agent.hear(Received("in-9", ask_of("z", run_id="another")), later_s=later_s))
    assert isinstance(answer, Leads)
    return answer


def test_a_leader_says_that_it_has_its_majority_as_long_as_it_does() -> None:
    agent = leading_agent()
    assert answer_of(agent).valid
    assert not answer_of(agent, LATE_S).valid


def test_a_leader_whose_run_has_ended_is_still_the_one_to_go_to() -> None:
    agent = leading_agent()
    assert agent.machine.leader is not None
    agent.machine.leader.ending.repeat_end(ENDED, agent.now)
    answer = answer_of(agent, LATE_S)
    assert (answer.address, answer.valid) == ("a:1", True)


def test_a_leader_that_gave_the_run_up_for_lost_is_not_to_be_joined() -> None:
    agent = leading_agent()
    assert agent.machine.leader is not None
    agent.machine.leader.ending.repeat_end(Ended("lost", 75, "", (), 0), agent.now)
    assert answer_of(agent).address == ""


def test_a_leader_by_the_stores_leave_knows_the_round_that_the_store_has() -> None:
    assert answer_of(stored_agent()).round == 7


def test_an_answer_that_nobody_asked_for_is_not_answered() -> None:
    out = Agent(STORED).hear(Received("in-1", leads("x")))
    assert kinds(out, Send, Close) == [Close("in-1")]


# Looking for rivals, and for those who are lost.


def test_a_leader_looks_for_rivals_twenty_times_a_second_and_not_with_every_event() -> None:
    agent = leading_agent(settings=replace(FIRST, endpoints=("a:1", "x:1")))
    agent.pass_time(2.0)
    out = [order for _ in range(10) for order in agent.hear(Opened("nobody's"))]
    assert asks(out) == []
    assert 8 <= len(asks(agent.pass_time(agent.now + 10 * MEET_S))) <= 12


def test_an_endpoint_that_is_another_name_of_a_members_is_no_place_for_a_rival() -> None:
    agent = leading_agent(settings=replace(FIRST, endpoints=("a:1", "alias:1")))
    assert "alias:1" in asks(agent.pass_time(1.2))
    agent.hear(Answered("alias:1", leads("b", "a:1", round=0)))
    assert asks(agent.pass_time(1.4)) == []


def test_a_member_whose_connection_ends_is_looked_after() -> None:
    agent = leading_agent()
    agent.hear(Lost("in-b"))
    assert asks(agent.pass_time(agent.now)) == ["b:1"]


def candidate() -> Agent:
    """Return a member that lost its leader and leads, without a majority."""
    agent = member_agent()
    agent.loses_leader()
    agent.hear(Answered("a:1"), Answered("c:1"))
    assert agent.machine.is_leading
    return agent


def test_a_candidate_looks_for_rivals_at_the_deputies_too_and_a_leader_of_a_round_does_not() -> None:
    assert asks(candidate().pass_time(0.5)).count("c:1") >= 8
    agent = leading_agent()
    agent.hear(Lost("in-c"))
    assert asks(agent.pass_time(agent.now + 0.5)).count("c:1") < 8


def test_a_line_about_a_lost_majority_is_said_once_however_many_candidacies_find_it() -> None:
    agent = candidate()
    assert len(lines(agent.pass_time(LATE_S))) == 1
    agent.hear(Received("in-9", ask_of("c", "c:1", round=0, term=9)))
    assert not agent.machine.is_leading
    agent.loses_leader()
    agent.hear(*(Answered(address) for address in asks(agent.pass_time(agent.now + 0.2))))
    assert agent.machine.leader is not None
    assert lines(agent.pass_time(agent.now + LATE_S)) == []
