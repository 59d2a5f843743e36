"""Gather how fast the jobs train: from what their agents push, or else from the last lines of their logs.

What agents push arrives by a watch and costs nothing. Logs are read job by job, each by a task of its own: bounded in bytes,
age and time, never followed. A job whose logs cannot be read, or whose pattern does not end, waits alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from planaria.contract.progress import Record, read
from planaria.errors import KubeError
from planaria.kube import measuring
from planaria.kube.logs import LogReader
from planaria.kube.measuring import Pushes
from planaria.kube.progress import between
from planaria.kube.scaling_model import Wants
from planaria.kube.seen import Metrics
from planaria.kube.trials import Trials

if TYPE_CHECKING:
    from planaria.kube.api import Api
    from planaria.kube.logline import Metric
    from planaria.kube.scaling_model import Sample
    from planaria.kube.sources import Source
    from planaria.kube.trials import Trial
    from planaria.kube.watching import Key

READ_S = 10.0  # between two looks at a log while a job's size is on trial
REST_S = 60.0  # once its search has stopped
_MOST_SAMPLES = 64
_READERS = 16  # logs read at the same time, of all jobs
MOST_IDLE = (
    16  # processes of patterns that wait for the next lines: 4 MiB each, where another start costs 25 ms of computing
)


class _Job:
    """What is known of one job's metrics."""

    def __init__(self, now: float) -> None:
        self.since = now
        self.samples: list[Sample] = []
        self.held_since = now  # the first of them
        self.wants = Wants()
        self.trouble = ""
        self.text = ""
        self.pushed: Record | None = None
        self.pushes = Pushes()
        self.source: Source | None = None
        self.reader: LogReader | None = None
        self.task: asyncio.Task[None] | None = None
        self.has_changed = asyncio.Event()  # how often its log should be read

    def add(self, found: Sequence[Sample], now: float) -> None:
        if not self.samples:
            self.held_since = now
        self.samples = [*self.samples, *found][-_MOST_SAMPLES:]

    def add_lines(self, found: Sequence[Sample], now: float) -> None:
        self.pushes, counted = self.pushes.heard(found, now)
        self.add(counted, now)

    def due_in(self, now: float) -> float | None:
        return measuring.due_in(self.wants, len(self.samples), now - self.held_since)


class Idle:
    """Readers whose processes wait for their next lines, the longest first. There are no more than `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._readers: dict[LogReader, None] = {}

    def leave(self, reader: LogReader) -> None:
        """Take note that a reader is used again, or ends."""
        self._readers.pop(reader, None)

    async def enter(self, reader: LogReader) -> None:
        """Let a reader wait. Of too many, the process of the one that waits the longest ends; its next look starts another."""
        if reader.has_process:
            self._readers[reader] = None
        while len(self._readers) > self._most:
            longest = next(iter(self._readers))
            del self._readers[longest]
            await longest.close()


class Gatherer:
    """The metrics of all jobs. `wake(key)` is called when logs have something new."""

    def __init__(
        self,
        api: Api,
        wake: Callable[[Key], object],
        chance: Callable[[], float],
        every_s: float = READ_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._wake = wake
        self._chance = chance
        self._every_s = every_s
        self._clock = clock
        self._jobs: dict[Key, _Job] = {}
        self._readers = asyncio.Semaphore(_READERS)
        self._idle = Idle(MOST_IDLE)
        self._trials = Trials(wake)

    def metrics(self, key: Key) -> Metrics:
        """Return what is new of a job; its samples once they are worth a write of its status, until then none."""
        job, now = self._job(key), self._clock()
        return Metrics(tuple(job.samples) if job.due_in(now) == 0 else (), job.trouble, now - job.since)

    def taken(self, key: Key, count: int, wants: Wants) -> float | None:
        """Forget the first samples: they are part of a status that was written. Return after how long the others are due."""
        job, now = self._job(key), self._clock()
        if count:
            del job.samples[:count]
            job.held_since = now
        job.wants = wants
        return job.due_in(now)

    def push(self, key: Key, text: str) -> None:
        """Take what agents have pushed; the same text twice is one."""
        job = self._job(key)
        if not text or text == job.text:
            return
        job.text = text
        found = read(text)
        if isinstance(found, str):
            job.trouble = found
            return
        if found.step is None and found.samples is None:
            return  # our agent, with a program that tells it nothing: its lines may
        sample = between(job.pushed, found)
        job.pushed, job.trouble = found, ""
        job.pushes = Pushes(at=self._clock())
        job.add([sample] if sample is not None else [], self._clock())

    def trial(self, key: Key, metric: Metric, *, was_accepted: bool = False) -> Trial:
        """Return what is known of a pattern, which is tried once; see `Trials.of`."""
        return self._trials.of(key, metric, was_accepted=was_accepted)

    def follow(self, key: Key, source: Source | None) -> None:
        """Read the logs of a job from now on, unless its agents push; None: it has none that could be read."""
        job = self._job(key)
        if job.source is not None and (source is None or source.is_resting != job.source.is_resting):
            job.has_changed.set()
        job.source = source
        if source is not None and job.task is None and not job.pushes.go_on(self._clock()):
            job.task = asyncio.get_running_loop().create_task(self._read_for_ever(key, job))

    async def drop(self, key: Key) -> None:
        """Forget a job."""
        self._trials.drop(key)
        job = self._jobs.pop(key, None)
        if job is not None and job.task is not None:
            job.task.cancel()
            await asyncio.gather(job.task, return_exceptions=True)

    async def close(self) -> None:
        """Forget all jobs."""
        for key in list(self._jobs):
            await self.drop(key)
        await self._trials.close()

    def _job(self, key: Key) -> _Job:
        found = self._jobs.get(key)
        if found is None:
            found = self._jobs[key] = _Job(self._clock())
        return found

    async def _read_for_ever(self, key: Key, job: _Job) -> None:
        try:
            while not job.pushes.go_on(self._clock()):
                if job.source is None:
                    return  # until `follow` has one again
                every_s = REST_S if job.source.is_resting else self._every_s
                if await _changes(job, every_s * (0.9 + self._chance() / 5)):
                    continue
                if job.source.workers:
                    before = job.trouble
                    await self._look(job, job.source, 2 * every_s + 5)
                    if job.due_in(self._clock()) == 0 or job.trouble != before:
                        self._wake(key)
        finally:
            job.task = None
            await self._end(job.reader)

    async def _end(self, reader: LogReader | None) -> None:
        if reader is not None:
            self._idle.leave(reader)
            await reader.close()

    async def _look(self, job: _Job, source: Source, since_s: float) -> None:
        if job.reader is None or job.reader.metric != source.metric:
            await self._end(job.reader)
            job.reader = LogReader(self._api, source.metric)
        try:
            async with self._readers:
                self._idle.leave(job.reader)
                found, job.trouble = await job.reader.look(source, since_s)
            job.add_lines(found, self._clock())
        except KubeError as problem:
            job.trouble = f"the logs cannot be read: {problem}"
        await self._idle.enter(job.reader)


async def _changes(job: _Job, within_s: float) -> bool:
    """Wait until it changes how often a log should be read; False if it does not in that time."""
    job.has_changed.clear()
    try:
        async with asyncio.timeout(within_s):
            await job.has_changed.wait()
    except TimeoutError:
        return False
    return True
