"""What a store has forgotten, and what a leader that has gone took along: how others know it all the same."""

from __future__ import annotations

import pytest
from court import join_of
from lone_member import joined, place, told
from rendezvous_agent import DEPUTIES, ENDED, NOTHING_THERE, STORED, Agent, kinds, sent_to

from planaria.base.value import replace
from planaria.rendezvous import placing, testimony
from planaria.rendezvous.claim import Claim
from planaria.rendezvous.farewell import LONGEST_LEFT, Farewell
from planaria.rendezvous.keys import left_record, outcome_record, round_record
from planaria.rendezvous.messages import Placed, Redirect
from planaria.rendezvous.model import (
    EndRun,
    KeyRead,
    KeyWritten,
    ReadKey,
    Received,
    Say,
    Standing,
    StartWorkers,
    StoreAnswered,
    Ticked,
    WorkersDone,
    WorkersStopped,
    WriteKey,
)
from planaria.rendezvous.office import term_above
from planaria.rendezvous.ranks import Candidate
from planaria.rendezvous.roll import Roll

LAST = Standing("x", 3, 7, 3, None, 0, DEPUTIES, 8, begun=7)
NEXT = replace(LAST, term=4, round=8, next_round=9)
"""A round that was announced after it."""


def leader_with(own: Standing, *keys: KeyRead) -> Agent:
    """Return an agent that knew a round, found these keys in the store and wrote the leader key."""
    agent = Agent(STORED)
    agent.machine.member.post.standing = own
    agent.hear(*keys)
    agent.pass_time(agent.now + 2.0)
    agent.hear(KeyWritten("leader", 9), StoreAnswered(agent.now))
    assert agent.machine.leader is not None
    return agent


# What a store that was emptied says.


def test_what_was_read_in_a_store_is_not_forgotten_with_it() -> None:
    claim = Claim(STORED)
    claim.heard(KeyRead("round", round_record(LAST), 40), 0.0)
    claim.heard(KeyRead("round", None, 0), 1.0)
    assert claim.newest() == LAST
    assert claim.round_revision == 0
    assert not claim.has_round


def test_a_store_that_does_not_know_the_newest_round_cannot_say_that_all_have_left_it() -> None:
    claim = Claim(STORED)
    names = frozenset((LAST.term, LAST.round, one.node) for one in DEPUTIES)
    text = left_record(replace(Farewell().left, epoch="x", names=names))
    claim.heard(KeyRead("round", round_record(LAST), 40), 0.0)
    claim.heard(KeyRead("left", text, 41), 0.0)
    assert claim.is_vacated(LAST)
    claim.heard(KeyRead("round", None, 0), 1.0)
    assert not claim.is_vacated(LAST)


@pytest.mark.parametrize(
    ("what", "own", "claims"),
    [
        ("it has run the round", replace(LAST, slot=1, ran=7), 7),
        ("it was told of it while it ran", LAST, 7),
        ("it was told of the next one, and that one has run before", replace(NEXT, slot=1), 8),
        ("it was told of a first round that may never have started", replace(NEXT, begun=-1), -1),
        ("it knows of none", Standing(), -1),
    ],
)
def test_an_empty_store_lets_nobody_forget_a_round_that_has_started(what: str, own: Standing, claims: int) -> None:
    office = leader_with(own, *NOTHING_THERE).machine.leader.office  # type: ignore[union-attr]
    assert office.roll.last.round == claims, what
    assert office.established == (claims < 0), what


def test_the_key_of_an_empty_store_makes_no_majority_of_half() -> None:
    two = replace(LAST, size=2, slot=0, ran=7, home=0)
    agent = leader_with(two, *NOTHING_THERE)
    assert agent.machine.leader is not None
    agent.pass_time(agent.now + 30.0)
    assert not agent.machine.leader.office.established
    known = leader_with(two, KeyRead("leader", None, 0), KeyRead("round", round_record(two), 40), NOTHING_THERE[2])
    known.pass_time(known.now + 1.0)
    assert known.machine.leader is not None
    assert known.machine.leader.office.established


def founder(max_nodes: int = 3) -> Agent:
    agent = Agent(replace(STORED, max_nodes=max_nodes))
    agent.hear(*NOTHING_THERE)
    agent.hear(KeyWritten("leader", 9), StoreAnswered(0.0), Ticked())
    return agent


@pytest.mark.parametrize("is_making", [False, True])
def test_one_that_is_about_to_begin_a_run_goes_on_with_the_one_it_hears_of(is_making: bool) -> None:
    agent = founder(2 if is_making else 3)
    rules = agent.machine.settings.rules
    if is_making:
        agent.hear(Received("in-d", join_of("d", rules=rules)))
        agent.pass_time(1.0)
    assert agent.machine.leader is not None
    office = agent.machine.leader.office
    assert office.is_making == is_making
    mine = replace(LAST, term=500, slot=1, home=1, ran=7)
    agent.hear(Received("in-b", join_of("b", rules=rules, standing=mine, bound_term=500, since_ack_s=1.0)))
    assert (office.phase, office.epoch, office.roll.last.round) == ("claiming", "x", 7)
    assert office.term > 500, "a store that was set up anew counts from the beginning"
    out = agent.hear(*([Received("in-d", Placed(0))] if is_making else []), KeyWritten("round", 10), Ticked())
    assert kinds(out, StartWorkers) == []


def test_one_that_is_about_to_begin_a_run_minds_no_round_that_was_only_announced() -> None:
    agent = founder()
    told_of = replace(LAST, epoch="y", slot=1, begun=-1)
    agent.hear(Received("in-b", join_of("b", rules=agent.machine.settings.rules, standing=told_of)))
    assert agent.machine.leader is not None
    office = agent.machine.leader.office
    assert (office.phase, office.next_round) == ("gathering", 0)


def test_one_of_a_run_that_is_over_is_sent_to_read_how_it_ended() -> None:
    ended = round_record(LAST, outcome_record(ENDED, "x"))
    agent = leader_with(Standing(), KeyRead("leader", None, 0), KeyRead("round", ended, 40), NOTHING_THERE[2])
    late = join_of("b", rules=agent.machine.settings.rules, standing=replace(LAST, slot=1, ran=7))
    out = agent.hear(Received("in-b", late))
    assert sent_to("in-b", out) == [Redirect("", 0)]


def test_the_round_that_runs_is_written_again_by_one_that_more_than_half_hold_to() -> None:
    agent = founder(1)
    agent.pass_time(3.0)
    agent.hear(KeyWritten("round", 10), StoreAnswered(3.0), Ticked())
    assert agent.machine.standing.ran == 0
    out = agent.hear(KeyRead("round", None, 0))
    (order,) = [one for one in out if isinstance(one, WriteKey)]
    assert (order.key, order.expect) == ("round", 0)
    assert kinds(agent.hear(StoreAnswered(agent.now)), WriteKey) == [], "once is enough"
    agent.hear(KeyWritten("round", 2))
    assert kinds(agent.hear(StoreAnswered(agent.now)), WriteKey) == []


@pytest.mark.parametrize(("revision", "known", "term"), [(9, 3, 9), (9, 9, 9), (2, 500, 502)])
def test_a_term_is_above_those_that_were(revision: int, known: int, term: int) -> None:
    assert term_above(revision, known) == term


# A run that is over.


@pytest.mark.parametrize(
    ("what", "own", "told_in"),
    [
        ("it was told of a round before that one", Standing("y", 2, 0, 2, 1), "round"),
        ("the same, and the outcome is there", Standing("y", 2, 0, 2, 1), "outcome"),
        ("it was told of a round after that", Standing("y", 5, 0, 2, 1), ""),
    ],
)
def test_one_that_was_there_before_a_run_ended_does_not_begin_it_again(what: str, own: Standing, told_in: str) -> None:
    record = outcome_record(ENDED, "x")
    agent = Agent(STORED)
    agent.machine.member.post.standing = own
    marked = round_record(LAST, "" if told_in == "outcome" else record)
    outcome = KeyRead("outcome", record, 50, age_s=1.0) if told_in == "outcome" else NOTHING_THERE[2]
    out = agent.hear(outcome, KeyRead("round", marked, 40), KeyRead("leader", None, 0))
    assert kinds(out, EndRun) == ([EndRun(ENDED)] if told_in else []), what


# Rounds of many nodes, whose records name a few.


def roll_of_many() -> Roll:
    few = replace(LAST, size=20)
    return Roll(replace(STORED, max_nodes=20), few, {}, 0.0)


@pytest.mark.parametrize(
    ("what", "known", "counts"),
    [
        ("it ran it, and was told of the next", replace(NEXT, slot=12, home=12, ran=7), True),
        ("it was told of the next, and ran another", replace(NEXT, slot=12, home=12, ran=6), False),
        ("it is of another run", replace(NEXT, epoch="y", slot=12, home=12, ran=7), False),
        ("it looks on", replace(LAST, slot=None), False),
    ],
)
def test_one_that_was_told_of_the_next_round_is_still_a_member_of_its_last(
    what: str, known: Standing, counts: bool
) -> None:
    roll = roll_of_many()
    roll.enter(join_of("m", standing=known))
    assert (roll.members.get("m") == 12) == counts, what


@pytest.mark.parametrize(
    ("what", "known", "announced", "proves"),
    [
        ("it was in the round before, and all of that are in", {"ran": 7}, {"keeps": True}, True),
        ("it is one of those who are not", {"ran": 7}, {"keeps": True, "without": ("m",)}, False),
        ("nobody knows who is in", {"ran": 7}, {}, False),
        ("it was in another round", {"ran": 6}, {"keeps": True}, False),
        ("it was told", {"ran": 7, "round": 8, "term": 4}, {"keeps": True}, False),
    ],
)
def test_a_member_that_no_record_names_proves_that_a_round_never_started(
    what: str, known: dict[str, object], announced: dict[str, object], proves: bool
) -> None:
    join = join_of("m", standing=replace(LAST, slot=12, home=12, **known))
    assert testimony._shows_no_start(join, replace(NEXT, size=20, **announced)) == proves, what


def test_a_round_says_who_of_the_one_before_is_not_in_it() -> None:
    assert placing.without("abcd", [Candidate(node, 1, "default") for node in "bdx"]) == ("a", "c")


def test_one_that_never_heard_that_its_round_started_learns_it_with_the_next() -> None:
    member = joined()
    told(member, 1.0, place(4, slot=1))
    assert member.post.standing.ran == -1
    told(member, 2.0, place(5, slot=0, begun=4, in_base=True))
    assert (member.post.standing.ran, member.post.standing.home) == (4, 1)
    told(member, 3.0, place(0, slot=0, epoch="other", begun=-1))
    assert (member.post.standing.ran, member.post.standing.home) == (-1, None)


@pytest.mark.parametrize("changes", [{"begun": 3, "in_base": True}, {"begun": 4, "in_base": False}])
def test_one_that_was_not_in_the_round_that_started_learns_nothing(changes: dict[str, object]) -> None:
    member = joined()
    told(member, 1.0, place(4, slot=1))
    told(member, 2.0, place(5, slot=0, **changes))
    assert member.post.standing.ran == -1


# Words that do not fit.


def test_what_a_store_would_not_take_is_not_written_and_said_once() -> None:
    farewell = Farewell()
    nodes = {f"a-host-with-a-rather-long-name-{number}" for number in range(2000)}
    large = replace(LAST, size=len(nodes))
    (line,) = farewell.begin(nodes, [(large, nodes)], large)
    assert isinstance(line, Say)
    assert not farewell.is_under_way
    assert farewell.go_on(large) == []


def test_what_just_fits_is_written() -> None:
    nodes = {f"n{number}" for number in range(2000)}
    large = replace(LAST, size=len(nodes))
    (order,) = Farewell().begin(nodes, [(large, nodes)], large)
    assert isinstance(order, WriteKey)
    assert order.value is not None
    assert len(order.value) <= LONGEST_LEFT


# An end that a store has forgotten.


def ended_agent() -> Agent:
    """Return an agent that leads a round of its own, which is done; the store has not marked it yet."""
    agent = founder(1)
    agent.pass_time(3.0)
    agent.hear(KeyWritten("round", 10), StoreAnswered(3.0), Ticked())
    agent.hear(WorkersStopped(2000), WorkersDone(), Ticked())
    assert agent.machine.leader is not None
    assert agent.machine.leader.office.ended == ENDED
    return agent


def test_an_end_is_marked_in_a_store_that_was_emptied_meanwhile() -> None:
    agent = ended_agent()
    assert ReadKey("round") in agent.hear(KeyWritten("round", 0)), "somebody came first, or nobody did"
    out = agent.hear(KeyRead("round", None, 0))
    (order,) = [one for one in out if isinstance(one, WriteKey)]
    assert (order.key, order.expect) == ("round", 0)
    assert agent.machine.is_leading


def test_an_end_that_another_round_came_before_is_given_up() -> None:
    agent = ended_agent()
    agent.hear(KeyWritten("round", 0))
    epoch = agent.machine.standing.epoch
    agent.hear(KeyRead("round", round_record(replace(LAST, epoch=epoch, term=12)), 60))
    assert not agent.machine.is_leading


def reminding_agent(max_nodes: int = 1) -> Agent:
    """Return an agent that leads a round of its own, and writes it again into a store that was emptied."""
    agent = founder(max_nodes)
    agent.pass_time(3.0)
    agent.hear(KeyWritten("round", 10), StoreAnswered(3.0), Ticked())
    assert kinds(agent.hear(KeyRead("round", None, 0)), WriteKey)
    return agent


def test_a_round_that_ends_while_it_is_written_again_is_marked_after_that() -> None:
    agent = reminding_agent()
    assert kinds(agent.hear(WorkersStopped(2000), WorkersDone(), Ticked()), WriteKey) == [], (
        "what is under way may land"
    )
    (mark,) = kinds(agent.hear(KeyWritten("round", 2)), WriteKey)
    assert isinstance(mark, WriteKey)
    assert (mark.key, mark.expect) == ("round", 2)
    (told,) = kinds(agent.hear(KeyWritten("round", 3)), WriteKey)
    assert isinstance(told, WriteKey)
    assert told.key == "outcome"


def test_a_round_that_another_wrote_meanwhile_was_not_written_again() -> None:
    agent = reminding_agent()
    agent.hear(WorkersStopped(2000), WorkersDone(), Ticked())
    assert ReadKey("round") in agent.hear(KeyWritten("round", 0))
    assert kinds(agent.hear(KeyRead("round", None, 0)), WriteKey)
    assert kinds(agent.hear(KeyWritten("round", 3)), Say) == []


def test_the_next_round_is_not_written_while_the_last_one_is_written_again() -> None:
    agent = reminding_agent(2)
    agent.hear(Received("in-b", join_of("b", rules=agent.machine.settings.rules)))
    assert kinds(agent.pass_time(agent.now + 1.0), WriteKey) == []
    assert agent.machine.leader is not None
    assert agent.machine.leader.office.phase == "placing"
    (order,) = kinds(agent.hear(Received("in-b", Placed(1)), KeyWritten("round", 2), Ticked()), WriteKey)
    assert isinstance(order, WriteKey)
    assert (order.key, order.expect) == ("round", 2)


@pytest.mark.parametrize(
    ("what", "epoch", "marks"), [("it is ours, written again", "a", True), ("it is of another run", "z", False)]
)
def test_an_end_is_marked_in_a_round_that_another_has_written_again(what: str, epoch: str, marks: bool) -> None:
    agent = ended_agent()
    agent.hear(KeyWritten("round", 0))
    record = round_record(replace(agent.machine.standing, epoch=epoch, term=agent.machine.standing.term - 1))
    orders = [one for one in agent.hear(KeyRead("round", record, 60)) if isinstance(one, WriteKey)]
    assert [(one.key, one.expect) for one in orders] == ([("round", 60)] if marks else []), what
    assert agent.machine.is_leading
    assert kinds(agent.hear(KeyRead("round", record, 60)), WriteKey) == [], "once is enough"


@pytest.mark.parametrize(("kind", "written"), [("done", "round"), ("stopped", "outcome")])
def test_an_end_gives_way_to_another_that_the_store_has(kind: str, written: str) -> None:
    agent = ended_agent()
    agent.hear(KeyWritten("round", 0))
    last = agent.machine.standing
    other = outcome_record(replace(ENDED, kind=kind), last.epoch)
    out = agent.hear(KeyRead("round", round_record(replace(last, term=last.term - 1), other), 60), Ticked())
    assert [one.key for one in out if isinstance(one, WriteKey)] == [written], "only our own is marked again"
    assert agent.machine.leader is not None
    assert agent.machine.leader.office.ended == replace(ENDED, kind=kind)
