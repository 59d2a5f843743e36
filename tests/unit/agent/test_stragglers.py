"""Who is slower than the others."""

from __future__ import annotations

import random

import pytest

from planaria.agent.stragglers import LEAST, Stragglers


def told(late: dict[int, float], steps: int = 40, step_s: float = 1.0, ranks: int = 4) -> Stragglers:
    """Let ranks report every step, some of them later than the others."""
    found, rng = Stragglers(), random.Random(7)
    for step in range(steps):
        came = [(step * step_s + late.get(rank, 0.0) + rng.random() * 0.01, rank) for rank in range(ranks)]
        for at, rank in sorted(came):
            found.reported(rank, step, at, {}, ranks)
    return found


def test_a_rank_that_comes_last_step_after_step_is_named_with_how_slow_it_is() -> None:
    (slow,) = told({2: 0.5}).found()
    assert slow.local_rank == 2
    assert 1.45 < slow.slower_by < 1.55


def test_ranks_that_come_together_are_not_told_apart() -> None:
    assert told({}).found() == ()
    assert told({1: 0.05}).found() == ()


def test_nobody_is_named_after_a_few_steps_or_without_company() -> None:
    assert told({2: 0.5}, steps=LEAST).found() == ()
    assert told({0: 0.5}, ranks=1).found() == ()


def test_the_slowest_is_named_first() -> None:
    assert [one.local_rank for one in told({1: 0.3, 3: 0.6}, ranks=6).found()] == [3, 1]


def test_a_rank_that_says_how_long_it_worked_is_compared_by_that() -> None:
    found = Stragglers()
    for step in range(20):
        for rank in range(3):
            found.reported(rank, step, float(step), {"busy_s": 0.9 if rank == 1 else 0.6}, 3)
    (slow,) = found.found()
    assert (slow.local_rank, slow.slower_by) == (1, 1.5)


@pytest.mark.parametrize("odd_s", [float("inf"), float("nan")])
def test_a_time_that_is_no_number_is_passed_over(odd_s: float) -> None:
    found = Stragglers()
    for step in range(40):
        for rank in range(3):
            for busy_s in (0.9, odd_s, odd_s) if rank == 1 else (0.6,):
                found.reported(rank, step, float(step), {"busy_s": busy_s}, 3)
    assert [(one.local_rank, one.slower_by) for one in found.found()] == [(1, 1.5)]


@pytest.mark.parametrize("odd_s", [0.0, 5e-324])
def test_nobody_is_slower_than_others_by_more_than_can_be_told(odd_s: float) -> None:
    found = Stragglers()
    for step in range(40):
        for rank in range(3):
            found.reported(rank, step, float(step), {"busy_s": 0.6 if rank == 1 else odd_s}, 3)
    assert found.found() == ()


def test_ranks_that_skip_reports_cost_no_memory() -> None:
    found = Stragglers()
    for step in range(10_000):
        found.reported(step % 2, step, float(step), {}, 2)
    assert len(found._open) < 100
    assert found.found() == ()
