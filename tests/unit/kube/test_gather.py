from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from waiting import until

from planaria.base.value import replace
from planaria.errors import KubeError
from planaria.kube import gather
from planaria.kube.gather import Gatherer, Idle
from planaria.kube.logline import Metric
from planaria.kube.logs import LogReader
from planaria.kube.measuring import HOLD_S, HUSH_S, REST_S
from planaria.kube.scaling_model import Sample, Wants
from planaria.kube.sources import Source, Worker
from planaria.kube.status import was_accepted

KEY = ("n", "resnet")
LINE = "Epoch: [17][{step:4}/1563]\tTime  {time:.3f} ( 0.385)\tData  0.155 ( 0.170)"


class Logs:
    """What containers have printed, as a kubelet tells it: each line with its time."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {}
        self.second = 0
        self.asked: list[dict[str, str]] = []
        self.away = False

    def print(self, pod: str, text: str) -> None:
        self.second += 1
        self.lines.setdefault(pod, []).append(
            f"2022-09-11T12:{self.second // 60:02}:{self.second % 60:02}.000000000Z {text}"
        )

    async def log(self, _namespace: str, pod: str, container: str, query: dict[str, str]) -> str:
        self.asked.append({"pod": pod, "container": container, **query})
        if self.away:
            raise KubeError("no kubelet", status=500)
        return "\n".join(self.lines.get(pod, ()))


def source(*pods: str) -> Source:
    return Source("n", tuple(Worker(pod, pod) for pod in pods), "pytorch")


def reader(logs: Logs, metric: Metric | None = None) -> LogReader:
    return LogReader(logs, metric or Metric())  # type: ignore[arg-type]  # it only reads logs


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(story())  # type: ignore[arg-type]  # a coroutine


def test_lines_count_once_and_only_after_the_newest_worker_has_printed_a_step() -> None:
    async def story() -> None:
        logs = Logs()
        reading = reader(logs)
        logs.print("w-0", LINE.format(step=0, time=5.9))
        logs.print("w-1", "loading data")
        assert await reading.look(source("w-0", "w-1"), 25) == ([], "")
        logs.print("w-0", LINE.format(step=50, time=0.2))  # trained alone: the other still loads
        logs.print("w-1", LINE.format(step=50, time=0.3))
        assert await reading.look(source("w-0", "w-1"), 25) == ([], "")
        logs.print("w-0", LINE.format(step=100, time=0.25))
        logs.print("w-1", LINE.format(step=100, time=0.25))
        assert await reading.look(source("w-0", "w-1"), 25) == ([Sample(2, seconds=0.25, step=100, epoch=17)], "")
        await reading.close()

    run(story)


def test_another_size_begins_anew() -> None:
    async def story() -> None:
        logs = Logs()
        reading = reader(logs)
        for step in range(3):
            logs.print("w-0", LINE.format(step=step, time=0.2))
            found = await reading.look(source("w-0"), 25)
        assert found == ([Sample(1, seconds=0.2, step=2, epoch=17)], "")
        logs.print("w-0", LINE.format(step=3, time=0.2))
        assert await reading.look(source("w-0", "w-1"), 25) == ([], "")
        await reading.close()

    run(story)


def test_the_lines_of_those_who_stayed_wait_for_the_one_who_is_new_whatever_his_index() -> None:
    async def story() -> None:
        logs = Logs()
        reading = reader(logs)
        both = source("w-0", "w-1")
        for step in range(3):
            for pod in ("w-0", "w-1"):
                logs.print(pod, LINE.format(step=step, time=0.2))
            found = await reading.look(both, 25)
        assert found == ([Sample(2, seconds=0.2, step=2, epoch=17)], "")
        again = replace(both, workers=(Worker("w-0", "w-0", restarts=1), both.workers[1]))
        for step in range(3, 6):
            logs.print("w-1", LINE.format(step=step, time=0.1))  # a world of one: the other starts
            assert await reading.look(again, 25) == ([], "")
        for step in range(6, 8):
            for pod in ("w-0", "w-1"):
                logs.print(pod, LINE.format(step=step, time=0.2))
            found = await reading.look(again, 25)
        assert found == ([Sample(2, seconds=0.2, step=7, epoch=17)], "")
        await reading.close()

    run(story)


def test_reading_is_bounded_in_bytes_lines_and_age() -> None:
    async def story() -> None:
        logs = Logs()
        await reader(logs).look(source("w-0"), 25)
        (asked,) = logs.asked
        assert (asked["limitBytes"], asked["tailLines"], asked["sinceSeconds"]) == ("262144", "200", "25")
        assert "follow" not in asked

    run(story)


def pushed(step: int, samples: float | None, seconds: float, nodes: int = 2) -> str:
    told: dict[str, Any] = {
        "version": 1,
        "round": 1,
        "nodes": nodes,
        "step": step,
        "samples": samples,
        "seconds": seconds,
    }
    return json.dumps(told)


def test_what_agents_push_becomes_samples_that_stay_until_they_are_taken() -> None:
    async def story() -> None:
        gatherer = Gatherer(Logs(), lambda _: None, lambda: 0.5)  # type: ignore[arg-type]  # it only reads logs
        for text in (pushed(10, 640, 10.0), pushed(20, 1280, 14.0), pushed(20, 1280, 14.0)):
            gatherer.push(KEY, text)
        wanted = (Sample(2, rate=160.0, step=20),)
        assert gatherer.metrics(KEY).samples == wanted
        assert gatherer.metrics(KEY).samples == wanted, "a status that was not written loses none"
        gatherer.push(KEY, pushed(30, 1920, 18.0))
        assert gatherer.taken(KEY, 1, Wants()) == 0.0
        assert gatherer.metrics(KEY).samples == (Sample(2, rate=160.0, step=30),)
        await gatherer.drop(KEY)
        assert gatherer.metrics(KEY).samples == ()

    run(story)


def test_what_jobs_of_one_name_in_two_namespaces_push_is_not_mixed() -> None:
    async def story() -> None:
        gatherer = Gatherer(Logs(), lambda _: None, lambda: 0.5)  # type: ignore[arg-type]  # it only reads logs
        other = ("elsewhere", KEY[1])
        for step in (10, 20):
            gatherer.push(KEY, pushed(step, 64.0 * step, step))
            gatherer.push(other, pushed(2 * step, 640.0 * step, step, nodes=3))
        assert gatherer.metrics(KEY).samples == (Sample(2, rate=64.0, step=20),)
        assert gatherer.metrics(other).samples == (Sample(3, rate=640.0, step=40),)
        await gatherer.drop(other)
        assert gatherer.metrics(KEY).samples == (Sample(2, rate=64.0, step=20),)

    run(story)


def test_samples_are_handed_over_together_when_as_many_are_there_as_are_wanted() -> None:
    async def story() -> None:
        gatherer = Gatherer(Logs(), lambda _: None, lambda: 0.5)  # type: ignore[arg-type]  # it only reads logs
        assert gatherer.taken(KEY, 0, Wants(2)) is None
        for text in (pushed(10, 640, 10.0), pushed(20, 1280, 14.0)):
            gatherer.push(KEY, text)
        assert gatherer.metrics(KEY).samples == ()
        assert 0.0 < (gatherer.taken(KEY, 0, Wants(2)) or 0.0) <= HOLD_S
        gatherer.push(KEY, pushed(30, 1920, 18.0))
        assert [sample.step for sample in gatherer.metrics(KEY).samples] == [20, 30]
        assert 0.0 < (gatherer.taken(KEY, 0, Wants(2, is_measuring=False)) or 0.0) <= REST_S
        assert gatherer.metrics(KEY).samples == (), "it rests"
        assert gatherer.taken(KEY, 2, Wants()) is None

    run(story)


def test_what_cannot_be_read_is_told_until_it_can_be() -> None:
    async def story() -> None:
        gatherer = Gatherer(Logs(), lambda _: None, lambda: 0.5)  # type: ignore[arg-type]  # it only reads logs
        gatherer.push(KEY, "nonsense")
        assert "cannot be read" in gatherer.metrics(KEY).trouble
        gatherer.push(KEY, pushed(10, 640, 10.0))
        assert gatherer.metrics(KEY).trouble == ""

    run(story)


def test_logs_are_read_until_agents_push_and_a_job_whose_logs_are_away_says_so() -> None:
    async def story() -> None:
        logs, woken = Logs(), []
        gatherer = Gatherer(logs, woken.append, lambda: 0.5, every_s=0.01)  # type: ignore[arg-type]  # it only reads logs
        logs.away = True
        gatherer.follow(KEY, source("w-0"))
        await until(lambda: "the logs cannot be read: no kubelet" in gatherer.metrics(KEY).trouble)
        logs.away = False
        await until(lambda: not gatherer.metrics(KEY).trouble)
        assert woken
        gatherer.push(
            KEY, json.dumps({"version": 1, "round": 1, "nodes": 1, "step": None, "samples": None, "seconds": 0.0})
        )
        asked = len(logs.asked)
        await until(lambda: len(logs.asked) > asked)  # an agent whose program tells it nothing
        gatherer.push(KEY, pushed(10, 640, 10.0))
        await until(lambda: gatherer._jobs[KEY].task is None)
        gatherer.follow(KEY, source("w-0"))
        assert gatherer._jobs[KEY].task is None
        await gatherer.close()

    run(story)


def test_logs_are_read_again_when_agents_have_not_pushed_for_long_and_lines_go_on() -> None:
    async def story() -> None:
        logs = Logs()
        now = 0.0
        gatherer = Gatherer(logs, lambda _: None, lambda: 0.5, 0.01, lambda: now)  # type: ignore[arg-type]  # it only reads logs
        gatherer.push(KEY, pushed(10, 640, 10.0))
        gatherer.follow(KEY, source("w-0"))
        job = gatherer._jobs[KEY]
        assert job.task is None
        now = HUSH_S
        gatherer.follow(KEY, source("w-0"))
        for step in range(8):
            logs.print("w-0", LINE.format(step=step, time=0.2))
            asked = len(logs.asked)
            await until(lambda: len(logs.asked) > asked + 2)  # noqa: B023  awaited at once
            if step < 5:
                assert job.samples == [], "a few lines may belong to a push that comes"
        assert job.samples[-1] == Sample(1, seconds=0.2, step=7, epoch=17, is_only=True)
        gatherer.push(KEY, pushed(20, 1280, 14.0))
        await until(lambda: job.task is None)
        await gatherer.close()

    run(story)


def test_a_search_that_begins_again_does_not_wait_for_the_next_look_of_one_that_rested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    waited = gather._changes

    async def changes(job: Any, within_s: float) -> bool:
        waits.append(within_s)
        return await waited(job, within_s)

    monkeypatch.setattr(gather, "_changes", changes)

    async def story() -> None:
        logs = Logs()
        gatherer = Gatherer(logs, lambda _: None, lambda: 0.5, every_s=0.01)  # type: ignore[arg-type]  # it only reads logs
        gatherer.follow(KEY, replace(source("w-0"), is_resting=True))
        await until(lambda: bool(waits))
        assert (waits, logs.asked) == ([gather.REST_S], [])
        gatherer.follow(KEY, source("w-0"))
        await until(lambda: len(logs.asked) > 2)
        gatherer.follow(KEY, None)
        await until(lambda: gatherer._jobs[KEY].task is None)
        await gatherer.close()

    run(story)


def test_logs_of_a_job_whose_pattern_was_given_up_are_not_read_any_more() -> None:
    async def story() -> None:
        logs = Logs()
        hopeless, other = reader(logs, Metric("(")), reader(logs, Metric(r"took (?P<time>\S+)"))
        for step in range(2):
            logs.print("w-0", f"step {step} took 0.5")
            found = await hopeless.look(source("w-0"), 25)
            assert found[0] == []
            assert found[1].startswith("spec.elasticPolicy.metric.pattern expects a regular expression of Python")
            asked = len(logs.asked)
            assert (await other.look(source("w-0"), 25))[1] == ""
        await hopeless.look(source("w-0"), 25)
        assert len(logs.asked) == asked + 1, "that was the other one"
        await other.close()

    run(story)


def test_of_many_jobs_with_patterns_of_their_own_few_have_a_process_that_waits_for_lines() -> None:
    async def story() -> None:
        logs, metric = Logs(), Metric(r"step (?P<step>\d+) took (?P<time>\S+)")
        gatherer = Gatherer(logs, lambda _: None, lambda: 0.5)  # type: ignore[arg-type]  # it only reads logs
        gatherer._idle = Idle(2)
        pods = [f"w-{index}" for index in range(4)]
        jobs = [gatherer._job(("n", pod)) for pod in pods]

        async def look(index: int, step: int) -> None:
            logs.print(pods[index], f"step {step} took 0.5")
            await gatherer._look(jobs[index], replace(source(pods[index]), metric=metric), 25)

        def processes() -> list[bool]:
            return [job.reader is not None and job.reader.has_process for job in jobs]

        for index in range(4):
            await look(index, 1)
        assert processes() == [False, False, True, True]
        await look(2, 2)
        await look(0, 2)
        assert processes() == [True, False, True, False], "the one that waited the longest has none"
        assert [sample.step for sample in jobs[0].samples] == [2], "what it had read before is not read again"
        for job in jobs:
            await gatherer._end(job.reader)
        assert processes() == [False] * 4
        assert not gatherer._idle._readers
        await gatherer.close()

    run(story)


def test_a_job_that_is_dropped_forgets_what_was_tried_for_it() -> None:
    async def story() -> None:
        woken: list[tuple[str, str]] = []
        gatherer = Gatherer(Logs(), woken.append, lambda: 0.5)  # type: ignore[arg-type]  # it only reads logs
        wrong = Metric(r"took (?P<time>\d+\.\d+)", sample="lasted 0.5")
        first = gatherer.trial(KEY, wrong)
        await until(lambda: woken == [KEY])
        assert "metric.sample" in (first.sentence or "")
        assert gatherer.trial(KEY, wrong) is first
        await gatherer.drop(KEY)
        assert gatherer.trial(KEY, wrong).sentence is None
        await gatherer.close()

    run(story)


def test_a_job_was_accepted_once_an_operator_has_begun_with_it_and_not_while_its_spec_is_wrong() -> None:
    begun = {"operator": {"fixed": {"enableElastic with elasticPolicy": "true"}}}
    assert was_accepted({**begun, "conditions": [{"type": "Running", "status": "True"}]})
    assert not was_accepted({**begun, "conditions": [{"type": "Invalid", "status": "True"}]})
    assert not was_accepted({})
