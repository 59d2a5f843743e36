"""Rules about room: each test is a row of docs/scaling.md, and each row a test (tests/meta/test_scaling_doc.py)."""

from __future__ import annotations

import pytest
from scaling_story import Story, block

from planaria.kube import moves

CONTINUES = "Pytorch job continues to be scaled"
PENDING = "There exists pending pods, return to the last replicas"
NO_ROOM = "There is no room for the smallest number of replicas, the job waits for it"


def two_of_three() -> Story:
    """Return a job that could have three Workers, where there is room for two."""
    story = Story(1, most=3)
    story.measure(100.0)
    story.measure(200.0)
    story.crowd(placed=2)
    return story


def test_pods_without_a_node_bring_the_last_size_back_as_the_tutorial_shows() -> None:
    story = two_of_three()
    assert story.sizes == [1, 2, 3, 2]
    assert story.block() == block("Stop", False, 2, 3, PENDING)
    assert story.verdict.elastic.since_s == story.now_s


def test_a_trial_that_also_loses_a_node_returns_to_what_is_left() -> None:
    story = Story(2, least=1, most=8)
    story.measure(200.0)
    story.see(samples=story.samples(4, 400.0))
    story.crowd(placed=1)
    assert story.sizes == [2, 4, 1]
    assert story.verdict.evidence.window == ()


QUOTA = "Pod resnet-worker-2 was refused: exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2"


def test_pods_that_the_server_will_not_make_bring_the_last_size_back_with_its_words() -> None:
    story = Story(1, most=3)
    story.measure(100.0)
    story.measure(200.0)
    story.see(placed=2, running=2, refused_s=59.0, refusal=QUOTA, after_s=59.0)
    assert story.verdict.target == 3
    assert story.verdict.wake_after_s == 1.0
    story.see(placed=2, running=2, refused_s=60.0, refusal=QUOTA)
    assert story.block() == block("Stop", False, 2, 3, f"{QUOTA}, return to the last replicas")
    assert story.verdict.reason == "PodsRefused"
    story.measure(200.0, refused_s=61.0, refusal=QUOTA)  # it is remembered for a moment
    story.see(after_s=story.policy.retry_s)
    assert story.sizes == [1, 2, 3, 2, 3]


def test_what_is_said_again_later_is_true_of_nodes_and_of_quotas() -> None:
    story = Story(2, most=3)
    story.measure(100.0)
    story.see(placed=2, running=2, refused_s=60.0, refusal=QUOTA, after_s=60.0)
    stood = moves.stand(story.verdict.evidence, story.now_s, "Measured")
    assert (stood.elastic.condition, stood.elastic.message) == (
        "Stop",
        "There was no room for more replicas, return to the last replicas",
    )


def test_where_the_server_makes_too_few_pods_at_all_the_size_stays() -> None:
    story = Story(4, least=2)
    story.see(placed=1, running=1, refused_s=100.0, refusal=QUOTA, after_s=100.0)
    assert story.block() == block("Start", True, 4, None, "")


def test_words_of_the_server_that_are_long_still_end_with_what_was_done() -> None:
    story = Story(2)
    story.see(placed=1, running=1, refused_s=1e6, refusal="x" * 5000, after_s=1e6)
    assert story.verdict.elastic.message.endswith("xx, return to the last replicas")
    assert story.see().reason == "PodsRefused"  # what was kept can be read


def test_a_slow_image_pull_is_not_taken_for_a_lack_of_room() -> None:
    story = Story(1)
    story.measure(100.0)
    story.see(placed=2, running=1, after_s=1_000.0)
    assert story.sizes == [1, 2]
    assert story.verdict.elastic.condition == "Continue"


def test_the_scheduler_has_the_whole_grace_to_find_a_node() -> None:
    story = Story(1)
    story.measure(100.0)
    story.see(placed=1, running=1, unschedulable_s=59.0, after_s=59.0)
    assert story.verdict.target == 2
    assert story.verdict.wake_after_s == 1.0
    story.see(placed=2, running=2, after_s=100.0)
    assert story.sizes == [1, 2]


def test_a_return_never_goes_up_whatever_the_size_before_was() -> None:
    story = two_of_three()
    assert story.verdict.elastic.last == 3
    story.measure(200.0)
    story.crowd(placed=1)
    assert story.sizes == [1, 2, 3, 2, 1]
    assert story.block() == block("Stop", False, 1, 2, PENDING)


def test_pods_of_a_size_that_was_given_up_do_not_speak_against_the_next() -> None:
    story = Story(1)
    story.measure(100.0, placed=1, unschedulable_s=500.0)
    story.see(placed=1, running=1, unschedulable_s=501.0)
    assert story.sizes == [1, 2]


def test_the_return_itself_is_not_taken_for_another_lack_of_room() -> None:
    story = two_of_three()
    story.see(placed=2, running=2, unschedulable_s=500.0, after_s=400.0)  # the pod is still being deleted
    assert story.sizes[:4] == [1, 2, 3, 2]
    assert 1 not in story.sizes[4:]


def test_after_a_pause_the_largest_size_that_had_room_is_tried() -> None:
    story = Story(2, most=8)
    story.measure(200.0)
    story.measure(400.0)
    story.crowd(placed=6)  # of 8
    story.measure(400.0)
    story.see(after_s=story.policy.retry_s)
    assert story.sizes == [2, 4, 8, 4, 6]


def pauses_of(story: Story, count: int) -> list[int]:
    """Return how long each pause is while the third Worker of a job finds no room again and again."""
    pauses = []
    for _ in range(count):
        story.measure(200.0)
        assert story.verdict.wake_after_s is not None
        pauses.append(round(story.verdict.wake_after_s + 1.0))
        story.see(after_s=story.verdict.wake_after_s)
        assert story.verdict.target == 3
        story.crowd(placed=2)
    return pauses


def test_each_pause_is_twice_as_long_up_to_the_longest() -> None:
    assert pauses_of(two_of_three(), 6) == [300, 600, 1200, 2400, 3600, 3600]


@pytest.mark.parametrize(("good_for_s", "pause_s"), [(300.0, 300), (200.0, 2400)])
def test_room_that_was_there_for_long_makes_the_pauses_short_again(good_for_s: float, pause_s: int) -> None:
    story = two_of_three()
    assert pauses_of(story, 2) == [300, 600]
    story.measure(200.0)
    story.see(after_s=1200.0)
    story.measure(300.0)
    assert story.verdict.elastic.condition == "ReachMaxReplicas"
    story.see(after_s=good_for_s - story.policy.pending_grace_s - 2.0)
    story.crowd(placed=2)
    assert pauses_of(story, 1) == [pause_s]


def test_capacity_that_appears_is_used_before_the_pause_is_over() -> None:
    story = two_of_three()
    story.measure(200.0, room=True)
    story.see(after_s=story.policy.retry_s / 10)
    assert story.block() == block("Continue", True, 3, 2, CONTINUES)
    story.measure(300.0)
    assert story.verdict.elastic.condition == "ReachMaxReplicas"


def test_once_a_refused_size_is_good_the_search_goes_on_at_once() -> None:
    story = Story(1, most=8)
    story.measure(100.0)
    story.measure(200.0)
    story.crowd(placed=3)
    assert story.sizes == [1, 2, 4, 2]
    story.measure(200.0, room=True)
    story.see(after_s=40.0)
    story.measure(400.0)
    assert story.sizes == [1, 2, 4, 2, 4, 8]
    assert story.block() == block("Continue", True, 8, 4, CONTINUES)


def test_a_lack_of_room_is_not_talked_over_by_missing_samples() -> None:
    story = Story(1, most=4, trial_timeout_s=100.0)
    for rate in (100.0, 200.0, 400.0):
        story.measure(rate)
    story.crowd(placed=3)
    story.see(after_s=200.0)
    assert story.block() == block("Stop", False, 3, 4, PENDING)


def test_capacity_that_appears_brings_the_size_that_had_no_room() -> None:
    story = Story(2, most=8)
    story.measure(200.0)
    story.measure(400.0)
    story.crowd(placed=6)
    story.measure(400.0, room=True)
    story.see(after_s=100.0)
    assert story.sizes == [2, 4, 8, 4, 8]


def test_capacity_that_appeared_once_does_not_shorten_the_next_pause() -> None:
    story = two_of_three()
    story.measure(200.0, room=True)
    story.see(after_s=30.0)
    story.crowd(placed=2)
    story.measure(200.0)
    story.see(after_s=story.policy.retry_s)
    assert story.sizes == [1, 2, 3, 2, 3, 2]
    story.see(after_s=story.policy.retry_s)
    assert story.sizes == [1, 2, 3, 2, 3, 2, 3]


def test_capacity_that_appears_means_nothing_to_a_job_that_had_enough() -> None:
    story = Story(1)
    before = story.verdict.evidence
    story.measure(100.0)
    story.measure(101.0)
    refused = story.see().evidence
    assert story.see(room=True).evidence == refused
    assert before != refused


def test_capacity_that_comes_and_goes_does_not_drive_a_job_up_and_down() -> None:
    story = two_of_three()
    story.sizes.clear()
    story.sizes.append(2)
    until = story.now_s + 3600.0
    while story.now_s < until:
        size = story.sizes[-1]
        if size == 2:
            story.measure(200.0, room=True, after_s=10.0)
        else:
            story.see(placed=2, running=2, room=True, unschedulable_s=story.now_s, after_s=10.0)
    assert len(story.sizes) <= 30


def test_a_loss_at_rest_goes_on_with_what_is_left() -> None:
    story = Story(1, most=3)
    for rate in (100.0, 200.0, 300.0):
        story.measure(rate)
    story.see(placed=2, running=2, after_s=500.0)  # a node died; nobody has said that there is no other
    assert story.verdict.target == 3
    story.crowd(placed=2)
    assert story.sizes == [1, 2, 3, 2]
    story.see(room=True)
    story.see(after_s=40.0)
    assert story.sizes == [1, 2, 3, 2, 3]


def test_a_size_that_was_good_comes_back_without_new_samples_of_the_smaller() -> None:
    story = Story(1, most=4)
    for rate in (100.0, 200.0, 400.0):
        story.measure(rate)
    story.crowd(placed=3)
    assert story.sizes == [1, 2, 4, 3]
    story.see(room=True)
    story.see(after_s=40.0)
    assert story.sizes == [1, 2, 4, 3, 4]
    story.measure(400.0)
    assert story.verdict.elastic.condition == "ReachMaxReplicas"


def test_a_job_without_room_at_its_minimum_waits_and_is_not_forgotten() -> None:
    story = Story(2, least=2)
    story.crowd(placed=1)
    assert story.block() == block("Stop", False, 2, None, NO_ROOM)
    story.see(placed=1, running=1, unschedulable_s=1e6, after_s=1e6)
    assert story.verdict.target == 2
    story.see()
    assert story.block() == block("Start", True, 2, None, "")
    story.measure(200.0)
    assert story.sizes == [2, 4]


def test_after_a_lack_of_room_at_the_minimum_the_search_stands_where_it_stood() -> None:
    story = Story(1)
    story.measure(100.0)
    story.measure(101.0)
    before = story.block()
    story.crowd(placed=0)
    assert story.verdict.elastic.message == NO_ROOM
    story.see()
    assert story.block() == before


def test_a_start_that_does_not_fit_begins_smaller() -> None:
    story = Story(4, least=1)
    story.crowd(placed=3, is_started=False)
    assert story.sizes == [4, 3]


def test_pods_that_have_ended_are_not_waited_for() -> None:
    story = Story(1, most=2)
    story.measure(100.0)
    story.measure(200.0)
    for _ in range(10):
        story.see(placed=1, running=1, after_s=60.0)
    assert story.sizes == [1, 2]
    assert story.verdict.elastic.condition == "ReachMaxReplicas"
