"""Whose turn it is to show its stacks, by look after look at one black box."""

from __future__ import annotations

from itertools import permutations

import pytest

from planaria.process.turns import LOOK_S, QUIET_S, TURN_S, Turns, looked, next_turn, passed, wanted

WORKER, CHILD, OTHER = 10, 11, 12


def turn(turns: Turns, size_bytes: int, now: float) -> Turns:
    return next_turn(looked(turns, size_bytes=size_bytes, now=now), size_bytes=size_bytes, now=now)


def line_up(*pids: int) -> Turns:
    turns = Turns()
    for pid in pids:
        turns = wanted(turns, pid)
    return turns


@pytest.mark.parametrize("order", list(permutations((WORKER, CHILD, OTHER))))
def test_whoever_was_wanted_first_shows_its_own_before_the_next_is_asked(order: tuple[int, ...]) -> None:
    turns, size, now, asked = line_up(*order), 7, 100.0, []
    for _ in range(1000):
        before = turns.writer
        turns = turn(turns, size, now)
        if turns.writer != before and turns.writer:
            asked.append((turns.writer, size))
        if turns.writer and size < 7 + 30 * len(asked):  # in three pieces, each longer than a look after the other
            size += 10
        now += LOOK_S
    assert asked == [(pid, 7 + 30 * place) for place, pid in enumerate(order)]
    assert (turns.writer, turns.waiting) == (0, ())


def test_one_that_is_wanted_while_another_writes_waits_for_it() -> None:
    turns = turn(line_up(WORKER), 0, 100.0)
    assert turns.writer == WORKER
    turns = turn(wanted(turns, CHILD), 50, 100.01)
    assert (turns.writer, turns.waiting) == (WORKER, (CHILD,))
    turns = turn(turns, 90, 100.02)
    assert turn(turns, 90, 100.02 + QUIET_S * 0.9).writer == WORKER
    assert turn(turns, 90, 100.02 + QUIET_S * 1.1).writer == CHILD


def test_one_that_has_not_begun_to_write_is_not_done_however_quiet_it_is() -> None:
    turns = turn(line_up(WORKER, CHILD), 5, 100.0)
    assert turn(turns, 5, 100.0 + TURN_S * 0.9).writer == WORKER


@pytest.mark.parametrize("size_bytes", [5, 2, 9])
def test_one_whose_time_is_over_holds_nobody_up_whether_it_is_silent_or_writes(size_bytes: int) -> None:
    """It may never answer, its box may have been emptied meanwhile, it may write without an end."""
    turns = turn(line_up(WORKER, CHILD), 5, 100.0)
    turns = turn(turns, size_bytes, 100.0 + TURN_S * 1.01)
    assert (turns.writer, turns.first_bytes) == (CHILD, size_bytes)
    assert turns.until > 100.0 + 2 * TURN_S


def test_one_that_cannot_be_asked_takes_no_time() -> None:
    turns = passed(turn(line_up(CHILD, WORKER), 0, 100.0))
    assert turn(turns, 0, 100.0).writer == WORKER


def test_one_that_waits_is_asked_once_and_one_that_writes_again_after_it() -> None:
    turns = turn(line_up(WORKER), 0, 100.0)
    turns = wanted(wanted(wanted(turns, CHILD), CHILD), WORKER)
    assert turns.waiting == (CHILD, WORKER)


def test_nobody_is_asked_where_nobody_waits() -> None:
    assert turn(Turns(), 0, 100.0).writer == 0
