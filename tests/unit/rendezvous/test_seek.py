"""Asking around: who is asked when, whose answer counts, and who has to lead if nobody does."""

from __future__ import annotations

import pytest

from planaria.rendezvous.messages import Ask, Leads
from planaria.rendezvous.model import Answered, AskAround, Deputy, Settings, Standing
from planaria.rendezvous.seek import (
    ANSWER_S,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    Seeker,
    best_leader,
    is_next_in_line,
)

OWN = Settings("a", "host-a", "a:1", 1, run_id="run")
ASK = Ask("run", "a", "", 0, -1, valid=False)


def said(node: str, leader: str = "", **changes: object) -> Leads:
    """Return what a node says; `leader` is the address it names."""
    fields: dict[str, object] = {"term": 1, "round": 0, "valid": False, "seeking": not leader, **changes}
    return Leads(str(fields.pop("run_id", "run")), node, leader, **fields)  # type: ignore[arg-type]


def asking(*targets: str, now: float = 10.0) -> Seeker:
    seeker = Seeker(OWN, now)
    assert seeker.ask_if_due(list(targets), ASK, now) == [AskAround(target, ASK) for target in targets]
    return seeker


def test_everybody_is_asked_at_once_and_nobody_twice_in_a_round() -> None:
    seeker = asking("b:1", "c:1")
    assert seeker.ask_if_due(["b:1", "c:1"], ASK, 10.5) == []


def test_a_round_is_complete_when_all_have_answered_or_refused() -> None:
    seeker = asking("b:1", "c:1")
    seeker.answered(Answered("b:1", said("b")), 10.1)
    assert not seeker.is_complete(10.1)
    seeker.answered(Answered("c:1", refused=True), 10.2)
    assert seeker.is_complete(10.2)
    assert seeker.refused() == {"c:1"}


def test_a_round_is_complete_when_an_answer_is_overdue() -> None:
    seeker = asking("b:1")
    assert seeker.wakes_at() == 10.0 + ANSWER_S
    assert not seeker.is_complete(10.0 + ANSWER_S - 0.01)
    assert seeker.is_complete(10.0 + ANSWER_S)


def test_with_nobody_to_ask_a_round_is_complete_at_once() -> None:
    assert asking().is_complete(10.0)


def test_a_search_that_has_not_begun_is_not_complete() -> None:
    assert not Seeker(OWN, 10.0).is_complete(100.0)


def test_pauses_grow_to_a_second_and_start_over_with_a_new_search() -> None:
    seeker, now, pauses = Seeker(OWN, 0.0), 0.0, []
    for _ in range(10):
        seeker.pause(now)
        pauses.append(seeker.wakes_at() - now)
        assert not seeker.is_time(now)
        now = seeker.wakes_at()
        assert seeker.is_time(now)
    assert pauses[0] == pytest.approx(FIRST_PAUSE_S)
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(LONGEST_PAUSE_S)
    seeker.pause(now)
    seeker.restart(now)
    assert seeker.is_time(now)
    seeker.pause(now)
    assert seeker.wakes_at() == pytest.approx(now + FIRST_PAUSE_S)


def test_answers_of_another_round_of_questions_or_another_run_do_not_count() -> None:
    seeker = asking("b:1", "c:1")
    seeker.answered(Answered("d:1", said("d", "d:1")), 10.1)
    seeker.answered(Answered("b:1", said("b", "b:1", run_id="another")), 10.1)
    assert seeker.leads() == []
    seeker.answered(Answered("c:1", said("c", "c:1")), 10.1)
    assert seeker.leads() == [said("c", "c:1")]
    seeker.pause(10.2)
    assert seeker.leads() == []


def test_an_address_is_away_from_its_first_failure_until_it_answers() -> None:
    seeker = asking("b:1")
    assert not seeker.has_been_away("b:1", 99.0, 2.0)
    seeker.answered(Answered("b:1", refused=True), 11.0)
    seeker.answered(Answered("b:1"), 12.0)
    assert not seeker.has_been_away("b:1", 12.9, 2.0)
    assert seeker.has_been_away("b:1", 13.0, 2.0)
    seeker.answered(Answered("b:1", said("b")), 13.0)
    assert not seeker.has_been_away("b:1", 99.0, 2.0)


@pytest.mark.parametrize(
    ("what", "answers", "floor", "avoid", "best"),
    [
        ("nobody", [], 0, set(), None),
        ("nobody is named", [said("b"), said("c")], 0, set(), None),
        ("one is", [said("b"), said("c", "d:1")], 0, set(), "d:1"),
        ("a majority beats a term", [said("b", "b:1", valid=True), said("c", "c:1", term=9)], 0, set(), "b:1"),
        ("a round beats a term", [said("b", "b:1"), said("c", "c:1", term=9, round=-1)], 0, set(), "b:1"),
        ("then the term", [said("b", "b:1"), said("c", "c:1", term=9)], 0, set(), "c:1"),
        ("not one behind us", [said("b", "b:1", term=4, valid=True)], 5, set(), None),
        ("but one at our own term", [said("b", "b:1", term=5)], 5, set(), "b:1"),
        ("not one that refused us", [said("b", "d:1"), said("c", "c:1", term=0)], 0, {"d:1"}, "c:1"),
    ],
)
def test_the_best_leader(what: str, answers: list[Leads], floor: int, avoid: set[str], best: str | None) -> None:
    assert best_leader(answers, floor, avoid) == best, what


@pytest.mark.parametrize(
    ("what", "answers", "best"),
    [
        ("not one without a round", [said("b", "b:1", round=-1, valid=True, term=9)], None),
        ("but one with any", [said("b", "b:1", round=-1, valid=True, term=9), said("c", "c:1", round=0)], "c:1"),
    ],
)
def test_one_who_knows_of_a_round_goes_to(what: str, answers: list[Leads], best: str | None) -> None:
    assert best_leader(answers, 0, set(), has_round=True) == best, what


def test_one_who_knows_of_no_round_goes_to_a_leader_that_has_none_either() -> None:
    assert best_leader([said("b", "b:1", round=-1)], 0, set(), has_round=False) == "b:1"


def in_line(*nodes: str, number: int = 3) -> Standing:
    return Standing(round=number, deputies=tuple(Deputy(node, f"{node}:1") for node in nodes))


@pytest.mark.parametrize(
    ("what", "standing", "answers", "leads"),
    [
        ("the first deputy", in_line("a", "b"), [], True),
        ("whatever those after it say", in_line("a", "b"), [said("b", round=3)], True),
        ("the second, if the first is not heard of", in_line("b", "a"), [], True),
        ("not if the first seeks, too", in_line("b", "a"), [said("b", round=3)], False),
        ("one that holds to a leader is not in line", in_line("b", "a"), [said("b", "x:1", round=3)], True),
        ("not if one that seeks knows more", in_line("a", "b"), [said("c", round=4)], False),
        ("one that knows less is no obstacle", in_line("a", "b"), [said("c", round=2)], True),
        ("not one that is no deputy", in_line("b", "c"), [], False),
        ("not without a round", Standing(), [], False),
    ],
)
def test_who_is_next_in_line(what: str, standing: Standing, answers: list[Leads], leads: bool) -> None:
    assert is_next_in_line("a", standing, answers) == leads, what
