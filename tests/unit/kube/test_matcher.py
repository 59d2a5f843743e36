from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Coroutine
from typing import TypeVar

import pytest

from planaria.errors import KubeError
from planaria.kube import matcher as module
from planaria.kube.logline import Metric, Reading
from planaria.kube.matcher import BATCH_LINES, MOST_DEATHS, Matched, Matcher, check

OURS = Metric(r"step (?P<step>\d+) of epoch (?P<epoch>\d+): (?P<time>[\d.]+) ms", unit="ms")
SLOW = Metric(r"(?P<time>(a+)+)$")
NO_MATCH = "spec.elasticPolicy.metric.sample expects a line that the pattern matches, with a time above 0"
TOO_SLOW = (
    "spec.elasticPolicy.metric.pattern expects one that is fast and small, this one took more than 0.5 s on the sample"
)
PATIENT_S = 90.0  # on a machine that is busy with others a second of computing may take long
BAIT = "a" * 64 + "b"

Kind = TypeVar("Kind")


def run(coroutine: Coroutine[object, object, Kind]) -> Kind:
    return asyncio.run(asyncio.wait_for(coroutine, 100))


def is_there(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def test_lines_in_the_default_format_need_no_child() -> None:
    async def story() -> None:
        matcher = Matcher(Metric())
        assert await matcher.read(["hello", "Epoch: [1][ 50/99]\tTime  0.5 ( 0.5)"]) == Matched((Reading(0.5, 50, 1),))
        assert matcher.pid is None
        await matcher.close()

    run(story())


def test_one_child_reads_all_batches_of_a_job_and_goes_with_it() -> None:
    async def story() -> int:
        matcher = Matcher(OURS)
        assert await matcher.read(["step 5 of epoch 2: 250 ms", "\ud800 noise \n"]) == Matched((Reading(0.25, 5, 2),))
        first = matcher.pid
        many = [f"step {step} of epoch 0: 250 ms" for step in range(2 * BATCH_LINES + 1)]
        found = await matcher.read(many)
        assert [one.step for one in found.readings] == [*range(len(many))]
        assert matcher.pid == first is not None
        await matcher.close()
        assert matcher.pid is None
        return first

    assert not is_there(run(story()))


def test_a_pattern_that_never_ends_is_ended_and_costs_nobody_else_anything() -> None:
    async def story() -> None:
        slow, other = Matcher(SLOW, wall_s=PATIENT_S), Matcher(OURS, wall_s=PATIENT_S)
        stuck = asyncio.create_task(slow.read([BAIT]))
        readings = [await other.read([f"step {step} of epoch 0: 1 ms"]) for step in range(20)]
        assert all(one.readings and not one.trouble for one in readings)
        sentence = "spec.elasticPolicy.metric.pattern took more than 0.5 s on lines of this job"
        assert await stuck == Matched((), sentence, fault="took more than 0.5 s")
        assert slow.pid is None
        assert await slow.read(["a"]) == Matched((), sentence, fault="took more than 0.5 s"), "it rests, and says why"
        assert slow.pid is None
        await other.close()

    run(story())


def test_a_child_that_ends_by_itself_is_not_killed_which_would_take_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[object] = []
    monkeypatch.setattr(module, "_kill", killed.append)

    async def story() -> Matched:
        return await Matcher(SLOW, wall_s=PATIENT_S).read([BAIT])

    assert (run(story()).fault, killed) == ("took more than 0.5 s", [])


def test_after_its_rest_a_pattern_is_tried_again_and_each_rest_is_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.0)

    async def story() -> None:
        matcher = Matcher(OURS, wall_s=100.0)
        await matcher.read(["step 1 of epoch 0: 1 ms"])
        assert matcher.pid is not None
        os.kill(matcher.pid, 9)
        lost = await matcher.read(["step 2 of epoch 0: 1 ms"])
        assert lost.trouble == (
            "spec.elasticPolicy.metric.pattern could not be run on lines of this job: "
            "its process was ended from outside (signal 9)"
        )
        assert await matcher.read(["step 3 of epoch 0: 1 ms"]) == Matched((Reading(0.001, 3, 0),))
        await matcher.close()

    run(story())


def test_rests_double_up_to_the_longest_while_the_pattern_is_not_to_blame(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_: Matcher) -> asyncio.subprocess.Process:
        raise BlockingIOError(11, os.strerror(11))

    monkeypatch.setattr(Matcher, "_start", nothing)

    async def story() -> list[float]:
        matcher = Matcher(OURS)
        rests = []
        for _ in range(9):
            matcher._rests_until = 0.0
            told = (await matcher.read(["a"])).mishap
            assert told == "no process could be started for it (Resource temporarily unavailable)"
            rests.append(matcher._pause_s)
        assert not matcher.given_up
        return rests

    assert run(story()) == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0, 600.0]


def test_a_pattern_whose_child_ends_a_few_times_in_a_row_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(module, "GROUP_LIMIT", "")  # no child can do anything with that

    async def story() -> str:
        matcher = Matcher(OURS)  # such a child ends at once
        for _ in range(MOST_DEATHS):
            assert not matcher.given_up
            last = await matcher.read(["step 1 of epoch 0: 1 ms"])
        assert matcher.given_up == last.trouble
        monkeypatch.setattr(Matcher, "_start", None)  # nobody is started any more
        assert await matcher.read(["a"]) == last
        return last.trouble

    assert run(story()) == (
        "spec.elasticPolicy.metric.pattern ended its process with an error on lines of this job, "
        "5 times in a row: it is not run any more until it is changed"
    )


def test_one_batch_that_was_read_is_enough_to_begin_counting_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.0)

    async def story() -> None:
        matcher = Matcher(OURS)
        for _ in range(2 * MOST_DEATHS):
            assert (await matcher.read(["step 1 of epoch 0: 1 ms"])).readings
            assert matcher.pid is not None
            os.kill(matcher.pid, 9)
            assert not (await matcher.read(["step 2 of epoch 0: 1 ms"])).readings
        assert not matcher.given_up
        await matcher.close()

    run(story())


def test_a_pattern_that_needs_too_much_memory_is_told_so_and_is_refused_on_its_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MEMORY_BYTES", 1 << 20)  # less than the child has: it gets no more

    async def story() -> Matched:
        return await Matcher(OURS).read(["x" * 4096] * BATCH_LINES)

    assert run(story()) == Matched(
        (),
        "spec.elasticPolicy.metric.pattern needed more than 1 MiB on lines of this job",
        fault="needed more than 1 MiB",
    )
    deep = r"(?P<time>(?:xx?)+)"  # each round is kept, should another way be needed
    sentence = run(check(Metric(deep, sample="x" * 4096), wall_s=PATIENT_S))
    assert sentence == (
        "spec.elasticPolicy.metric.pattern expects one that is fast and small, this one needed more than 1 MiB on the sample"
    )


def test_a_reader_that_gives_up_does_not_leave_its_answer_to_the_next() -> None:
    async def story() -> None:
        matcher = Matcher(OURS)
        await matcher.read(["step 1 of epoch 0: 1 ms"])
        task = asyncio.create_task(matcher.read(["step 2 of epoch 0: 1 ms"]))
        await asyncio.sleep(0)  # it has asked, and not been answered
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await matcher.read(["step 3 of epoch 0: 1 ms"]) == Matched((Reading(0.001, 3, 0),))
        await matcher.close()

    run(story())


def test_lines_and_groups_that_are_too_long_are_cut_or_left_out() -> None:
    async def story() -> None:
        matcher = Matcher(Metric(r"(?P<time>\d+)"))
        assert await matcher.read(["x" * 5000 + "7", "9" * 40, "7"]) == Matched((Reading(7.0),))
        await matcher.close()

    run(story())


@pytest.mark.parametrize(
    ("metric", "sentence"),
    [
        (Metric(), ""),
        (Metric(OURS.pattern), ""),
        (Metric(OURS.pattern, sample="step 5 of epoch 2: 250 ms"), ""),
        (Metric(sample="Epoch: [1][ 50/99] Time 0.5"), ""),
        (Metric(r"[[](?P<time>\d+)"), ""),  # it may mean something else one day
        (Metric(OURS.pattern, sample="step 5"), NO_MATCH),
        (Metric(OURS.pattern, sample="step 5 of epoch 2: 0.0 ms"), NO_MATCH),
        (Metric(SLOW.pattern, sample=BAIT), TOO_SLOW),
    ],
)
def test_a_sample_line_is_tried_before_anything_is_made(metric: Metric, sentence: str) -> None:
    assert run(check(metric, wall_s=PATIENT_S)) == sentence


@pytest.mark.parametrize("sample", ["", "took 5 s"])
@pytest.mark.parametrize(
    "pattern",
    ["(", "[a", "(?P<time", "(?P<1>a)", "*", "(?P<time>.)(?P<time>.)", "a{99999999999}", "(" * 20_000 + ")" * 20_000],
    ids=lambda pattern: pattern[:16],
)
def test_a_pattern_that_cannot_be_read_is_refused_in_one_sentence(pattern: str, sample: str) -> None:
    sentence = run(check(Metric(pattern, sample=sample), wall_s=PATIENT_S))
    assert sentence.startswith("spec.elasticPolicy.metric.pattern expects a regular expression of Python, got one that")
    assert "\n" not in sentence


def test_a_pattern_without_a_time_is_refused() -> None:
    sentence = "spec.elasticPolicy.metric.pattern expects a group named time, such as (?P<time>[0-9.]+)"
    assert run(check(Metric(r"took (?P<seconds>\d+)"), wall_s=PATIENT_S)) == sentence


def test_a_pattern_that_cannot_be_read_is_given_up_at_once() -> None:
    async def story() -> None:
        matcher = Matcher(Metric("("))
        found = await matcher.read(["a"])
        assert found.is_unfit
        assert matcher.given_up == found.trouble
        assert matcher.pid is None

    run(story())


def test_a_machine_without_a_turn_for_the_child_says_nothing_about_the_pattern() -> None:
    async def story() -> Matched:
        matcher = Matcher(Metric(SLOW.pattern), cpu_s=60.0, wall_s=0.5)
        return await matcher.read([BAIT])

    lost = run(story())
    assert (lost.fault, lost.trouble) == (
        "",
        "spec.elasticPolicy.metric.pattern could not be run on lines of this job: it was not done within 0.5 s",
    )


def test_a_child_that_is_killed_while_a_sample_is_tried_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Matcher._start

    async def killed(matcher: Matcher) -> asyncio.subprocess.Process:
        child = await start(matcher)
        child.kill()
        return child

    monkeypatch.setattr(Matcher, "_start", killed)
    sentence = "it could not be tried on the sample: its process was ended from outside (signal 9)"
    with pytest.raises(KubeError, match=re.escape(sentence)):
        run(check(Metric(OURS.pattern, sample="step 5 of epoch 2: 250 ms"), wall_s=PATIENT_S))
