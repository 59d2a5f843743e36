"""Who is slower than the others."""

from __future__ import annotations

import random

import pytest

from planaria.agent.stragglers import LEAST, Pace, Stragglers


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


def drifting(
    takes_s: dict[int, float], until_s: float, pauses: dict[int, tuple[int, float]] | None = None
) -> Stragglers:
    """Let ranks report that wait for nobody: each takes its own time for a step; a pause is behind one of its steps."""
    found, rng = Stragglers(), random.Random(7)
    reports = []
    for rank, step_s in takes_s.items():
        at, step = 0.0, 0
        while (at := at + step_s * (0.99 + 0.02 * rng.random())) < until_s:
            reports.append((at, rank, step))
            pause = (pauses or {}).get(rank, (-1, 0.0))
            at, step = at + (pause[1] if pause[0] == step else 0.0), step + 1
    for at, rank, step in sorted(reports):
        found.reported(rank, step, at, {}, len(takes_s))
    return found


@pytest.mark.parametrize("until_s", [30, 60, 500, 5000])
def test_how_slow_a_rank_is_does_not_grow_with_how_far_behind_it_is(until_s: float) -> None:
    (slow,) = drifting({0: 1.0, 1: 1.0, 2: 1.12, 3: 1.0}, until_s).found()
    assert slow.local_rank == 2
    assert slow.slower_by == pytest.approx(1.12, abs=0.02)


def test_what_is_told_of_a_rank_that_is_far_behind_is_new() -> None:
    """A hundred steps behind no step is complete any more; then the rank gets as fast as the others."""
    reports = [(float(step), 0, step) for step in range(600)]
    reports += [(min(2.0 * step, 200.0 + step), 1, step) for step in range(400)]
    found = Stragglers()
    told = {}
    for at, rank, step in sorted(reports):
        found.reported(rank, step, at, {}, 2)
        told[at] = [(one.local_rank, one.slower_by) for one in found.found()]
    assert told[50.0] == told[150.0] == told[390.0] == [(1, 2.0)]
    assert told[599.0] == []


@pytest.mark.parametrize("pause_s", [5.0, 500.0])
def test_a_rank_that_was_held_up_once_is_not_slower(pause_s: float) -> None:
    assert drifting({0: 1.0, 1: 1.0, 2: 1.0}, 1000, {1: (300, pause_s)}).found() == ()
    assert drifting({0: 1.0, 1: 1.0, 2: 1.0}, 310 + pause_s, {1: (300, pause_s)}).found() == ()


def test_ranks_that_report_every_few_steps_are_compared_by_what_one_takes() -> None:
    found = Stragglers()
    for report in range(40):
        found.reported(0, report, report * 1.0, {}, 2)
        found.reported(1, report * 10, report * 10.0, {}, 2)
    assert found.found() == ()


def test_steps_that_begin_anew_or_are_told_again_are_no_gap() -> None:
    found = Stragglers()
    for number in range(100):
        for rank in (0, 1):
            for _ in range(1 + rank):
                found.reported(rank, number % 25, float(number), {}, 2)
    assert found.found() == ()


def test_the_pace_of_a_rank_is_known_after_some_steps_also_where_it_is_alone() -> None:
    found = Stragglers()
    for step in range(LEAST + 1):
        assert found.paces() == {}
        found.reported(0, step, step * 2.0, {"busy_s": 0.5} if step else {}, 1)
    assert found.paces() == {0: Pace(2.0, 2.0, 0.5)}
    found.reported(0, LEAST + 1, LEAST * 2.0 + 19.0, {}, 1)
    assert found.paces() == {0: Pace(2.0, 3.0, 0.5)}
