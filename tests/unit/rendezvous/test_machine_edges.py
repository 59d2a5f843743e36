"""One agent's part at its edges: whom it believes, whom it goes to, when it founds a world or gives one up, when it sleeps."""

from __future__ import annotations

import pytest
from rendezvous_agent import (
    ENDED,
    FIRST,
    SECOND,
    STORED,
    Agent,
    ask_of,
    join_of,
    kinds,
    leading_agent,
    leads,
    member_agent,
    place,
    sent_to,
    stored_agent,
)

from planaria.base.value import replace
from planaria.rendezvous.claim import COMPLAIN_S
from planaria.rendezvous.keys import leader_record, outcome_record, round_record
from planaria.rendezvous.machine import ELDER_S, MEET_S
from planaria.rendezvous.messages import (
    Done,
    Ended,
    Farewell,
    Heard,
    Leads,
    Place,
    Placed,
    Redirect,
    Welcome,
)
from planaria.rendezvous.model import (
    Answered,
    AskAround,
    Close,
    Connect,
    Deputy,
    EndRun,
    Fence,
    KeyRead,
    KeyWritten,
    KillWorkers,
    LeaveRequested,
    Lost,
    Opened,
    ReadKey,
    Received,
    Say,
    Send,
    Settings,
    Standing,
    StartWorkers,
    StoreAnswered,
    StoreLeaseLost,
    Ticked,
    WakeAt,
    WorkersDone,
    WorkersStopped,
    WriteKey,
)

NOTHING_THERE = (KeyRead("leader", None, 0), KeyRead("round", None, 0), KeyRead("outcome", None, 0))
LATE_S = 10.0  # all leases are over by then


def goes_to(out: list[object]) -> list[str]:
    """Return the addresses that were connected to."""
    return [one.address for one in out if isinstance(one, Connect)]


def asks(out: list[object]) -> list[str]:
    """Return the addresses that were asked who leads."""
    return [one.address for one in out if isinstance(one, AskAround)]


def lines(out: list[object]) -> list[str]:
    """Return what people were told, but for what is shown in passing."""
    return [one.text for one in out if isinstance(one, Say) and not one.passing]


def founding_agent(settings: Settings = FIRST) -> Agent:
    """Return an agent that leads, and waits for others to make a first round with."""
    agent = Agent(settings)
    agent.hear(*(Answered(address, refused=True) for address in settings.endpoints[1:]))
    assert agent.machine.leader is not None
    assert not agent.machine.leader.roll.has_round
    return agent


# Whom an agent without a leader goes to.


@pytest.mark.parametrize(
    ("what", "claim", "joins"),
    [
        ("as new as ours", {"term": 1, "round": 0}, True),
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
    assert goes_to(agent.hear(Received("in-9", ask_of("c", "c:1", term=3, round=0)))) == ["c:1"]


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
    agent.machine.leader.repeat_end(ENDED, agent.now)
    answer = answer_of(agent, LATE_S)
    assert (answer.address, answer.valid) == ("a:1", True)


def test_a_leader_that_gave_the_run_up_for_lost_is_not_to_be_joined() -> None:
    agent = leading_agent()
    assert agent.machine.leader is not None
    agent.machine.leader.repeat_end(Ended("lost", 75, "", (), 0), agent.now)
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


# With a store.


def test_an_agent_without_a_store_reads_no_keys() -> None:
    assert kinds(Agent(SECOND).out, ReadKey) == []


def refused_leader(*, refused: bool) -> list[object]:
    """Return what an agent orders while the leader that the store names does not take its connections."""
    agent = Agent(STORED)
    other = leader_record(replace(STORED, node="z", address="z:1"))
    out = agent.hear(KeyRead("leader", other, 9), *NOTHING_THERE[1:])
    assert goes_to(out) == ["z:1"]
    for _ in range(4):
        agent.hear(Lost(agent.machine.member.conn, refused=refused))
        out += agent.hear(Ticked(), later_s=0.6)
    return out


def test_the_key_of_a_leader_is_taken_if_its_address_refuses_and_not_if_it_is_silent() -> None:
    assert WriteKey("leader", leader_record(STORED), 9, leased=True) in refused_leader(refused=True)
    assert kinds(refused_leader(refused=False), WriteKey) == []


def test_the_outcome_of_an_earlier_run_does_not_become_ours_with_time() -> None:
    agent = Agent(STORED)
    agent.hear(KeyRead("outcome", outcome_record(ENDED, "x"), 50, age_s=9.0), later_s=5.0)
    out = agent.hear(KeyRead("leader", None, 0), later_s=5.0)
    assert kinds(out, EndRun) == []


def test_a_leader_that_was_away_from_the_store_ends_with_the_run_that_another_ended() -> None:
    agent = stored_agent()
    out = agent.hear(KeyRead("outcome", outcome_record(ENDED, "x"), 50), later_s=1.0)
    assert kinds(out, EndRun) == [EndRun(ENDED)]
    assert not agent.machine.is_leading


def test_an_end_that_names_no_run_is_not_that_of_one_who_has_none() -> None:
    agent = Agent(replace(STORED, max_nodes=1))
    ended = round_record(Standing("x", 3, 7, 1), outcome_record(ENDED, ""))
    agent.hear(KeyRead("leader", None, 0), KeyRead("round", ended, 40), KeyRead("outcome", None, 0))
    agent.hear(KeyWritten("leader", 9), StoreAnswered(agent.now))
    assert agent.machine.leader is not None
    assert agent.machine.leader.ended is None


@pytest.mark.parametrize(("ran", "ends"), [(-1, False), (0, True), (2, True)])
def test_only_one_whose_workers_have_run_is_refused_by_a_run_that_followed_its_own(ran: int, ends: bool) -> None:
    agent = Agent(STORED)
    agent.machine.member.standing = Standing("x", 3, 2, 1, ran=ran)
    followed = round_record(Standing("y", 9, 0, 1))
    out = agent.hear(KeyRead("leader", None, 0), KeyRead("round", followed, 40), KeyRead("outcome", None, 0))
    assert [one.ended.kind for one in out if isinstance(one, EndRun)] == (["refused"] if ends else [])


def test_a_key_that_could_not_be_written_again_does_not_disturb_a_round_that_is_being_made() -> None:
    agent = Agent(replace(STORED, max_nodes=2))
    agent.hear(*NOTHING_THERE)
    agent.hear(KeyWritten("leader", 9), StoreAnswered(0.0))
    out = agent.hear(Received("in-c", join_of("c")))
    assert kinds(sent_to("in-c", [*out, *agent.pass_time(1.0)]), Place)
    agent.hear(KeyRead("leader", None, 0), KeyWritten("leader", 0))
    out = agent.hear(Received("in-c", Placed(0)), Ticked())
    assert [one.key for one in out if isinstance(one, WriteKey)] == ["round"]


def test_a_leader_goes_when_the_store_has_the_outcome_and_not_before() -> None:
    agent = Agent(replace(STORED, max_nodes=1))
    agent.hear(*NOTHING_THERE)
    agent.hear(KeyWritten("leader", 9), StoreAnswered(0.0))
    agent.pass_time(1.0)
    assert kinds(agent.hear(Ticked()), WriteKey)
    assert kinds(agent.hear(KeyWritten("round", 10), StoreAnswered(1.0)), StartWorkers)
    agent.hear(WorkersStopped(2000), WorkersDone(), Ticked())
    assert kinds(agent.hear(KeyWritten("round", 11), Ticked()), WriteKey, EndRun)[-1] == WriteKey(
        "outcome", outcome_record(ENDED, agent.machine.standing.epoch), None
    )
    assert kinds(agent.hear(KeyWritten("outcome", 0), Ticked()), EndRun) == []
    assert kinds(agent.hear(KeyWritten("outcome", 51), Ticked()), EndRun) == [EndRun(ENDED)]


def test_a_node_that_hears_the_end_while_its_workers_stop_sleeps() -> None:
    agent = member_agent()
    agent.told(ENDED, Farewell())
    agent.hear(Ticked(), later_s=1.0)
    assert agent.wake_at is None or agent.wake_at > agent.now


def test_the_end_of_a_lease_after_the_end_of_the_run_kills_nobody() -> None:
    agent = member_agent()
    assert Fence(None) in agent.told(ENDED, Farewell())
    assert kinds(agent.hear(Ticked(), later_s=LATE_S), KillWorkers) == []


def test_one_who_waits_for_the_store_to_take_its_key_sleeps() -> None:
    agent = Agent(STORED)
    other = leader_record(replace(STORED, node="z", address="z:1"))
    agent.hear(KeyRead("leader", other, 9), *NOTHING_THERE[1:])
    out = []
    for _ in range(2):
        agent.hear(Lost(agent.machine.member.conn, refused=True))
        out = agent.hear(Ticked(), later_s=0.3)
    assert kinds(out, WriteKey)
    agent.hear(Ticked(), later_s=0.01)
    assert agent.wake_at is None or agent.wake_at > agent.now


def test_questions_to_deputies_are_forgotten_when_there_is_a_leader() -> None:
    agent = Agent(STORED)
    last = Standing("x", 3, 7, 1, None, 0, (Deputy("y", "y:1"),), 8)
    agent.hear(KeyRead("leader", None, 0), KeyRead("round", round_record(last), 40), KeyRead("outcome", None, 0))
    other = leader_record(replace(STORED, node="z", address="z:1"))
    assert goes_to(agent.hear(KeyRead("leader", other, 41), later_s=0.1)) == ["z:1"]
    agent.hear(Lost(agent.machine.member.conn, refused=True), later_s=2.0)
    agent.hear(Ticked(), later_s=0.01)
    assert agent.wake_at is None or agent.wake_at > agent.now


def test_one_who_reads_the_leader_key_again_sleeps_and_says_nothing_of_a_store_that_has_answered() -> None:
    agent = stored_agent()
    agent.hear(StoreLeaseLost())
    agent.hear(KeyRead("round", round_record(Standing("x", 12, 8, 1)), 44))
    out = agent.hear(Ticked(), later_s=30.0)
    assert agent.wake_at is None or agent.wake_at > agent.now
    assert not any("has not answered" in one.text for one in out if isinstance(one, Say))


def test_one_who_waited_in_a_run_that_is_over_has_all_the_time_to_find_the_next() -> None:
    agent = Agent(replace(STORED, max_nodes=2, join_timeout_s=600.0))
    agent.machine.member.standing = Standing("x", 3, 7, 1, None, 0, (), 8)
    agent.now += 7200.0
    out = agent.hear(*NOTHING_THERE[:1], KeyRead("round", round_record(Standing("y", 9, 2, 1)), 40), *NOTHING_THERE[2:])
    out += agent.pass_time(agent.now + 5.0)
    assert kinds(out, EndRun) == []
