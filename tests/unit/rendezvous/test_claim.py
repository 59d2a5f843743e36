"""The leader key: whose it is, when it may be taken, and that nothing is ever written over what one has not read."""

from __future__ import annotations

import pytest

from planaria.base.value import replace
from planaria.rendezvous.claim import ASK_S, Claim, Order
from planaria.rendezvous.keys import leader_record, outcome_record, round_record
from planaria.rendezvous.messages import Ask, Ended, Leads
from planaria.rendezvous.model import (
    Answered,
    AskAround,
    Deputy,
    KeyRead,
    KeyWritten,
    ReadKey,
    Say,
    Settings,
    Standing,
    StoreAnswered,
    StoreLeaseLost,
    StoreTrouble,
    WriteKey,
)

OWN = Settings("a", "host-a", "a:1", 1, run_id="run", external=True, ttl_s=5.0)
OTHER = replace(OWN, node="b", host="host-b", address="b:1")
ASK = Ask("run", "a", "", 0, -1, valid=False)
ROUND = Standing("b", 3, 7, 2, None, 1, (Deputy("b", "b:1"), Deputy("c", "c:1")), 8, begun=7)
ALWAYS = float("inf")


def knowing(
    leader: str | None = None, revision: int = 0, *, last: Standing | None = None, outcome: str | None = None
) -> Claim:
    """Return a claim that has read all three keys."""
    claim = Claim(OWN)
    claim.heard(KeyRead("leader", leader, revision), 0.0)
    text = round_record(last) if last is not None else None
    claim.heard(KeyRead("round", text, 40 if last is not None else 0), 0.0)
    claim.heard(KeyRead("outcome", outcome, 50 if outcome is not None else 0), 0.0)
    return claim


def writes(order: Order) -> list[WriteKey]:
    return [one for one in order.effects if isinstance(one, WriteKey)]


def claims(expect: int) -> WriteKey:
    return WriteKey("leader", leader_record(OWN), expect, leased=True)


def leads(node: str, address: str, **changes: object) -> Leads:
    return replace(Leads("run", node, address, 3, 7, valid=False, seeking=False), **changes)


def test_all_keys_are_asked_for() -> None:
    asked = [ReadKey(key) for key in ("left", "round", "outcome", "buried", "leader")]
    assert Claim(OWN).begin(0.0) == asked


def test_nothing_is_decided_before_all_keys_are_read() -> None:
    claim = Claim(OWN)
    for key in ("leader", "round"):
        claim.heard(KeyRead(key, None, 0), 0.0)
        assert claim.decide(ASK, 0.0) == Order()
    claim.heard(KeyRead("outcome", None, 0), 0.0)
    assert claim.decide(ASK, 0.0) != Order()


def test_an_empty_seat_is_taken_only_if_it_is_still_empty_and_hangs_on_a_lease() -> None:
    assert knowing().decide(ASK, 0.0).effects == (claims(0),)


def test_nothing_is_written_twice_while_the_store_has_not_answered() -> None:
    claim = knowing()
    claim.decide(ASK, 0.0)
    assert claim.decide(ASK, 9.0) == Order()


def test_the_revision_of_the_key_is_the_term() -> None:
    claim = knowing(last=replace(ROUND, deputies=()))
    claim.heard(KeyWritten("leader", 41), 0.0)
    assert claim.decide(ASK, 0.0).lead == (41, replace(ROUND, deputies=()))
    assert claim.round_revision == 40


def test_a_leader_that_the_store_names_is_joined() -> None:
    assert knowing(leader_record(OTHER), 9).decide(ASK, 0.0) == Order(join="b:1")


def test_a_leader_that_refuses_twice_is_overwritten_if_its_key_is_still_the_one_we_read() -> None:
    claim = knowing(leader_record(OTHER), 9)
    assert claim.decide(ASK, 10.0).join == "b:1"
    claim.refused("b:1", 10.0)
    assert claim.decide(ASK, 10.25) == Order()
    assert claim.decide(ASK, 10.5) == Order(join="b:1")
    claim.refused("b:1", 10.5)
    assert claim.decide(ASK, 10.75) == Order()
    assert claim.decide(ASK, 11.0).effects == (claims(9),)


def test_a_second_refusal_as_soon_as_the_claim_asked_for_it_is_proof() -> None:
    claim = knowing(leader_record(OTHER), 9)
    claim.decide(ASK, 10.0)
    claim.refused("b:1", 10.0)
    again = claim.wakes_at()
    assert claim.decide(ASK, again) == Order(join="b:1")
    claim.refused("b:1", again)
    assert claim.decide(ASK, claim.wakes_at()).effects == (claims(9),)


def test_another_leader_in_the_meantime_is_joined_and_not_overwritten() -> None:
    claim = knowing(leader_record(OTHER), 9)
    claim.decide(ASK, 10.0)
    claim.refused("b:1", 10.0)
    claim.heard(KeyRead("leader", leader_record(replace(OTHER, node="c", address="c:1")), 11), 10.1)
    for now in (10.2, 10.5, 11.0, 12.0):
        order = claim.decide(ASK, now)
        assert not writes(order)
        assert order.join in (None, "c:1")


def test_one_refusal_is_no_proof() -> None:
    claim = knowing(leader_record(OTHER), 9)
    claim.decide(ASK, 10.0)
    claim.refused("b:1", 10.0)
    assert claim.decide(ASK, 10.5).join == "b:1"
    assert not writes(claim.decide(ASK, 12.5))  # nobody refused: the connection timed out


def test_a_refusal_is_forgotten_when_somebody_listens() -> None:
    claim = knowing(leader_record(OTHER), 9)
    claim.decide(ASK, 10.0)
    claim.refused("b:1", 10.0)
    assert claim.decide(ASK, 10.5).join == "b:1"
    claim.not_refused()
    claim.refused("b:1", 3600.0)
    assert claim.decide(ASK, 3600.5) == Order(join="b:1")


def test_a_store_that_does_not_answer_is_said_once() -> None:
    claim = Claim(OWN)
    claim.begin(10.0)
    assert claim.decide(ASK, 15.0) == Order()
    assert claim.wakes_at() == 16.0
    (said,) = claim.decide(ASK, 16.0).effects
    assert isinstance(said, Say)
    assert claim.decide(ASK, 20.0) == Order()


def test_a_store_that_says_why_it_does_not_answer_is_not_said_to_be_silent() -> None:
    claim = Claim(OWN)
    claim.begin(10.0)
    claim.heard(StoreTrouble("Connection refused"), 14.0)
    assert claim.decide(ASK, 16.0) == Order()
    assert claim.wakes_at() == ALWAYS


def test_a_store_that_has_answered_is_not_said_to_be_silent() -> None:
    claim = knowing(leader_record(OTHER), 9)
    claim.begin(10.0)
    assert claim.wakes_at() == ALWAYS
    assert claim.decide(ASK, 100.0) == Order(join="b:1")


@pytest.mark.parametrize("leader", [None, leader_record(OTHER)])
def test_a_store_that_answers_at_once_costs_no_wait(leader: str | None) -> None:
    claim = Claim(OWN)
    claim.begin(10.0)
    for key, value in (("leader", leader), ("round", None), ("outcome", None)):
        claim.heard(KeyRead(key, value, 9 if value else 0), 10.1)
    order = claim.decide(ASK, 10.1)
    assert order == (Order((claims(0),)) if leader is None else Order(join="b:1"))


def test_a_lost_race_is_not_believed_to_be_won() -> None:
    claim = knowing()
    claim.decide(ASK, 0.0)
    claim.heard(KeyWritten("leader", 0), 0.1)
    claim.heard(KeyRead("leader", leader_record(OTHER), 9), 0.2)
    assert claim.held_until() == -ALWAYS
    assert claim.wakes_at() == pytest.approx(0.6)
    assert claim.decide(ASK, 0.6) == Order(join="b:1")


def test_a_lost_race_is_not_run_again_at_once() -> None:
    claim = knowing()
    claim.decide(ASK, 0.0)
    claim.heard(KeyWritten("leader", 0), 0.1)
    assert claim.decide(ASK, 0.1) == Order()
    assert claim.decide(ASK, 0.6).effects == (claims(0),)


# A seat that is empty while a round may still run.


def test_deputies_are_asked_before_an_empty_seat_is_taken() -> None:
    claim = knowing(last=ROUND)
    assert claim.decide(ASK, 10.0).effects == (AskAround("b:1", ASK), AskAround("c:1", ASK))
    assert claim.wakes_at() == 10.0 + ASK_S
    claim.answered(Answered("b:1", refused=True))
    assert claim.decide(ASK, 10.1) == Order()
    claim.answered(Answered("c:1", leads("c", "")))
    assert claim.decide(ASK, 10.2).effects == (claims(0),)


def test_deputies_of_the_first_round_are_asked_too() -> None:
    claim = knowing(last=replace(ROUND, round=0))
    assert claim.decide(ASK, 10.0).effects == (AskAround("b:1", ASK), AskAround("c:1", ASK))


def test_deputies_that_do_not_answer_are_not_waited_for_for_ever() -> None:
    claim = knowing(last=ROUND)
    claim.decide(ASK, 10.0)
    assert claim.decide(ASK, 10.0 + ASK_S - 0.01) == Order()
    assert claim.decide(ASK, 10.0 + ASK_S).effects == (claims(0),)


@pytest.mark.parametrize(
    ("what", "answers", "join"),
    [
        ("one is named", [leads("c", "b:1")], "b:1"),
        (
            "one with a majority before one with a term",
            [leads("b", "x:1", term=9), leads("c", "y:1", valid=True)],
            "y:1",
        ),
        ("then the term", [leads("b", "x:1"), leads("c", "y:1", term=9)], "y:1"),
    ],
)
def test_a_leader_that_lost_the_store_but_not_its_members_is_joined(what: str, answers: list[Leads], join: str) -> None:
    claim = knowing(last=ROUND)
    claim.decide(ASK, 10.0)
    for answer in answers:
        claim.answered(Answered(f"{answer.node}:1", answer))
    assert claim.decide(ASK, 10.1) == Order(join=join), what
    assert claim.decide(ASK, 11.0).effects == (AskAround("b:1", ASK), AskAround("c:1", ASK))


def test_our_own_name_from_a_deputy_is_no_leader() -> None:
    claim = knowing(last=ROUND)
    claim.decide(ASK, 10.0)
    for node in ("b", "c"):
        claim.answered(Answered(f"{node}:1", leads(node, "a:1")))
    assert claim.decide(ASK, 10.1).effects == (claims(0),)


def test_the_leader_of_another_run_at_a_deputys_address_is_not_joined() -> None:
    claim = knowing(last=ROUND)
    claim.decide(ASK, 10.0)
    claim.answered(Answered("b:1", leads("z", "z:1", run_id="another", valid=True)))
    claim.answered(Answered("c:1", refused=True))
    assert claim.decide(ASK, 10.1).effects == (claims(0),)


@pytest.mark.parametrize("deputies", [(), (Deputy("a", "a:1"),)])
def test_a_round_without_other_deputies_is_not_waited_for(deputies: tuple[Deputy, ...]) -> None:
    claim = knowing(last=replace(ROUND, deputies=deputies))
    assert claim.decide(ASK, 10.0).effects == (claims(0),)


def test_an_answer_that_was_not_asked_for_counts_for_nothing() -> None:
    claim = knowing()
    claim.answered(Answered("x:1", leads("x", "x:1", valid=True)))
    assert claim.decide(ASK, 10.0).effects == (claims(0),)


# Holding the key.


def test_the_tie_break_lasts_a_lease_from_the_last_renewal_and_only_with_the_key() -> None:
    claim = knowing()
    claim.heard(StoreAnswered(10.0), 10.4)
    assert claim.held_until() == -ALWAYS
    claim.heard(KeyWritten("leader", 9), 10.5)
    assert claim.held_until() == 14.0
    claim.heard(StoreAnswered(9.0), 10.6)
    assert claim.held_until() == 14.0
    claim.heard(KeyRead("leader", leader_record(OTHER), 12), 10.7)
    assert claim.held_until() == -ALWAYS
    assert claim.other_leader() is not None


def test_a_lost_lease_ends_the_tie_break_and_the_key_is_written_again_after_a_pause() -> None:
    claim = knowing()
    claim.heard(KeyWritten("leader", 9), 0.0)
    claim.heard(StoreAnswered(0.0), 0.1)
    claim.heard(StoreLeaseLost(), 10.0)
    assert claim.held_until() == -ALWAYS
    assert claim.claim_again(10.0) == []  # the key is still ours, as far as we know
    claim.heard(KeyRead("leader", None, 0), 10.1)
    assert claim.claim_again(10.1) == []
    assert claim.retries_at() == 10.5
    assert claim.claim_again(10.5) == [claims(0)]
    assert claim.claim_again(10.6) == []


def test_a_write_that_was_lost_with_its_lease_is_tried_again() -> None:
    claim = knowing()
    claim.heard(KeyWritten("leader", 9), 0.0)
    claim.heard(KeyRead("leader", None, 0), 10.0)
    assert claim.claim_again(10.0) == [claims(0)]
    claim.heard(StoreLeaseLost(), 11.0)
    assert claim.claim_again(11.0) == []
    assert claim.claim_again(11.5) == [claims(0)]
    claim.heard(KeyWritten("leader", 0), 12.0)
    assert claim.claim_again(12.0) == []
    assert claim.claim_again(12.5) == [claims(0)]


def test_a_key_that_was_won_and_is_gone_is_written_again_without_a_pause() -> None:
    claim = knowing()
    claim.heard(KeyWritten("leader", 9), 10.0)
    claim.heard(KeyRead("leader", None, 0), 10.1)
    assert claim.retries_at() == ALWAYS
    assert claim.claim_again(10.1) == [claims(0)]


def test_nothing_is_due_while_the_key_is_ours_as_far_as_we_know() -> None:
    claim = knowing()
    claim.heard(KeyWritten("leader", 9), 0.0)
    claim.heard(StoreLeaseLost(), 10.0)
    assert claim.retries_at() == ALWAYS


def test_a_run_without_a_store_has_no_key_to_write_again() -> None:
    claim = Claim(replace(OWN, external=False))
    claim.refused("b:1", 10.0)
    assert claim.retries_at() == ALWAYS


def test_our_own_key_names_no_other_leader() -> None:
    claim = knowing()
    assert claim.other_leader() is None
    claim.heard(KeyWritten("leader", 9), 0.0)
    assert claim.other_leader() is None


def test_a_key_that_another_has_is_not_written_again() -> None:
    claim = knowing(leader_record(OTHER), 9)
    assert claim.claim_again(100.0) == []


def test_the_key_is_given_up_only_if_it_is_ours_and_still_the_one_we_wrote() -> None:
    claim = knowing()
    assert claim.release() == []
    claim.heard(KeyWritten("leader", 9), 0.0)
    assert claim.release() == [WriteKey("leader", None, 9)]
    claim.heard(KeyRead("leader", leader_record(OTHER), 12), 1.0)
    assert claim.release() == []


# Rounds and outcomes.


def test_the_revision_of_the_round_follows_what_is_read_and_what_was_written() -> None:
    claim = knowing(last=ROUND)
    claim.heard(KeyWritten("round", 44), 0.0)
    assert claim.round_revision == 44
    claim.heard(KeyWritten("round", 0), 0.0)
    assert claim.round_revision == 44


@pytest.mark.parametrize(
    ("term", "last", "ahead"),
    [
        (3, Standing(), False),
        (2, replace(ROUND, term=2), True),
        (2, replace(ROUND, round=6), True),
        (9, replace(ROUND, term=9), False),
        (9, ROUND, False),
    ],
)
def test_a_leader_is_overtaken_by_a_newer_round_that_is_not_its_own(term: int, last: Standing, ahead: bool) -> None:
    assert knowing(last=ROUND).is_ahead_of(term, last) == ahead


ENDED = Ended("done", 0, "", (), 0)


@pytest.mark.parametrize(
    ("what", "age_s", "epoch", "hears"),
    [
        ("its own run", 0.0, "b", True),
        ("another run under the same id", 99.0, "x", False),
        ("one that was there before the end", 5.0, "", True),
        ("one that came later", 4.0, "", False),
    ],
)
def test_the_outcome_is_for_those_whose_run_it_was(what: str, age_s: float, epoch: str, hears: bool) -> None:
    claim = Claim(OWN)
    claim.heard(KeyRead("outcome", outcome_record(ENDED, "b"), 50, age_s=5.0), 0.0)
    assert (claim.outcome_for(age_s, epoch) == ENDED) == hears, what


def test_without_an_outcome_nothing_has_ended() -> None:
    assert knowing().outcome_for(1e9, "") is None
    assert Claim(OWN).outcome_for(1e9, "b") is None


def test_a_run_that_is_over_is_not_continued_under_the_same_id() -> None:
    claim = knowing(last=ROUND, outcome=outcome_record(ENDED, "b"))
    assert claim.decide(ASK, 0.0).effects == (claims(0),)
    claim.heard(KeyWritten("leader", 60), 0.1)
    assert claim.decide(ASK, 0.1).lead == (60, Standing())


def test_the_outcome_of_an_earlier_run_does_not_end_a_later_one() -> None:
    claim = knowing(last=ROUND, outcome=outcome_record(ENDED, "earlier"))
    claim.heard(KeyWritten("leader", 60), 0.1)
    assert claim.decide(ASK, 0.1).lead == (60, ROUND)


def test_an_end_that_was_certain_and_not_told_is_known_to_those_whose_run_it_was() -> None:
    claim = Claim(OWN)
    assert claim.untold_end("b") is None
    claim.heard(KeyRead("round", round_record(ROUND), 40), 0.0)
    assert claim.untold_end("b") is None
    claim.heard(KeyRead("round", round_record(ROUND, outcome_record(ENDED, "b")), 41), 0.0)
    assert claim.untold_end("b") == ENDED
    assert claim.untold_end("another") is None


def test_a_round_of_another_run_under_the_same_id_is_told_from_ours() -> None:
    claim = knowing(last=ROUND)
    assert claim.serves_another("another")
    assert not claim.serves_another("b")
    assert not claim.serves_another("")
    assert not knowing().serves_another("another")
