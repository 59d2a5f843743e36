"""Whom a hang is charged to: tables of what was found, who did something since, and what is said and ordered then."""

from __future__ import annotations

import pytest

from planaria.agent.charge import MOST_FOLDERS, OTHERS_S, OTHERS_SHARE, WRITING_S, Charge, Order, order
from planaria.agent.examiner import Found
from planaria.agent.hangs import Standing
from planaria.base.value import replace
from planaria.contract.failure import HANG, Failure, in_words

FLOOR_S = 60.0
STILL = {
    1: Standing(1, "step", 7, 61.0, 0.5, 60.0),
    2: Standing(2, "evaluation", 7, 62.0, 0.5, 60.0),
    0: Standing(0, "step", 8, 63.0, 0.5, 60.0),
}
ONE = Found((1,), (2, 0), "hangs at x", "rank 1 hangs at x", is_kept=True)
TWO = replace(ONE, ranks=(1, 2), waiting=(0,), sentence="ranks 1, 2 hang")
SILENT = replace(ONE, ranks=(5,), waiting=(1, 2, 0), sentence="rank 5 hangs")
"""Rank 5 never reports, so it is not among those that stand still."""
ELSEWHERE = Found((), (1, 2, 0), "hangs at x", "all wait", elsewhere=True, is_kept=True)
NOBODY = Found()


def charge(found: Found, *gone_on: int, **changes: object) -> Charge:
    return replace(Charge(STILL, found, dict.fromkeys(gone_on, "goes on"), "n", "/e", True), **changes)


@pytest.mark.parametrize(
    ("what", "found", "gone_on", "first", "watched"),
    [
        ("one suspect", ONE, (), 1, (1,)),
        ("it goes on", ONE, (1,), 1, ()),
        ("one that waits goes on", ONE, (0,), 1, (1,)),
        ("a stranger goes on", ONE, (9,), 1, (1,)),
        ("two suspects", TWO, (), 1, (1, 2)),
        ("the first goes on", TWO, (1,), 2, (2,)),
        ("both go on", TWO, (1, 2), 1, ()),
        ("one that never reports is seen by those that wait", SILENT, (), 5, (1, 2, 0)),
        ("some of these go on", SILENT, (1, 2), 5, (0,)),
        ("all of these go on", SILENT, (1, 2, 0), 5, ()),
        ("one that never reports has ended", SILENT, (5,), 5, ()),
        ("all wait for another node", ELSEWHERE, (), 1, (1, 2, 0)),
        ("one of them goes on", ELSEWHERE, (1,), 2, (2, 0)),
        ("no answer", NOBODY, (), 1, (1,)),
        ("no answer, and the one behind goes on", NOBODY, (1,), 1, ()),
    ],
)
def test_who_is_charged_and_by_whom_it_is_seen_that_it_is_over(
    what: str, found: Found, gone_on: tuple[int, ...], first: int, watched: tuple[int, ...]
) -> None:
    one = charge(found, *gone_on)
    assert (one.first, one.watched) == (first, watched), what
    later = charge(found)
    for rank in gone_on:
        later = later.without(rank, "goes on")
    assert (later.first, later.watched) == (first, watched), what


@pytest.mark.parametrize(
    ("what", "found", "is_alone", "wait_s"),
    [
        ("a clear suspect, and nobody else", ONE, True, 0.0),
        ("a clear suspect, and others that look", ONE, False, OTHERS_S + OTHERS_SHARE * 60.0 - 2.0),
        ("all wait for another node", ELSEWHERE, False, FLOOR_S + WRITING_S),
        ("it may be another node's", replace(TWO, unclear=True), False, FLOOR_S + WRITING_S),
        ("nobody answered, and there are other nodes", NOBODY, False, FLOOR_S + WRITING_S),
        ("nobody answered, and there are none", NOBODY, True, 0.0),
        ("a folder, and no answer", Found(is_kept=True), False, FLOOR_S + WRITING_S),
    ],
)
def test_another_node_has_its_time_where_the_cause_may_be_there(
    what: str, found: Found, is_alone: bool, wait_s: float
) -> None:
    assert charge(found, is_alone=is_alone).wait_s(FLOOR_S, 2.0) == wait_s, what


@pytest.mark.parametrize("limit_s", [1.0, 60.0, 600.0, 86400.0])
def test_the_node_with_the_rank_acts_before_those_that_wait_for_it(limit_s: float) -> None:
    still = {rank: replace(one, limit_s=limit_s) for rank, one in STILL.items()}
    here, there = (charge(found, is_alone=False, still=still) for found in (ONE, ELSEWHERE))
    assert 0 < here.wait_s(FLOOR_S, 0.0) < there.wait_s(FLOOR_S, 0.0) - WRITING_S / 2
    assert here.wait_s(FLOOR_S, 2 * FLOOR_S) == 0.0, "what its evidence took was time for the others, too"
    assert here.wait_s(FLOOR_S, 0.0, is_let_go=True) == 0.0, "it goes on meanwhile"


WAITS = "waits for a rank of another node that nobody named"


@pytest.mark.parametrize(
    ("what", "found", "gone_on", "ordered"),
    [
        ("as it was found", ONE, (), Order(1, "hangs at x", "step")),
        ("nobody is left", ONE, (1,), None),
        (
            "the second suspect has words and a phase of its own",
            TWO,
            (1,),
            Order(2, "hangs in phase evaluation: no sign for 62.0 s; evidence in /e", "evaluation"),
        ),
        ("one that never reports", SILENT, (), Order(5, "hangs at x", "unknown")),
        ("that has ended", SILENT, (5,), None),
        (
            "nobody here is the cause",
            ELSEWHERE,
            (),
            Order(1, f"{WAITS}: no sign for 61.0 s in phase step; evidence in /e", ""),
        ),
        (
            "no answer",
            NOBODY,
            (),
            Order(1, "hangs in phase step: no sign for 61.0 s; nobody could look at it in time", "step"),
        ),
    ],
)
def test_what_is_ordered(what: str, found: Found, gone_on: tuple[int, ...], ordered: Order | None) -> None:
    one = charge(found, *gone_on)
    assert order("restart", one) == ordered, what
    assert order("report", one) is None
    if ordered is None:
        assert order("stop", one) is None
    else:
        reason = f"rank {ordered.rank} on n {ordered.brief} (--hang-policy=stop)"
        assert order("stop", one) == replace(ordered, reason=reason)


def test_the_reason_of_a_restart_names_no_cause_that_nobody_has_found() -> None:
    for found, words in ((ONE, "rank 1 hangs in phase step"), (ELSEWHERE, f"rank 1 {WAITS}")):
        ordered = order("restart", charge(found))
        assert ordered is not None
        failure = Failure(
            ordered.rank, 0, "n", 9, -15, 0.0, 1.0, "watchdog", HANG, message=ordered.brief, where=ordered.phase
        )
        assert in_words(failure) == words


@pytest.mark.parametrize(
    ("found", "gone_on", "sentence"),
    [
        (ONE, {}, "rank 1 hangs at x"),
        (ONE, {1: "has ended", 0: "goes on"}, "rank 1 hangs at x; it has ended meanwhile"),
        (TWO, {2: "goes on"}, "ranks 1, 2 hang; rank 2 goes on meanwhile"),
        (NOBODY, {}, "rank 1 on n hangs in phase step: no sign for 61.0 s; nobody could look at it in time"),
    ],
)
def test_what_is_said(found: Found, gone_on: dict[int, str], sentence: str) -> None:
    assert charge(found, gone_on=gone_on).sentence == sentence


def test_where_nobody_was_asked_to_look_nobody_was_too_late() -> None:
    one = charge(NOBODY, folder="")
    assert one.evidence is None
    assert one.sentence.endswith(f"; nobody looked at it: there are {MOST_FOLDERS} folders of evidence already")
    assert "in time" not in one.sentence
