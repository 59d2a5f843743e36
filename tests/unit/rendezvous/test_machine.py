"""One agent's whole part: which of its halves hears what, how it finds a leader, and what it does when there are two."""

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
    sent_to,
    stored_agent,
)

from planaria.base.value import replace
from planaria.rendezvous.keys import leader_record, outcome_record, round_record
from planaria.rendezvous.messages import (
    Ack,
    Farewell,
    Leads,
    Place,
    Redirect,
)
from planaria.rendezvous.model import (
    SELF,
    Answered,
    AskAround,
    Close,
    Connect,
    Deputy,
    EndRun,
    KeyRead,
    KeyWritten,
    KillWorkers,
    LeaveRequested,
    Lost,
    Opened,
    ReadKey,
    Received,
    Send,
    Standing,
    StartWorkers,
    StopWorkers,
    StoreAnswered,
    StoreLeaseLost,
    Ticked,
    WorkersStopped,
    WriteKey,
)
from planaria.rendezvous.rivals import ELDER_S

# Finding a leader.


def test_whoever_owns_the_endpoint_and_finds_nobody_leads_and_joins_itself() -> None:
    agent = Agent(replace(FIRST, max_nodes=1))
    assert agent.machine.is_leading
    assert Connect("to-1", SELF) in agent.out
    (start,) = kinds(agent.pass_time(1.0), StartWorkers)
    assert isinstance(start, StartWorkers)
    assert (start.place.size, start.place.slot, start.place.term) == (1, 0, 1)


def test_with_one_endpoint_a_newcomer_goes_straight_there_and_takes_a_breath_when_refused() -> None:
    agent = Agent(SECOND)
    assert kinds(agent.out, Connect, AskAround) == [Connect("to-1", "a:1")]
    assert kinds(agent.hear(Lost("to-1", refused=True)), Connect) == []
    assert agent.wake_at == pytest.approx(0.15)
    assert kinds(agent.pass_time(0.2), Connect) == [Connect("to-2", "a:1")]


def test_with_several_endpoints_all_are_asked_and_the_leader_that_is_named_is_joined() -> None:
    agent = Agent(replace(SECOND, endpoints=("x:1", "y:1")))
    assert [one.address for one in kinds(agent.out, AskAround)] == ["x:1", "y:1"]  # type: ignore[attr-defined]
    out = agent.hear(Answered("y:1", leads("y", "z:1")))
    assert kinds(out, Connect) == [Connect("to-1", "z:1")]


def test_a_later_owner_leads_only_when_the_earlier_endpoints_have_been_away_for_a_while() -> None:
    agent = Agent(replace(SECOND, endpoints=("a:1", "b:1"), owned=1, boot_quiet_s=2.0))
    while agent.now < 5.0 and not agent.machine.is_leading:
        if kinds(agent.out, AskAround):
            agent.hear(Answered("a:1", refused=True))
        agent.out = agent.pass_time(agent.wake_at or 5.0)
    assert 2.0 <= agent.now <= 3.1


def test_who_finds_nobody_in_time_ends_with_124() -> None:
    agent = Agent(replace(SECOND, join_timeout_s=3.0))
    for _ in range(50):
        if agent.machine.is_ended:
            break
        agent.hear(Lost(agent.machine.member.conn, refused=True))
        agent.pass_time(agent.now + 0.2)
    assert agent.machine.is_ended
    assert 3.0 <= agent.now <= 3.5


def test_a_member_that_loses_its_leader_asks_it_all_deputies_and_all_endpoints_at_once() -> None:
    agent = member_agent(replace(SECOND, endpoints=("a:1", "x:1")))
    out = agent.hear(Lost(agent.machine.member.conn))
    assert [one.address for one in kinds(out, AskAround)] == ["a:1", "c:1", "x:1"]  # type: ignore[attr-defined]
    assert kinds(out, StopWorkers, KillWorkers) == []


def test_the_next_deputy_leads_with_the_next_term_when_nobody_does() -> None:
    agent = member_agent()
    agent.hear(Lost(agent.machine.member.conn))
    agent.hear(Answered("a:1", refused=True))
    assert not agent.machine.is_leading
    out = agent.hear(Answered("c:1", leads("c", round=0)))
    assert kinds(out, Connect) == [Connect("to-3", SELF)]
    assert agent.machine.leader is not None
    assert agent.machine.leader.office.term == 2
    assert agent.machine.member.dead == {"a"}


def test_an_earlier_deputy_that_seeks_too_goes_first() -> None:
    agent = member_agent(replace(SECOND, node="c", host="host-c", address="c:1"))
    agent.hear(Lost(agent.machine.member.conn))
    agent.hear(Answered("a:1", refused=True), Answered("b:1", leads("b", round=0)))
    assert not agent.machine.is_leading


def test_an_heir_leads_without_asking() -> None:
    agent = member_agent()
    out = agent.told(Redirect("b:1", 1, gone="a"))
    assert Connect("to-3", SELF) in out
    assert agent.machine.leader is not None
    assert agent.machine.leader.office.term == 2
    assert "a" in agent.machine.leader.office.roll.gone


# Who hears what.


@pytest.mark.parametrize(
    ("agent", "answer"),
    [
        (leading_agent("abc"), leads("a", "a:1", round=0, valid=True)),
        (member_agent(), leads("b", "a:1", round=0)),
        (Agent(SECOND), leads("b", "", term=0)),
    ],
)
def test_who_is_asked_says_who_leads_and_closes(agent: Agent, answer: Leads) -> None:
    assert kinds(agent.hear(Received("in-9", ask_of("z", run_id="another"))), Send, Close) == [
        Send("in-9", answer),
        Close("in-9"),
    ]


def test_who_does_not_lead_sends_others_to_who_does() -> None:
    out = member_agent().hear(Received("in-9", join_of("z")))
    assert kinds(out, Send, Close) == [Send("in-9", Redirect("a:1", 1)), Close("in-9")]
    out = Agent(SECOND).hear(Received("in-9", join_of("z")))
    assert kinds(out, Send, Close) == [Send("in-9", Redirect("", 0)), Close("in-9")]


def test_workers_are_killed_at_the_end_of_the_lease_whatever_arrives_at_that_moment() -> None:
    agent = member_agent()
    agent.machine.member.tick(2.0)
    agent.now = 4.0
    out = agent.told(Ack(agent.machine.member._seq, 4.0))
    assert len(kinds(out, KillWorkers)) == 1


def test_a_moment_to_wake_is_ordered_only_when_it_changes() -> None:
    agent = member_agent()
    assert agent.hear(Opened("nobody's")) == []
    assert agent.hear(Lost("nobody's")) == []


def crowded(monkeypatch: pytest.MonkeyPatch) -> tuple[Agent, list[float]]:
    """Return a leader to whom 49 nodes came in one turn, and when it decided meanwhile."""
    agent = Agent(replace(FIRST, max_nodes=50))
    agent.pass_time(1.0)
    leader = agent.machine.leader
    assert leader is not None
    honest, decided = leader.advance, []
    monkeypatch.setattr(leader, "advance", lambda now: decided.append(now) or honest(now))
    for index in range(49):
        agent.hear(Received(f"in-{index}", join_of(f"n{index}", rules=agent.machine.settings.rules)))
    return agent, decided


def test_a_burst_of_joins_is_placed_when_the_turn_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, _ = crowded(monkeypatch)
    assert agent.wake_at == agent.now
    told = [one.message for one in agent.hear(Ticked()) if isinstance(one, Send)]
    assert sum(isinstance(message, Place) for message in told) == 50


def test_a_burst_of_joins_is_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, decided = crowded(monkeypatch)
    assert len(decided) <= 1


# Two leaders.


@pytest.mark.parametrize(
    ("what", "claim", "yields"),
    [
        ("a majority and a higher term", {"valid": True, "round": 3, "term": 9}, True),
        ("a majority, the same term, a lower name", {"node": "Z", "valid": True, "round": 3, "term": 1}, True),
        ("a majority, the same term, a higher name", {"valid": True, "round": 3, "term": 1}, False),
        ("a majority but no round", {"valid": True, "round": -1, "term": 9}, False),
        ("a higher term but no majority", {"valid": False, "round": 3, "term": 9}, False),
        ("another run", {"run_id": "another", "valid": True, "round": 3, "term": 9}, False),
    ],
)
def test_the_weaker_of_two_leaders_gives_way(what: str, claim: dict[str, object], yields: bool) -> None:
    agent = leading_agent()
    out = agent.hear(Received("in-9", replace(ask_of("z", "z:1"), **claim)))
    assert agent.machine.is_leading != yields, what
    assert bool([one for one in sent_to("in-b", out) if isinstance(one, Redirect)]) == yields
    assert (Connect("to-2", "z:1") in out) == yields


def test_a_leader_of_nothing_gives_way_to_anybody_who_knows_of_a_round_and_founds_no_other_for_a_while() -> None:
    agent = Agent(replace(FIRST, max_nodes=1))
    agent.hear(Received("in-9", ask_of("z", round=5)))
    assert not agent.machine.is_leading
    agent.pass_time(ELDER_S - 0.1)
    assert not agent.machine.is_leading
    agent.pass_time(ELDER_S + 1.1)
    assert agent.machine.is_leading


def test_a_leader_of_nothing_does_not_give_way_to_another_run() -> None:
    agent = Agent(replace(FIRST, endpoints=("a:1", "x:1"), max_nodes=2))
    agent.hear(Answered("x:1", refused=True))
    agent.pass_time(1.0)
    assert agent.machine.is_leading
    agent.hear(Answered("x:1", leads("z", "", run_id="another", round=5)))
    assert agent.machine.is_leading


def test_a_leader_looks_for_rivals_where_none_of_its_members_listens() -> None:
    agent = leading_agent("abc", replace(FIRST, endpoints=("a:1", "b:1", "x:1")))
    asked = {one.address for one in kinds(agent.pass_time(agent.now + 0.2), AskAround)}  # type: ignore[attr-defined]
    assert asked == {"x:1"}


# Goodbyes and the end.


def test_a_leader_that_leaves_names_its_heir_and_goes() -> None:
    agent = leading_agent()
    out = agent.hear(LeaveRequested("SIGTERM"))
    for node in "bc":
        (redirect,) = [one for one in sent_to(f"in-{node}", out) if isinstance(one, Redirect)]
        assert redirect.address == "b:1"
    assert agent.machine.is_ended
    assert not agent.machine.is_leading


def test_a_leader_that_leaves_says_goodbye_to_all() -> None:
    agent = leading_agent()
    out = agent.hear(LeaveRequested("SIGTERM"))
    for node in "bc":
        assert Redirect("b:1", 1, gone="a") in sent_to(f"in-{node}", out)


def test_a_leader_that_leaves_a_spectator_makes_it_the_heir_also_if_it_is_no_deputy() -> None:
    agent = Agent(replace(FIRST, max_nodes=1, min_nodes=1))
    agent.hear(Received("in-z", join_of("z", rules=agent.machine.settings.rules)))
    out = agent.hear(LeaveRequested("SIGTERM"))
    assert [one.address for one in sent_to("in-z", out) if isinstance(one, Redirect)] == ["z:1"]


def test_a_node_whose_leader_dies_while_telling_the_end_tells_the_rest() -> None:
    agent = member_agent()
    agent.hear(WorkersStopped(2000))
    assert kinds(agent.told(ENDED), EndRun) == []
    agent.hear(Lost(agent.machine.member.conn))
    assert agent.machine.is_leading
    out = agent.hear(
        Received(
            "in-c",
            join_of(
                "c", standing=replace(agent.machine.standing, slot=2), age_s=60.0, rules=agent.machine.settings.rules
            ),
        )
    )
    assert ENDED in sent_to("in-c", out)


def test_a_farewell_ends_a_node_that_knows_how_it_ended() -> None:
    agent = member_agent()
    assert kinds(agent.told(ENDED, Farewell()), EndRun) == [EndRun(ENDED)]
    assert agent.machine.is_ended


# With a store.


def test_keys_are_read_first_and_the_key_is_taken_by_comparing() -> None:
    agent = Agent(STORED)
    assert kinds(agent.out, ReadKey) == [
        ReadKey("left"),
        ReadKey("round"),
        ReadKey("outcome"),
        ReadKey("buried"),
        ReadKey("leader"),
    ]
    out = agent.hear(KeyRead("leader", None, 0), KeyRead("round", None, 0), KeyRead("outcome", None, 0))
    assert kinds(out, WriteKey) == [WriteKey("leader", leader_record(STORED), 0, leased=True)]
    out = agent.hear(KeyWritten("leader", 9))
    assert agent.machine.leader is not None
    assert agent.machine.leader.office.term == 9
    assert Connect("to-1", SELF) in out


def test_a_round_is_written_over_the_one_that_was_read_and_no_other() -> None:
    agent = stored_agent()
    assert agent.machine.leader is not None
    assert agent.machine.leader.ending.round_revision == 40
    assert agent.machine.leader.office.roll.last.round == 7


def test_a_first_round_is_written_only_if_there_is_none() -> None:
    agent = Agent(replace(STORED, max_nodes=1))
    agent.hear(KeyRead("leader", None, 0), KeyRead("round", None, 0), KeyRead("outcome", None, 0))
    agent.hear(KeyWritten("leader", 9), StoreAnswered(0.0))
    out = [order for _ in range(4) for order in agent.hear(Ticked(), later_s=0.1)]
    (write,) = [one for one in kinds(out, WriteKey) if one.key == "round"]  # type: ignore[attr-defined]
    assert isinstance(write, WriteKey)
    assert write.expect == 0
    assert kinds(agent.hear(KeyWritten("round", 10)), StartWorkers)


@pytest.mark.parametrize(
    ("what", "event"),
    [
        ("its round was not taken", KeyWritten("round", 0)),
        ("a newer round was written", KeyRead("round", round_record(Standing("x", 12, 8, 1)), 44)),
        ("another has the key", KeyRead("leader", leader_record(replace(STORED, node="z", address="z:1")), 12)),
    ],
)
def test_a_leadership_ends_when(what: str, event: object) -> None:
    agent = stored_agent()
    before = agent.machine.leader
    agent.hear(Received("in-c", join_of("c", rules=agent.machine.settings.rules)))
    out = agent.hear(event)
    assert agent.machine.leader is not before, what
    assert [type(one) for one in sent_to("in-c", out)] == [Redirect]


def test_who_knows_the_end_stands_in_for_a_leader_that_falls_silent_before_its_farewell() -> None:
    agent = member_agent()
    agent.hear(WorkersStopped(2000))
    assert kinds(agent.told(ENDED), EndRun) == []
    agent.pass_time(agent.now + agent.machine.settings.suspect_s + 0.1)
    assert agent.machine.leader is not None
    assert agent.machine.leader.office.ended == ENDED


def test_a_strangers_answer_that_nobody_asked_for_ends_the_connection() -> None:
    agent = Agent(STORED)
    out = agent.hear(Received("in-1", Leads("run", "x", "", 0, -1, False, False)))
    assert kinds(out, Close) == [Close("in-1")]


def test_a_leader_that_has_lost_its_key_to_another_joins_it() -> None:
    out = stored_agent().hear(KeyRead("leader", leader_record(replace(STORED, node="z", address="z:1")), 12))
    assert [one.address for one in kinds(out, Connect)] == ["z:1"]  # type: ignore[attr-defined]


def test_whoever_leads_on_after_a_newer_round_was_written_knows_it_and_compares_with_it() -> None:
    agent = stored_agent()
    out = agent.hear(KeyRead("round", round_record(Standing("x", 12, 8, 1)), 44))
    assert ReadKey("leader") in out, "whoever wrote that held the key"
    assert not agent.machine.is_leading
    agent.hear(KeyRead("leader", leader_record(STORED), 13))
    assert agent.machine.leader is not None
    assert agent.machine.leader.office.term == 13
    assert agent.machine.leader.office.roll.last.round == 8
    assert agent.machine.leader.ending.round_revision == 44


def test_a_leader_that_hears_of_its_own_round_goes_on() -> None:
    agent = stored_agent()
    agent.hear(KeyRead("round", round_record(Standing("x", 9, 8, 1)), 44))
    assert agent.machine.is_leading


def test_a_leader_whose_key_is_gone_writes_it_again_without_taking_anothers() -> None:
    agent = stored_agent()
    out = agent.hear(StoreLeaseLost(), KeyRead("leader", None, 0))
    assert kinds(out, WriteKey) == []
    (write,) = [one for one in agent.pass_time(agent.now + 0.6) if isinstance(one, WriteKey)]
    assert (write.key, write.expect) == ("leader", 0)
    assert agent.machine.leader is not None
    agent.hear(KeyWritten("leader", 33))
    assert agent.machine.leader.office.term == 33, "rounds of a newer term are newer than all that others may have made"


def test_the_outcome_in_the_store_ends_an_agent_that_was_there() -> None:
    agent = Agent(STORED)
    out = agent.hear(KeyRead("outcome", outcome_record(ENDED, "x"), 50, age_s=2.0), later_s=5.0)
    assert kinds(out, EndRun) == [EndRun(ENDED)]
    late = Agent(STORED)
    assert kinds(late.hear(KeyRead("outcome", outcome_record(ENDED, "x"), 50, age_s=9.0), later_s=5.0), EndRun) == []


def test_a_run_that_ended_before_its_leader_could_say_so_is_ended_by_the_next() -> None:
    agent = Agent(replace(STORED, max_nodes=2))
    last = Standing("x", 3, 7, 1, None, 0, (Deputy("z", "z:1"),), 8)
    ended = round_record(last, outcome_record(ENDED, "x"))
    agent.machine.member.post.standing = last
    agent.hear(KeyRead("leader", None, 0), KeyRead("round", ended, 40), KeyRead("outcome", None, 0))
    agent.hear(KeyWritten("leader", 9), StoreAnswered(agent.now))
    out = agent.pass_time(agent.now + 0.1)
    assert WriteKey("outcome", outcome_record(ENDED, "x"), None) in out
    assert agent.machine.leader is not None
    assert agent.machine.leader.office.ended == ENDED


def test_who_was_not_in_a_run_that_ended_untold_begins_another() -> None:
    agent = Agent(replace(STORED, min_nodes=1, max_nodes=1))
    ended = round_record(Standing("x", 3, 7, 1), outcome_record(ENDED, "x"))
    agent.hear(KeyRead("leader", None, 0), KeyRead("round", ended, 40), KeyRead("outcome", None, 0))
    agent.hear(KeyWritten("leader", 9), StoreAnswered(agent.now))
    out = agent.pass_time(agent.now + 3.0)
    (write,) = [one for one in out if isinstance(one, WriteKey)]
    assert (write.key, write.expect) == ("round", 40)


@pytest.mark.parametrize("ran", [7, -1])
def test_a_node_of_a_run_that_another_has_followed_ends_or_if_it_only_waited_joins(ran: int) -> None:
    agent = Agent(replace(STORED, max_nodes=2))
    agent.machine.member.post.standing = Standing("x", 3, 7, 1, None, 0, (), 8, ran=ran)
    out = agent.hear(
        KeyRead("leader", leader_record(replace(STORED, node="z", address="z:1")), 12),
        KeyRead("round", round_record(Standing("y", 9, 2, 1)), 40),
        KeyRead("outcome", None, 0),
    )
    out += agent.pass_time(agent.now + 1.0)
    assert bool(kinds(out, EndRun)) == (ran >= 0)
    assert bool(kinds(out, Connect)) == (ran < 0)


def test_a_leader_that_leaves_gives_its_key_back() -> None:
    out = stored_agent().hear(LeaveRequested("SIGTERM"))
    assert WriteKey("leader", None, 9) in out
