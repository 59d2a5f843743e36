"""Rules about gains that go and samples that do not come: each test is a row of docs/scaling.md, and each row a test."""

from __future__ import annotations

import pytest
from scaling_story import BEGIN_S, Story, block

from planaria.kube import scaling
from planaria.kube.scaling_model import Corrupt, Situation

BEST = "Pytorch job has reached the max metrics"


def at_the_top() -> Story:
    story = Story(1, most=4)
    for rate in (100.0, 190.0, 360.0):
        story.measure(rate)
    return story


def test_a_gain_that_is_gone_returns_to_the_smaller_size() -> None:
    story = at_the_top()
    story.measure(180.0)  # a node became slow
    assert story.sizes == [1, 2, 4, 2]
    assert story.block() == block("ReachMaxMetric", False, 2, 4, BEST)
    assert story.verdict.reason == "GainGone"


def test_noise_at_rest_does_not_move_a_job() -> None:
    story = at_the_top()
    for round_number in range(50):
        story.measure(360.0 * (0.8 if round_number % 2 else 1.2), after_s=60.0)
    assert story.sizes == [1, 2, 4]


def test_a_size_is_kept_as_long_as_half_of_its_gain_is_there() -> None:
    story = at_the_top()
    story.measure(190.0 * 1.06)
    assert story.sizes == [1, 2, 4]
    story.measure(190.0 * 1.04)
    assert story.sizes == [1, 2, 4, 2]


def test_a_gain_that_is_gone_never_leads_below_the_minimum() -> None:
    story = at_the_top()
    story.change(min=3)
    story.measure(180.0)
    assert story.sizes == [1, 2, 4]


def test_a_job_that_became_slow_everywhere_grows_back() -> None:
    story = at_the_top()
    story.measure(120.0)  # a third, with every size
    assert story.verdict.target == 2
    story.measure(63.0)
    story.see(after_s=story.policy.retry_s)
    story.measure(120.0)
    assert story.sizes == [1, 2, 4, 2, 4]
    assert story.verdict.elastic.condition == "ReachMaxReplicas"


def test_a_size_that_did_not_pay_is_tried_again_much_later() -> None:
    story = Story(1, most=2)
    story.measure(100.0)
    story.measure(102.0)
    story.measure(100.0)
    story.see(after_s=story.policy.max_retry_s - 2.0)
    assert (story.sizes, story.verdict.reason) == ([1, 2, 1], "NoGain")
    story.see(after_s=1.0)
    story.measure(195.0)  # the cluster has become better
    assert story.sizes == [1, 2, 1, 2]
    assert story.verdict.elastic.condition == "ReachMaxReplicas"


def test_when_half_of_the_way_pays_the_rest_of_it_has_to_wait() -> None:
    story = Story(1, most=4)
    for rate in (100.0, 190.0, 195.0):
        story.measure(rate)
    story.measure(190.0)
    story.see(after_s=story.policy.max_retry_s)
    assert story.sizes == [1, 2, 4, 2, 3]
    story.measure(270.0)
    story.see(after_s=story.policy.retry_s)
    assert story.block() == block("ReachMaxMetric", False, 3, 2, BEST)
    assert story.sizes == [1, 2, 4, 2, 3]


def test_a_size_that_never_pays_is_tried_less_and_less() -> None:
    story = Story(1, most=2)
    tried = 0
    for _ in range(7 * 24 * 4):  # a week
        story.measure(100.0, after_s=900.0)
        tried = story.sizes.count(2)
    assert 3 <= tried <= 12


def test_a_size_that_cannot_be_measured_is_given_up_with_a_reason() -> None:
    story = Story(1)
    story.measure(100.0)
    story.see(samples=story.samples(4, 190.0))
    story.see(after_s=story.policy.trial_timeout_s)
    message = "Inconclusive: 2 of 5 samples of 2 Workers within 1800 s, return to the last replicas"
    assert story.block() == block("Stop", False, 1, 2, message)
    assert story.verdict.reason == "NotEnoughSamples"
    story.measure(100.0)
    story.see(after_s=story.policy.retry_s)
    assert story.sizes == [1, 2, 1, 2]


def test_the_largest_size_is_a_trial_like_every_other() -> None:
    story = Story(1, most=2)
    story.measure(100.0)
    story.see()
    assert story.verdict.elastic.condition == "Continue"
    assert story.verdict.wake_after_s == story.policy.trial_timeout_s
    story.see(samples=story.samples(1, 190.0))
    story.see(after_s=story.policy.trial_timeout_s)
    assert (story.sizes, story.verdict.reason) == ([1, 2, 1], "NotEnoughSamples")


def test_a_job_without_samples_says_so_and_goes_on_when_they_come() -> None:
    story = Story(2)
    story.see(after_s=story.policy.trial_timeout_s)
    assert story.block() == block("Stop", False, 2, None, "Inconclusive: no samples of 2 Workers within 1800 s")
    assert story.verdict.reason == "NoSamples"
    story.see(after_s=1e6)
    story.measure(200.0)
    assert story.sizes == [2, 4]


def test_what_was_said_about_missing_samples_is_taken_back_when_they_come() -> None:
    story = Story(2)
    story.see(after_s=story.policy.trial_timeout_s)
    story.measure(200.0, running=1)
    assert story.block() == block("Start", True, 2, None, "")


def test_pods_that_never_run_end_a_trial_with_a_reason() -> None:
    story = Story(1)
    story.measure(100.0)
    story.see(placed=2, running=1, after_s=story.policy.trial_timeout_s)
    assert (story.verdict.target, story.verdict.reason) == (1, "PodsNotRunning")
    message = "Inconclusive: 1 of 2 Workers ran within 1800 s, return to the last replicas"
    assert story.verdict.elastic.message == message


@pytest.mark.parametrize("most", [3, 8])
def test_a_first_size_that_never_runs_whole_is_told_with_a_pod_of_it(most: int) -> None:
    story = Story(3, most=most)
    story.kept, story.sizes = None, []
    story.see(running=2, is_started=False)
    story.see(running=2, after_s=story.policy.trial_timeout_s - 1.0, absent="resnet-worker-2 (ImagePullBackOff)")
    assert story.block() == block("Start", True, 3, None, "")
    assert story.verdict.wake_after_s == 1.0
    story.see(running=2, absent="resnet-worker-2 (ImagePullBackOff)")
    message = "Inconclusive: 2 of 3 Workers ran within 1800 s, resnet-worker-2 (ImagePullBackOff) does not"
    assert (story.verdict.reason, story.block()) == ("PodsNotRunning", block("Stop", False, 3, None, message))
    story.see(running=3)
    story.measure(300.0)
    assert story.verdict.elastic.condition == ("Continue" if most == 8 else "ReachMaxReplicas")
    assert story.sizes == ([3, 6] if most == 8 else [3])


def test_time_counts_from_when_all_workers_run() -> None:
    story = Story(1)
    story.measure(100.0)
    story.see(placed=2, running=1, after_s=1_700.0)
    story.see()
    story.see(after_s=1_700.0)
    assert story.verdict.target == 2


def test_trouble_with_a_pattern_is_told() -> None:
    story = Story(1)
    story.see(after_s=2_000.0, trouble="the pattern took more than 1 s")
    assert story.verdict.reason == "MetricTrouble"
    assert story.verdict.elastic.message == "Inconclusive: the pattern took more than 1 s"


def test_the_time_that_no_operator_was_there_does_not_count() -> None:
    story = Story(1)
    story.measure(100.0)
    story.see()
    story.see(after_s=86_400.0, watched_s=3.0)
    assert story.verdict.target == 2
    assert story.verdict.wake_after_s == pytest.approx(story.policy.trial_timeout_s - 3.0)


def test_the_time_that_a_job_was_suspended_does_not_count() -> None:
    story = Story(1)
    story.measure(100.0)
    story.see()
    assert story.verdict.target == 2
    story.see(after_s=86_400.0, is_resumed=True, is_started=False, placed=0, running=0)
    story.see(after_s=30.0)
    assert story.verdict.target == 2
    assert story.verdict.wake_after_s == pytest.approx(story.policy.trial_timeout_s)
    story.measure(200.0)
    assert story.verdict.evidence.failures == 0
    assert story.sizes == [1, 2, 4]


def test_a_clock_that_is_set_back_costs_patience_and_nothing_else() -> None:
    story = Story(1)
    story.measure(100.0)
    story.see()
    story.see(after_s=-1e6)
    assert story.verdict.target == 2
    story.see(after_s=story.policy.trial_timeout_s)
    assert story.verdict.target == 1


@pytest.mark.parametrize("placed", [1, 4])
def test_evidence_that_cannot_be_read_starts_again_from_what_runs(placed: int) -> None:
    story = Story(2)
    now = Situation(start=2, placed=placed, running=placed)
    verdict = scaling.scale(story.policy, Corrupt("'good' is missing"), now, BEGIN_S)
    assert verdict.target == placed
    assert verdict.reason == "EvidenceLost"
    message = "What was measured cannot be read ('good' is missing), the search starts again"
    assert (verdict.elastic.condition, verdict.elastic.message) == ("Start", message)


def test_evidence_that_cannot_be_read_before_anything_runs_starts_as_a_new_job() -> None:
    story = Story(3)
    now = Situation(start=3, placed=1, running=0, is_started=False)
    assert scaling.scale(story.policy, Corrupt("it is of another version"), now, BEGIN_S).target == 3
