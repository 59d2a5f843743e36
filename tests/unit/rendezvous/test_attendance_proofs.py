"""Proofs of death, and which round is the newest: what a leader believes of whom."""

from __future__ import annotations

import pytest
from hall import LAST, Hall, claimant, kinds, member_of

from planaria.base.value import replace
from planaria.rendezvous import quorum
from planaria.rendezvous.messages import Done, Ended, Stop
from planaria.rendezvous.model import Deputy, Standing

# Proofs of death.


@pytest.mark.parametrize(
    ("what", "tie_until", "heard", "decides", "counts"),
    [
        ("the store says that we lead, whoever else is here", quorum.ALWAYS, "", False, True),
        ("the store is away, and we claim", quorum.NEVER, "b", False, False),
        ("the store is away, and most hold to us", quorum.NEVER, "b", True, True),
        ("the store is away, and most did", quorum.NEVER, "", True, False),
    ],
)
def test_with_a_store_a_refusal_proves_death_to_who_cannot_have_missed_a_round(
    what: str, tie_until: float, heard: str, decides: bool, counts: bool
) -> None:
    hall = claimant(external=True)
    hall.join("b", **member_of(LAST, 1))
    if decides:
        hall.renew("ab")
        hall.look()
        assert hall.leader.office.phase == "running"
        hall.live("a" + heard, 4.5)
    else:
        hall.renew(heard)
    hall.leader.office.roll.tie_until = tie_until
    hall.refuse("c")
    assert ("c" in hall.leader.office.roll.dead) == counts, what


@pytest.mark.parametrize(
    ("what", "own", "later_s", "counts"),
    [
        ("its lease runs", {}, 0.0, True),
        ("its lease is nearly over", {}, 2.9, True),
        ("its lease is over by now", {}, 3.1, False),
        ("its lease was over when it came", {"fenced": True}, 0.0, False),
        ("its own node is not here yet", None, 0.0, False),
    ],
)
def test_a_refusal_proves_death_to_a_claimant_while_the_lease_of_its_node_runs(
    what: str, own: dict[str, object] | None, later_s: float, counts: bool
) -> None:
    hall = Hall(LAST)
    if own is not None:
        hall.join("a", **member_of(LAST, 0, **own))
    hall.now += later_s
    hall.refuse("c")
    assert ("c" in hall.leader.office.roll.dead) == counts, what


def test_a_refusal_proves_nothing_to_a_leader_without_enough_members() -> None:
    hall = Hall()
    hall.begin("abc")
    hall.live("a", 12.0)
    hall.refuse("c")
    assert "c" not in hall.leader.office.roll.dead


@pytest.mark.parametrize(
    ("what", "standing", "node", "counts"),
    [
        ("a member", replace(LAST, slot=1), "b", True),
        ("a spectator that was announced with the round", LAST, "s", True),
        ("one who learnt of the round later", LAST, "t", False),
        ("a member of the round before", replace(LAST, round=3, slot=1), "t", False),
        ("a stranger", Standing(), "t", False),
    ],
)
def test_proofs_count_from_those_without_whom_no_newer_round_could_have_begun(
    what: str, standing: Standing, node: str, counts: bool
) -> None:
    known = replace(LAST, deputies=(*LAST.deputies, Deputy("s", "s:1")))
    hall = Hall(known)
    hall.join(node, standing=standing, dead=("c",), gone=("a",))
    assert (set(hall.leader.office.roll.dead), set(hall.leader.office.roll.gone)) == (
        ({"c"}, {"a"}) if counts else (set(), set())
    ), what


def test_a_proof_is_void_for_who_is_here_and_for_who_is_none_of_the_round() -> None:
    hall = claimant()
    hall.join("c", **member_of(LAST, 2))
    hall.join("b", **member_of(LAST, 1, dead=("c", "z")))
    assert hall.leader.office.roll.dead == {}


# Which round is the newest.


def test_a_newer_round_that_may_have_started_is_taken_from_who_knows_it() -> None:
    hall = claimant()
    newer = replace(LAST, round=5, size=2, slot=1, restart_count=3, next_round=6, deputies=LAST.deputies[1:])
    hall.join("c", **member_of(newer, 1, since_ack_s=0.5))
    roll = hall.leader.office.roll
    assert (roll.last.round, roll.members, hall.leader.office.restart_count) == (5, {"b": 0, "c": 1}, 3)
    assert hall.leader.office.next_round == 6


@pytest.mark.parametrize(("ran", "newest"), [(4, 4), (5, 5)])
def test_a_newer_round_that_one_of_its_members_does_not_know_never_started_unless_another_ran_it(
    ran: int, newest: int
) -> None:
    hall = claimant()
    newer = replace(LAST, round=5, next_round=6, ran=ran)
    hall.join("c", **member_of(newer, 2))
    assert hall.leader.office.roll.last.round == newest, "a is in round 5 and was not told of it"


@pytest.mark.parametrize("number", [0, 3])
def test_a_round_that_one_of_its_members_was_never_told_of_gives_way_to_the_one_before(number: int) -> None:
    older = replace(LAST, round=number, ran=number, next_round=number + 1)
    announced = replace(LAST, round=number + 1, ran=number, next_round=number + 2)
    hall = Hall(announced)
    hall.join("c", **member_of(older, 2))
    assert hall.leader.office.roll.last.round == number
    assert hall.leader.office.next_round == number + 2, "a number is never used twice"


def test_one_that_is_not_in_the_newest_round_proves_nothing_by_not_knowing_it() -> None:
    hall = claimant()
    hall.join("x", **member_of(replace(LAST, round=3), 1))
    assert hall.leader.office.roll.last.round == 4


def test_a_member_that_remembers_nothing_does_not_make_a_round_forgotten() -> None:
    hall = claimant()
    hall.join("c")
    assert hall.leader.office.roll.last.round == 4


def test_who_is_done_while_a_deputy_claims_is_still_done_when_the_next_one_joins() -> None:
    hall = claimant()
    hall.join("b", **member_of(LAST, 1))
    hall.say("ab", Done(4))
    hall.join("c", **member_of(LAST, 2, state="done"))
    hall.renew("abc")
    hall.look()
    assert hall.leader.office.ended == Ended("done", 0, "", (), 2)


def test_a_leader_that_decides_takes_no_newer_round_from_who_comes() -> None:
    hall = Hall()
    hall.begin("ab")
    newer = replace(hall.leader.office.roll.last, term=9, round=9, next_round=10)
    told = hall.join("c", **member_of(newer, 2, dead=("b",)))
    assert Stop in kinds(told)
    assert hall.leader.office.roll.last.round == 0
    assert hall.leader.office.next_round == 1


@pytest.mark.parametrize(("bound_term", "fenced_at"), [(1, 105.4), (0, 104.5)])
def test_silence_is_counted_from_when_any_who_held_to_the_former_leader_last_heard_from_it(
    bound_term: int, fenced_at: float
) -> None:
    hall = claimant()
    hall.join("b", **member_of(LAST, 1, bound_term=bound_term, since_ack_s=0.1))
    assert hall.leader.office.roll.fenced_at("c") == pytest.approx(fenced_at)


@pytest.mark.parametrize(
    ("what", "bound_term", "floor"),
    [("it was away from us", 1, 100.0), ("it held to another", 2, 105.9), ("it comes for the first time", 0, 100.0)],
)
def test_one_that_comes_back_from_another_leader_may_have_counted_for_that_one_until_then(
    what: str, bound_term: int, floor: float
) -> None:
    hall = Hall()
    hall.begin("abc")
    roll = hall.leader.office.roll
    roll.fence_floor = 100.0
    hall.renew("abc")
    hall.now = 106.0
    hall.join("c", "again", **member_of(replace(roll.last, slot=None), 2, bound_term=bound_term, since_ack_s=0.1))
    assert roll.fence_floor == pytest.approx(floor), what


def test_one_that_held_to_another_leader_of_the_same_term_is_told_by_that_we_never_heard_of_it() -> None:
    hall = Hall()
    hall.begin("ab")
    hall.now = 106.0
    hall.join("c", **member_of(replace(hall.leader.office.roll.last, slot=None), 2, bound_term=1, since_ack_s=0.1))
    assert hall.leader.office.roll.fence_floor == pytest.approx(105.9)
