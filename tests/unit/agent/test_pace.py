"""How fast workers step, and for how long they have: told by whoever knows when."""

from __future__ import annotations

import pytest

from planaria.agent.pace import Pace


def stepping(pace: Pace, *, begin: float, count: int, every_s: float, first: int = 1) -> None:
    for number in range(count):
        pace.report(0, first + number, 32.0 * (first + number), begin + number * every_s)


def test_rates_are_those_of_the_last_seconds() -> None:
    pace = Pace()
    pace.is_at_work(0.0, at_work=True)
    stepping(pace, begin=1.0, count=100, every_s=1.0)
    stepping(pace, begin=100.1, count=200, every_s=0.1, first=101)
    rate, samples = pace.rates(0, 120.0)
    assert rate == pytest.approx(10.0, rel=0.1)
    assert samples == pytest.approx(320.0, rel=0.1)
    assert pace.rates(1, 120.0) == (None, None)


def test_one_report_has_no_rate_and_slow_steps_have_one() -> None:
    pace = Pace()
    pace.report(0, 1, None, 10.0)
    assert pace.rates(0, 10.0) == (None, None)
    pace.report(0, 2, None, 70.0)
    assert pace.rates(0, 70.0) == (pytest.approx(1 / 60, abs=1e-4), None)


def test_who_says_nothing_any_more_gets_slower() -> None:
    pace = Pace()
    stepping(pace, begin=0.0, count=21, every_s=0.5)
    fast = pace.rates(0, 10.0)[0]
    assert fast == pytest.approx(2.0)
    assert (pace.rates(0, 1000.0)[0] or 0) < 0.03


def test_a_trail_does_not_grow_with_the_number_of_reports() -> None:
    pace = Pace()
    stepping(pace, begin=0.0, count=100_000, every_s=0.001)
    assert len(pace._runners[0].trail) < 30


def test_a_life_trains_from_its_first_step_to_its_last() -> None:
    pace = Pace()
    pace.is_at_work(0.0, at_work=True)
    assert pace.trained_s(4.0) == 4.0  # nobody has reported yet: time at work stands for it
    stepping(pace, begin=5.0, count=11, every_s=1.0)
    assert pace.trained_s(15.5) == 10.5
    pace.is_at_work(30.0, at_work=False)
    assert pace.trained_s(100.0) == 10.0
    pace.begin()
    pace.is_at_work(100.0, at_work=True)
    assert pace.trained_s(130.0) == 10.0  # a new life that has not stepped yet
    stepping(pace, begin=130.0, count=6, every_s=1.0)
    assert pace.trained_s(136.0) == 16.0
    assert pace.first_step(0) == 1


def test_a_long_silence_is_no_training_and_a_slow_step_is() -> None:
    pace = Pace()
    pace.is_at_work(0.0, at_work=True)
    stepping(pace, begin=0.0, count=11, every_s=1.0)
    assert pace.trained_s(19.0) == 19.0
    assert pace.trained_s(100.0) == 10.0
    slow = Pace()
    slow.is_at_work(0.0, at_work=True)
    stepping(slow, begin=0.0, count=3, every_s=60.0)
    assert slow.trained_s(250.0) == 250.0


def test_where_nobody_reports_the_time_at_work_counts() -> None:
    pace = Pace()
    pace.is_at_work(10.0, at_work=True)
    pace.is_at_work(12.0, at_work=True)
    pace.is_at_work(20.0, at_work=False)
    pace.is_at_work(25.0, at_work=False)
    pace.is_at_work(30.0, at_work=True)
    assert (pace.trained_s(35.0), pace.is_reported) == (15.0, False)


def test_a_silence_stays_no_training_when_it_is_over() -> None:
    pace = Pace()
    pace.is_at_work(0.0, at_work=True)
    stepping(pace, begin=0.0, count=11, every_s=1.0)
    assert pace.trained_s(3000.0) == 10.0
    stepping(pace, begin=3610.0, count=11, every_s=1.0, first=12)
    assert pace.trained_s(3620.0) == 20.0


def test_what_is_usual_is_a_matter_of_each_rank_and_not_of_how_many_there_are() -> None:
    pace = Pace()
    pace.is_at_work(0.0, at_work=True)
    for step in range(5):
        for local_rank in range(8):
            pace.report(local_rank, step, None, step * 30.0)
    assert pace.trained_s(149.0) == 149.0


def test_steps_that_have_become_slower_for_good_are_training() -> None:
    pace = Pace()
    pace.is_at_work(0.0, at_work=True)
    stepping(pace, begin=0.0, count=11, every_s=1.0)
    stepping(pace, begin=70.0, count=20, every_s=60.0, first=12)
    assert pace.trained_s(70.0 + 19 * 60.0) >= 10.0 + 14 * 60.0
