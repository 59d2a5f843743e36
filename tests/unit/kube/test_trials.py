from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from waiting import PATIENCE_S

from planaria.errors import KubeError
from planaria.kube.logline import Metric
from planaria.kube.trials import CHILDREN, Trials

KEY = ("n", "resnet")
GOOD, BAD, SLOW = Metric("good"), Metric("bad"), Metric("slow")


def run(story: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(story, PATIENCE_S))


class Desk:
    """Checks as a child would: slow ones last until they are let go."""

    def __init__(self) -> None:
        self.woken: list[tuple[str, str]] = []
        self.has_woken = asyncio.Event()
        self.asked: list[str] = []
        self.go_on = asyncio.Event()
        self.failures = 0
        self.problem: Exception = KubeError("got no turn")
        self.trials = Trials(self.wake, self.check)

    def wake(self, key: tuple[str, str]) -> None:
        self.woken.append(key)
        self.has_woken.set()

    async def check(self, metric: Metric) -> str:
        self.asked.append(metric.pattern)
        if metric == SLOW:
            await self.go_on.wait()
        if self.failures:
            self.failures -= 1
            raise self.problem
        return "it is bad" if metric == BAD else ""

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.has_woken.clear()
            await self.has_woken.wait()


def test_a_pattern_is_tried_once_and_its_job_is_woken_then() -> None:
    async def story() -> None:
        desk = Desk()
        trial = desk.trials.of(KEY, BAD)
        assert (trial.sentence, trial.trouble) == (None, "")
        assert desk.trials.of(KEY, BAD) is trial
        await desk.until(lambda: desk.woken == [KEY])
        assert desk.trials.of(KEY, BAD).sentence == "it is bad"
        assert desk.trials.of(KEY, GOOD).sentence is None, "another one"
        await desk.until(lambda: desk.woken == [KEY, KEY])
        assert desk.trials.of(KEY, GOOD).sentence == ""
        assert desk.asked == ["bad", "good"]

    run(story())


def test_sixty_slow_patterns_of_one_namespace_hold_two_children_and_another_namespace_is_next() -> None:
    async def story() -> None:
        desk = Desk()
        for number in range(60):
            desk.trials.of(("many", str(number)), SLOW)
        desk.trials.of(KEY, GOOD)
        await asyncio.sleep(0)  # the first tasks begin
        assert desk.asked == ["slow"] * CHILDREN
        desk.go_on.set()
        await desk.until(lambda: KEY in desk.woken)
        assert desk.asked.index("good") <= 2 * CHILDREN
        await desk.until(lambda: len(desk.woken) == 61)
        assert desk.asked.count("slow") == 60

    run(story())


def test_what_could_not_be_tried_says_why_and_is_tried_again() -> None:
    async def story() -> None:
        desk = Desk()
        desk.failures = 3
        trial = desk.trials.of(KEY, GOOD)
        trial.pause_s = 0.0
        await desk.until(lambda: len(desk.woken) == 1)
        assert (trial.sentence, trial.trouble) == (None, "got no turn")
        await desk.until(lambda: len(desk.woken) == 4)
        assert desk.trials.of(KEY, GOOD).sentence == ""

    run(story())


def test_a_trial_that_ends_by_a_fault_says_so_and_is_tried_again() -> None:
    async def story() -> None:
        desk = Desk()
        desk.failures, desk.problem = 1, RuntimeError("fork")
        trial = desk.trials.of(KEY, GOOD)
        trial.pause_s = 0.0
        await desk.until(lambda: len(desk.woken) == 1)
        assert (trial.sentence, trial.trouble) == (None, "it could not be tried: RuntimeError")
        await desk.until(lambda: len(desk.woken) == 2)
        assert desk.trials.of(KEY, GOOD).sentence == ""

    run(story())


def test_each_pause_is_longer() -> None:
    async def story() -> None:
        desk = Desk()
        desk.failures = 9
        trial = desk.trials.of(KEY, GOOD)
        pauses = []
        for count in range(1, 9):
            await desk.until(lambda: len(desk.woken) == count)  # noqa: B023  awaited at once
            pauses.append(trial.pause_s)
            desk.trials._enter(KEY)  # as its timer does
        assert pauses == [4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 60.0]
        await desk.trials.close()

    run(story())


def test_the_pattern_of_a_job_that_runs_is_not_tried_again_by_another_operator_unless_it_is_changed() -> None:
    async def story() -> None:
        desk = Desk()
        assert desk.trials.of(KEY, GOOD, was_accepted=True).sentence == ""
        assert desk.trials.of(KEY, BAD, was_accepted=True).sentence is None
        await desk.until(lambda: desk.woken == [KEY])
        assert desk.asked == ["bad"]

    run(story())


def test_nobody_is_woken_for_a_job_that_is_gone_or_has_another_pattern_by_now() -> None:
    async def story() -> None:
        desk = Desk()
        desk.trials.of(KEY, SLOW)
        desk.trials.of(("n", "gone"), SLOW)
        await asyncio.sleep(0)  # both begin
        desk.trials.of(KEY, BAD)
        desk.trials.drop(("n", "gone"))
        desk.go_on.set()
        await desk.until(lambda: bool(desk.woken))
        assert desk.woken == [KEY]
        assert desk.trials.of(KEY, BAD).sentence == "it is bad"
        await desk.trials.close()

    run(story())


def test_closing_ends_what_is_being_tried() -> None:
    async def story() -> None:
        desk, before = Desk(), asyncio.all_tasks()
        for name in ("a", "b", "c"):
            desk.trials.of(("n", name), SLOW)
        await asyncio.sleep(0)  # they begin
        assert len(asyncio.all_tasks() - before) == CHILDREN
        await desk.trials.close()
        assert asyncio.all_tasks() == before

    run(story())
