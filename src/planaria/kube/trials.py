"""Try the patterns of jobs on their sample lines: beside the looks at jobs, a few at a time, namespaces in turn.

A pattern may take its whole budget, and so may the next hundred of the same owner. Nobody waits for that but their own jobs,
which are woken when it is known what came out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from planaria.errors import KubeError
from planaria.kube import matcher
from planaria.kube.turns import Turns

if TYPE_CHECKING:
    from planaria.kube.logline import Metric
    from planaria.kube.watching import Key

CHILDREN = 2  # that compute at the same time: more would only share what processors there are
FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0


class Trial:
    """What is known of one job's pattern."""

    def __init__(self, metric: Metric, sentence: str | None = None) -> None:
        self.metric = metric
        self.sentence = sentence  # what is wrong with it, "" for nothing; None: it was not tried yet
        self.trouble = ""  # why it could not be tried, the last time
        self.pause_s = FIRST_PAUSE_S


class Trials:
    """The trials of all jobs. `wake(key)` is called when there is something new to say about one."""

    def __init__(
        self, wake: Callable[[Key], object], check: Callable[[Metric], Awaitable[str]] = matcher.check
    ) -> None:
        self._wake = wake
        self._check = check
        self._known: dict[Key, Trial] = {}
        self._waiting = Turns()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    def of(self, key: Key, metric: Metric, *, was_accepted: bool = False) -> Trial:
        """Return the trial of a job's metric, which begins when it is asked for first.

        With `was_accepted`, a metric that is new to this operator was tried by the one before: a job that runs is not judged
        again.
        """
        known = self._known.get(key)
        if known is None and was_accepted:
            known = self._known[key] = Trial(metric, "")
        if known is None or known.metric != metric:
            known = self._known[key] = Trial(metric)
            self._enter(key)
        return known

    def drop(self, key: Key) -> None:
        """Forget a job; what is being tried for it comes to its end, and nobody is told."""
        self._known.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    async def close(self) -> None:
        """Forget all jobs, and end what is being tried."""
        for key in list(self._known):
            self.drop(key)
        running = list(self._tasks)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _enter(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._waiting.add(key)
        self._begin()

    def _begin(self) -> None:
        while self._waiting and len(self._tasks) < CHILDREN:
            key = self._waiting.take()
            trial = self._known.get(key)
            if trial is not None and trial.sentence is None:
                task = asyncio.get_running_loop().create_task(self._try(key, trial))
                self._tasks.add(task)
                task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._begin()

    async def _try(self, key: Key, trial: Trial) -> None:
        try:
            trial.sentence = await self._check(trial.metric)
        except KubeError as problem:
            trial.trouble = problem.message
        except Exception as problem:  # noqa: BLE001  its job would wait for ever
            trial.trouble = f"it could not be tried: {type(problem).__name__}"
        if self._known.get(key) is not trial:  # it has gone, or has another pattern by now
            return
        if trial.sentence is None:
            self._timers[key] = asyncio.get_running_loop().call_later(trial.pause_s, self._enter, key)
            trial.pause_s = min(2 * trial.pause_s, LONGEST_PAUSE_S)
        self._wake(key)
