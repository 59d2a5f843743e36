"""Rules of growing: each test is a row of docs/scaling.md, and each row a test (tests/meta/test_scaling_doc.py)."""

from __future__ import annotations

import pytest
from scaling_story import Story, block

from planaria.kube.logline import Metric, read_line
from planaria.kube.measuring import Pushes
from planaria.kube.scaling_model import Sample, Wants

CONTINUES = "Pytorch job continues to be scaled"
BEST = "Pytorch job has reached the max metrics"
FULL = "Pytorch job has reached the max replicas"


def test_a_job_begins_as_the_tutorial_shows() -> None:
    story = Story(1, most=3)
    assert story.block() == block("Start", True, 1, None, "")
    assert story.verdict.elastic.since_s == story.now_s


@pytest.mark.parametrize(("start", "size"), [(0, 2), (1, 2), (5, 5), (9, 6)])
def test_a_search_begins_with_worker_replicas_within_the_bounds(start: int, size: int) -> None:
    assert Story(start, least=2, most=6).verdict.target == size


def test_doubling_never_goes_above_the_maximum() -> None:
    story = Story(1, most=3)
    for size in (1, 2, 3, 3, 3):
        story.measure(100.0 * size)
        story.see(after_s=100_000.0)
    assert story.sizes == [1, 2, 3]
    assert story.block() == block("ReachMaxReplicas", False, 3, 2, FULL)


def test_growth_is_told_as_the_tutorial_shows() -> None:
    story = Story(1, most=3)
    story.measure(100.0)
    assert story.block() == block("Continue", True, 2, 1, CONTINUES)
    assert story.verdict.elastic.since_s == story.now_s


def test_a_size_that_is_not_allowed_is_never_tried() -> None:
    story = Story(3, most=20, allowed=(2, 3, 5, 12, 16, 40))
    for _ in range(6):
        story.measure(100.0 * story.verdict.target)
    assert story.sizes == [3, 5, 12, 16]


def test_nothing_grows_before_its_size_is_measured() -> None:
    story = Story(1)
    story.see(after_s=1_000.0)
    story.see(samples=story.samples(story.policy.warm_up + story.policy.window - 1, 100.0))
    assert story.verdict.target == 1
    assert story.verdict.wants == Wants(1)
    story.see(samples=story.samples(1, 100.0))
    assert story.sizes == [1, 2]


def test_samples_of_the_warm_up_are_not_counted() -> None:
    story = Story(1, most=2, warm_up=3, window=3)
    story.measure(100.0)
    story.see(samples=story.samples(3, 1.0))  # the first steps after a change are slow
    story.see(samples=story.samples(3, 190.0))
    assert story.block() == block("ReachMaxReplicas", False, 2, 1, FULL)


def test_one_slow_sample_does_not_decide() -> None:
    story = Story(1, most=2)
    story.measure(100.0)
    usual, slow = story.samples(6, 190.0), story.samples(1, 1.0)
    story.see(samples=(*usual[:4], *slow, *usual[4:]))
    assert story.verdict.elastic.condition == "ReachMaxReplicas"


def test_a_gain_of_two_percent_for_twice_the_workers_is_no_success() -> None:
    story = Story(1, min_efficiency=0.0)
    story.measure(100.0)
    story.measure(102.0)
    assert story.sizes == [1, 2, 1]
    assert story.verdict.reason == "NoGain"


@pytest.mark.parametrize(
    ("start", "most", "least_gain", "rates", "sizes"),
    [
        (1, 2, 0.9, (100.0, 189.0), [1, 2, 1]),
        (1, 2, 0.9, (100.0, 191.0), [1, 2]),
        (6, 7, 0.1, (600.0, 659.0), [6, 7, 6]),  # 9.8 % of the 16.7 % that can be had
        (6, 7, 0.1, (600.0, 661.0), [6, 7]),
    ],
)
def test_a_gain_that_can_be_had_has_to_be_there(
    start: int, most: int, least_gain: float, rates: tuple[float, ...], sizes: list[int]
) -> None:
    story = Story(start, most=most, min_gain=least_gain)
    for rate in rates:
        story.measure(rate)
    assert story.sizes == sizes


def test_a_size_that_wastes_its_workers_is_left_though_it_is_faster() -> None:
    story = Story(1)
    for rate in (100.0, 150.0, 230.0):  # 4 Workers do the work of 2.3: 57 % each
        story.measure(rate)
    assert story.sizes == [1, 2, 4, 2]
    assert story.verdict.reason == "LowEfficiency"


def test_a_small_step_need_not_bring_more_than_it_can() -> None:
    story = Story(10, most=11)
    story.measure(1000.0)
    story.measure(1080.0)  # 8 % of the 10 % that one more of ten can bring
    assert story.sizes == [10, 11]
    assert story.verdict.elastic.condition == "ReachMaxReplicas"
    story = Story(1, most=2, min_gain=2.0)
    story.measure(100.0)
    story.measure(151.0)
    assert story.sizes == [1, 2]


def test_no_gain_returns_to_the_better_size_as_the_tutorial_shows() -> None:
    story = Story(1, most=4)
    for rate in (100.0, 190.0, 195.0):
        story.measure(rate)
    assert story.block() == block("ReachMaxMetric", False, 2, 4, BEST)


def test_a_job_at_its_maximum_needs_no_samples() -> None:
    story = Story(3, most=3)
    story.see()
    assert story.block() == block("ReachMaxReplicas", False, 3, None, FULL)
    assert story.see(after_s=1e6).elastic.condition == "ReachMaxReplicas"


def test_what_people_read_keeps_its_time_until_it_changes() -> None:
    story = Story(3, most=3)
    since_s = story.see().elastic.since_s
    assert story.see(after_s=1_000.0).elastic.since_s == since_s


def test_a_start_above_the_minimum_needs_no_size_before_it() -> None:
    story = Story(3, most=8)
    story.measure(300.0)
    story.measure(310.0)
    assert story.sizes == [3, 6, 3]


def test_a_size_is_kept_for_the_cooldown() -> None:
    story = Story(1, cooldown_s=100.0)
    story.measure(100.0, after_s=30.0)
    assert story.verdict.target == 1
    assert story.verdict.wake_after_s == pytest.approx(70.0)
    story.see(after_s=70.0)
    assert story.sizes == [1, 2]


def test_nothing_grows_while_a_worker_is_away() -> None:
    story = Story(2)
    story.measure(200.0, running=1)
    story.see(after_s=1_000.0, running=1)
    assert story.sizes == [2]
    story.see()
    assert story.sizes == [2, 4]


def test_nothing_is_measured_before_training_has_begun() -> None:
    story = Story(1)
    story.measure(100.0, is_started=False)
    story.see(after_s=1e6, is_started=False)
    assert story.block() == block("Start", True, 1, None, "")


@pytest.mark.parametrize("seconds", [0.001, 1.5, 30.0, 7200.0])
def test_steps_of_thirty_seconds_and_of_hours_count(seconds: float) -> None:
    story = Story(1, most=2)
    for _ in range(2):
        story.measure(story.verdict.target / seconds)
    assert story.sizes == [1, 2]
    assert story.verdict.elastic.condition == "ReachMaxReplicas"


def test_with_a_batch_per_worker_the_same_step_time_is_twice_the_work() -> None:
    story = Story(1, most=2)
    for _ in range(2):
        story.see(samples=tuple(Sample(story.verdict.target, seconds=0.25, step=step) for step in range(7)))
    assert story.verdict.elastic.condition == "ReachMaxReplicas"


def test_with_a_global_batch_the_same_step_time_is_no_gain() -> None:
    story = Story(1, most=2, batch="global")
    for _ in range(2):
        story.see(samples=tuple(Sample(story.verdict.target, seconds=0.25, step=step) for step in range(7)))
    assert story.sizes == [1, 2, 1]


def test_lines_of_the_usual_kind_are_enough_to_grow() -> None:
    story = Story(1, most=3)
    for one_step_s in (0.26, 0.27, 0.30):
        times = (5.969, 1.2, *[one_step_s] * 5)  # the first steps of a size are slow
        lines = [f"Epoch: [17][{50 * step:4d}/1563]\tTime {time:6.3f} ( 0.385)" for step, time in enumerate(times)]
        readings = [read_line(line, Metric()) for line in lines]
        story.see(samples=tuple(one.sample(story.verdict.target) for one in readings if one))
    assert story.sizes == [1, 2, 3]
    assert story.block() == block("ReachMaxReplicas", False, 3, 2, FULL)


def test_pushed_samples_are_preferred_and_never_compared_with_lines() -> None:
    story = Story(1)
    story.measure(100.0)
    pushed = tuple(Sample(2, rate=64.0, step=step) for step in range(7))
    story.see(samples=pushed)  # in samples per second: less than 100, and it means nothing
    assert (story.sizes, story.verdict.reason) == ([1, 2, 1], "MetricChanged")
    story.see(samples=story.samples(20, 1e9))  # lines go on; nobody listens
    story.see(samples=tuple(Sample(1, rate=33.0, step=step) for step in range(7, 14)))
    story.see(samples=tuple(Sample(2, rate=64.0, step=step) for step in range(14, 21)))
    assert story.sizes == [1, 2, 1, 2, 4]


def test_lines_count_again_when_nobody_pushes_any_more() -> None:
    story, pushes = Story(1), Pushes(at=1_000.0)
    story.see(samples=tuple(Sample(1, rate=64.0, step=step) for step in range(3)))
    for now in (1_000.0, 1_899.9):
        pushes, counted = pushes.heard(story.samples(7, 100.0), now)
        assert (counted, pushes.lines, pushes.go_on(now)) == ((), 0, True), "they go on for 15 minutes"
    pushes, counted = pushes.heard(story.samples(4, 100.0), 1_900.0)
    assert (counted, pushes.go_on(1_900.0)) == ((), False), "four lines may belong to a push that comes"
    story.see(samples=story.samples(7, 100.0))
    assert story.sizes == [1]
    pushes, counted = pushes.heard(story.samples(7, 100.0), 1_910.0)
    story.see(samples=counted)
    assert story.sizes == [1, 2]
    assert Pushes().heard(story.samples(1, 100.0), 0.0)[1] != (), "where nobody has ever pushed, lines count at once"


def test_a_sample_that_comes_twice_counts_once() -> None:
    story = Story(1)
    once = story.samples(6, 100.0)
    for _ in range(5):
        story.see(samples=once)
    assert story.sizes == [1]
    story.see(samples=story.samples(1, 100.0))
    assert story.sizes == [1, 2]


def test_of_several_workers_the_slowest_counts_and_not_the_first() -> None:
    story = Story(2, most=4)
    story.measure(100.0)
    steps = [(step, seconds) for step in range(7) for seconds in (0.02, 0.08)]  # the second Worker's node is slow
    story.see(samples=tuple(Sample(4, seconds=seconds, step=step) for step, seconds in steps))
    assert story.sizes == [2, 4, 2]


def test_samples_of_another_size_are_left_out() -> None:
    story = Story(1, most=2, min_gain=0.5)
    story.measure(100.0)
    late = story.samples(10, 100.0, size=1)
    story.see(samples=late)
    assert story.verdict.target == 2
    story.measure(190.0)
    assert story.verdict.elastic.condition == "ReachMaxReplicas"


def test_after_a_worker_was_away_its_first_steps_are_left_out_again() -> None:
    story = Story(1, most=2, window=3)
    story.measure(100.0)
    story.see(samples=story.samples(3, 200.0))
    story.see(samples=story.samples(1, 100.0, size=1), running=1)
    story.see(samples=story.samples(2, 10.0))
    story.see(samples=story.samples(2, 200.0))
    assert story.verdict.elastic.condition == "ReachMaxReplicas"


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf"), 1e-320, 1e-300, 1e300])
def test_samples_that_say_nothing_are_left_out(seconds: float) -> None:
    story = Story(1)
    story.see(samples=tuple(Sample(1, seconds=seconds, step=step) for step in range(20)))
    story.see(samples=tuple(Sample(1, rate=seconds, step=step) for step in range(20)))
    story.see(samples=(Sample(1), Sample(1, step=3)))
    assert story.verdict.evidence.window == ()


def test_a_changed_start_begins_the_search_again() -> None:
    story = Story(1, most=8)
    story.measure(100.0)
    story.measure(101.0)
    story.start = 3
    story.see()
    assert story.block() == block("Start", True, 3, None, "Worker.replicas is 3 now, the search starts again")
    story.measure(300.0)
    assert story.sizes == [1, 2, 1, 3, 6]


def test_bounds_that_change_are_kept_at_once() -> None:
    story = Story(4, most=8)
    story.change(max=3)
    assert story.see().target == 3
    story.change(min=5, max=6)
    assert story.see().target == 5


def test_a_minimum_that_rises_during_a_trial_is_kept_when_it_fails() -> None:
    story = Story(2, most=8)
    story.measure(200.0)
    story.change(min=3)
    story.measure(200.0)
    assert story.sizes == [2, 4, 3]


def test_a_larger_maximum_goes_on_from_where_it_was() -> None:
    story = Story(1, most=2)
    story.measure(100.0)
    story.measure(200.0)
    assert story.verdict.elastic.condition == "ReachMaxReplicas"
    story.change(max=4)
    story.see()
    assert story.block() == block("Continue", True, 4, 2, CONTINUES)


def test_another_kind_of_batch_makes_old_figures_worthless() -> None:
    story = Story(1)
    story.measure(100.0)
    story.change(batch="global")
    story.measure(50.0)
    assert (story.sizes, story.verdict.reason) == ([1, 2, 1], "MetricChanged")
