"""A node that may have made somebody the leader, and lost it without a word, holds to no other of that term or an older one."""

from __future__ import annotations

import pytest
from lone_member import LEADER, OWN, SILENCE_S, joined, running, sent, taken
from rendezvous_agent import SECOND, Agent, ask_of, goes_to, leading_agent, leads, member_agent, sent_to

from planaria.base.value import replace
from planaria.rendezvous.member import Member
from planaria.rendezvous.messages import Done, Leads, Redirect, Renew, Welcome
from planaria.rendezvous.model import (
    SELF,
    Answered,
    AskAround,
    Connect,
    Held,
    Lost,
    Opened,
    Received,
    Standing,
    Ticked,
    WorkersDone,
)
from planaria.rendezvous.office import Office


def held_to(term: int, member: Member, address: str = "c:1") -> Member:
    """Return the node when another leader has taken it in, and has its vote."""
    member.join(address, 1.0)
    member.opened(1.0)
    member.received(Welcome(term, "c"), 1.0)
    assert member.phase == "joined"
    assert Renew in [type(one) for one in sent(member)]
    return member


@pytest.mark.parametrize(
    ("term", "node", "phase"),
    [(1, "a", "seeking"), (2, "a", "seeking"), (3, "a", "seeking"), (3, "c", "joined"), (4, "a", "joined")],
)
def test_after_a_leader_was_lost_no_other_of_its_term_or_an_older_one_gets_a_vote(
    term: int, node: str, phase: str
) -> None:
    member = held_to(3, running())
    member.seek()
    member.join(LEADER, 2.0)
    member.opened(2.0)
    taken(member)
    member.received(Welcome(term, node), 2.0)
    assert member.phase == phase
    assert (Renew in [type(one) for one in sent(member)]) == (phase == "joined")


def test_one_that_leads_no_more_lets_its_members_go_and_they_may_go_back() -> None:
    member = held_to(3, running())
    member.received(Redirect(LEADER, 1), 2.0)
    assert taken(member)[-1] == Connect("to-3", LEADER)
    member.opened(2.0)
    member.received(Welcome(1, "a"), 2.0)
    assert member.phase == "joined"


def test_one_that_lets_its_members_go_does_not_let_them_go_for_another() -> None:
    member = held_to(3, running())
    member.seek()
    held_to(4, member, "d:1")
    member.received(Redirect(LEADER, 1), 2.0)
    assert member.phase == "seeking"
    assert not member.is_appointed
    assert Connect not in [type(one) for one in taken(member)]


def test_whoever_takes_no_part_in_a_round_owes_nobody_anything() -> None:
    member = held_to_nothing(Member(OWN, 0.0))
    member.seek()
    assert member.may_follow(1)


def held_to_nothing(member: Member) -> Member:
    """Return the node when a leader without a round has taken it in."""
    member.join("c:1", 1.0)
    member.opened(1.0)
    member.received(Welcome(3, "c"), 1.0)
    return member


def test_with_a_store_it_is_the_store_that_says_who_leads() -> None:
    member = held_to(3, running(settings=replace(OWN, external=True)))
    member.seek()
    assert member.may_follow(1)


def test_its_own_leadership_is_given_up_for_good() -> None:
    member = joined(address=SELF)
    member.seek()
    assert member.pledge == 0


def lost_voter(later_s: float = 0.0) -> Agent:
    """Return an agent that lost a leader of term 3 without a word, so long after it had last heard from it."""
    agent = member_agent(replace(SECOND, max_nodes=3))
    agent.loses_leader()
    agent.machine.member.join("c:1", agent.now)
    agent.hear(Opened(agent.machine.member.conn))
    agent.told(Welcome(3, "c"))
    agent.loses_leader(later_s)
    return agent


def candidate() -> Agent:
    """Return such an agent when it has found nobody who leads in that term or a later one."""
    agent = lost_voter()
    agent.hear(Answered("a:1", leads("a", "a:1", valid=True, round=0)), Answered("c:1"))
    assert agent.machine.is_leading
    return agent


@pytest.mark.parametrize(
    ("what", "node", "term", "number", "valid", "follows"),
    [
        ("it led before, and has not begun another round", "a", 1, 0, True, False),
        ("it has: so it waited until nobody else could lead this one", "a", 1, 1, True, True),
        ("it only claims to", "a", 1, 1, False, False),
        ("it is of the term of the one that was lost", "a", 3, 0, True, False),
        ("it is the one that was lost", "c", 3, 0, True, True),
    ],
)
def test_a_candidate_gives_way_to_an_older_term_only_if_that_has_begun_another_round(
    what: str, node: str, term: int, number: int, valid: bool, follows: bool
) -> None:
    agent, address = candidate(), f"{node}:1"
    out = agent.hear(Answered(address, leads(node, address, term=term, valid=valid, round=number)))
    assert (goes_to(out) == [address]) == follows, what
    assert agent.machine.is_leading != follows
    if follows:
        agent.hear(Opened(agent.machine.member.conn))
        agent.told(Welcome(term, node))
        assert agent.machine.member.phase == "joined"


def test_one_that_seeks_passes_by_another_leader_of_the_term_of_the_one_it_lost() -> None:
    agent = lost_voter()
    out = agent.hear(Answered("a:1", leads("a", "a:1", term=3, valid=True, round=0)))
    assert goes_to(out) == []
    out = agent.hear(Answered("c:1", leads("c", "c:1", term=3, round=0)))
    assert goes_to(out) == ["c:1"]


@pytest.mark.parametrize(
    ("what", "number", "valid", "follows"),
    [
        ("it has begun no other round", 0, True, False),
        ("it has", 1, True, True),
        ("it claims to, and may not lead", 1, False, False),
    ],
)
@pytest.mark.parametrize("asks", [False, True])
def test_one_that_seeks_goes_to_an_older_term_only_if_that_has_begun_another_round(
    what: str, number: int, valid: bool, follows: bool, asks: bool
) -> None:
    agent = member_agent(replace(SECOND, max_nodes=3), term=3)
    agent.loses_leader()
    if asks:
        event = Received("in-9", ask_of("c", "c:1", term=2, round=number, valid=valid))
    else:
        event = Answered("c:1", leads("c", "c:1", term=2, round=number, valid=valid))
    assert goes_to(agent.hear(event)) == (["c:1"] if follows else []), what
    if follows:
        agent.hear(Opened(agent.machine.member.conn))
        agent.told(Welcome(2, "c"))
        assert agent.machine.member.phase == "joined"


@pytest.mark.parametrize(
    ("what", "standing", "began"),
    [
        ("none at all", Standing(), -1),
        ("it ran", Standing("x", 1, 4, 2, 0, 0, (), 5, ran=4, begun=4), 4),
        ("another was announced", Standing("x", 1, 4, 2, 0, 0, (), 5, ran=3, begun=3), 3),
        ("the first was announced", Standing("x", 1, 0, 2, 0, 0, (), 1), 0),
    ],
)
def test_a_leader_names_the_round_that_began(what: str, standing: Standing, began: int) -> None:
    office = Office(SECOND, 0.0, term=2, standing=standing, held=Held(0.0, 0.0))
    assert office.begun_round == began, what
    office.roll.is_started = True
    assert office.begun_round == standing.round


def test_a_vote_lapses_when_nobody_can_have_counted_on_it_for_a_lease() -> None:
    member = held_to(3, running())
    assert member.lapsed_vote(100.0) == 0, "it still holds to that one"
    member.seek()
    assert member.lapsed_vote(1.0 + 2 * SILENCE_S - 0.1) == 0
    assert member.lapsed_vote(1.0 + 2 * SILENCE_S) > 0


def test_whoever_owes_nobody_anything_has_no_vote_that_lapses() -> None:
    member = joined()
    member.seek()
    assert member.lapsed_vote(100.0) == 0


LATER_S = 2 * SILENCE_S + 1.0


@pytest.mark.parametrize(
    ("what", "later_s", "shift", "number", "follows"),
    [
        ("it was valid when the vote had lapsed", LATER_S, 0, 1, True),
        ("it was asked before we went to another", LATER_S, -1, 1, False),
        ("the vote has not lapsed", 1.0, 0, 1, False),
        ("we know of a round that it has not thought of", LATER_S, 0, 0, False),
    ],
)
def test_a_lapsed_vote_keeps_nobody_from_a_valid_leader_that_was_asked_since(
    what: str, later_s: float, shift: int, number: int, follows: bool
) -> None:
    agent = candidate()
    out = agent.pass_time(agent.now + later_s)
    votes = {one.ask.vote for one in out if isinstance(one, AskAround)}
    assert (max(votes) > 0) == (later_s == LATER_S)
    vote = (max(votes) or 1) + shift
    out = agent.hear(Answered("a:1", leads("a", "a:1", valid=True, round=number, vote=vote)))
    assert (goes_to(out) == ["a:1"]) == follows, what


@pytest.mark.parametrize(
    ("what", "shift", "follows"), [("since we seek", 0, True), ("before we went to another", -1, False)]
)
def test_one_that_seeks_goes_to_a_leader_that_was_asked_with_its_vote_since(
    what: str, shift: int, follows: bool
) -> None:
    agent = lost_voter(LATER_S)
    (vote,) = {one.ask.vote for one in agent.out if isinstance(one, AskAround)}
    assert vote > 0
    out = agent.hear(Answered("a:1", leads("a", "a:1", valid=True, round=1, vote=vote + shift)))
    assert goes_to(out) == (["a:1"] if follows else []), what


def test_a_leader_that_others_name_is_asked_with_the_vote_too() -> None:
    agent = candidate()
    agent.pass_time(agent.now + LATER_S)
    out = agent.hear(Answered("c:1", leads("c", "d:1", round=0)))
    (vote,) = {one.ask.vote for one in out if isinstance(one, AskAround) and one.address == "d:1"}
    assert vote == agent.machine.member.lapsed_vote(agent.now) > 0


@pytest.mark.parametrize(("what", "later_s", "vote"), [("it is valid", 0.0, 0), ("it has no majority", LATER_S, 7)])
def test_a_valid_leader_asks_without_a_vote(what: str, later_s: float, vote: int) -> None:
    agent = leading_agent()
    assert agent.machine.leader is not None
    assert agent.machine.leader.office.ask(agent.now + later_s, 7).vote == vote, what


def test_one_that_seeks_goes_to_a_leader_of_a_newer_round_that_has_a_vote_of_its_own() -> None:
    other = leading_agent()
    assert other.machine.leader is not None
    ask = replace(other.machine.leader.office.ask(other.now, 7), round=1)
    assert goes_to(lost_voter().hear(Received("in-9", ask))) == ["a:1"]


@pytest.mark.parametrize("nodes", ["a", "ab", "abc"])
def test_a_leader_that_is_asked_without_a_vote_names_the_round_that_runs(nodes: str) -> None:
    agent = leading_agent(nodes)
    (said,) = sent_to("in-9", agent.hear(Received("in-9", ask_of("z", round=0))))
    assert isinstance(said, Leads)
    assert (said.valid, said.round) == (True, 0), "its own node is enough to know an end, and there is none"


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize(
    ("what", "nodes", "vote", "number"),
    [("it is valid", "abc", 7, 1), ("nobody asks with a vote", "abc", 0, 0), ("it has no majority", "a", 7, 0)],
)
def test_a_leader_that_is_asked_with_a_vote_names_its_next_round(
    what: str, nodes: str, vote: int, number: int, ends: bool
) -> None:
    agent = leading_agent()
    assert agent.machine.leader is not None
    if ends:
        agent.hear(Received("in-b", Done(0)), Received("in-c", Done(0)), WorkersDone(), Ticked())
    assert (agent.machine.leader.office.ended is not None) == ends
    if nodes == "a":
        agent.hear(Lost("in-b"), Lost("in-c"))
        agent.pass_time(agent.now + LATER_S)
    (said,) = sent_to("in-9", agent.hear(Received("in-9", ask_of("z", round=0, vote=vote))))
    assert isinstance(said, Leads)
    assert (said.round, said.vote) == (number, vote if number else 0), what
