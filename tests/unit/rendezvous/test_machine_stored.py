"""An agent with a store: its keys, its outcome, and when it sleeps."""

from __future__ import annotations

import pytest
from rendezvous_agent import (
    ENDED,
    LATE_S,
    NOTHING_THERE,
    SECOND,
    STORED,
    Agent,
    goes_to,
    join_of,
    kinds,
    member_agent,
    sent_to,
    stored_agent,
)

from planaria.base.value import replace
from planaria.rendezvous.keys import leader_record, outcome_record, round_record
from planaria.rendezvous.messages import Farewell, Place, Placed
from planaria.rendezvous.model import (
    Deputy,
    EndRun,
    Fence,
    KeyRead,
    KeyWritten,
    KillWorkers,
    Lost,
    ReadKey,
    Received,
    Say,
    Standing,
    StartWorkers,
    StoreAnswered,
    StoreLeaseLost,
    Ticked,
    WorkersDone,
    WorkersStopped,
    WriteKey,
)

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
    assert agent.machine.leader.office.ended is None


@pytest.mark.parametrize(("ran", "ends"), [(-1, False), (0, True), (2, True)])
def test_only_one_whose_workers_have_run_is_refused_by_a_run_that_followed_its_own(ran: int, ends: bool) -> None:
    agent = Agent(STORED)
    agent.machine.member.post.standing = Standing("x", 3, 2, 1, ran=ran)
    followed = round_record(Standing("y", 9, 0, 1))
    out = agent.hear(KeyRead("leader", None, 0), KeyRead("round", followed, 40), KeyRead("outcome", None, 0))
    assert [one.ended.kind for one in out if isinstance(one, EndRun)] == (["refused"] if ends else [])


def test_a_key_that_could_not_be_written_again_does_not_disturb_a_round_that_is_being_made() -> None:
    agent = Agent(replace(STORED, max_nodes=2))
    agent.hear(*NOTHING_THERE)
    agent.hear(KeyWritten("leader", 9), StoreAnswered(0.0))
    out = agent.hear(Received("in-c", join_of("c", rules=agent.machine.settings.rules)))
    assert kinds(sent_to("in-c", [*out, *agent.pass_time(1.0)]), Place)
    agent.hear(KeyRead("leader", None, 0), KeyWritten("leader", 0))
    out = agent.hear(Received("in-c", Placed(0)), Ticked())
    assert [one.key for one in out if isinstance(one, WriteKey)] == ["round"]


def test_a_leader_goes_when_the_store_has_the_outcome_and_not_before() -> None:
    agent = Agent(replace(STORED, max_nodes=1))
    agent.hear(*NOTHING_THERE)
    agent.hear(KeyWritten("leader", 9), StoreAnswered(0.0))
    assert kinds(agent.pass_time(1.0), WriteKey)
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
    agent.machine.member.post.standing = Standing("x", 3, 7, 1, None, 0, (), 8)
    agent.now += 7200.0
    out = agent.hear(*NOTHING_THERE[:1], KeyRead("round", round_record(Standing("y", 9, 2, 1)), 40), *NOTHING_THERE[2:])
    out += agent.pass_time(agent.now + 5.0)
    assert kinds(out, EndRun) == []
