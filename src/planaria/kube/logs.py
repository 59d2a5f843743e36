"""Read the steps of one job from the logs of its workers: a little at a time, and only what is new."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from planaria.kube import settling
from planaria.kube.logline import Metric, Reading
from planaria.kube.matcher import Matcher
from planaria.kube.progress import fresh_lines, whole_lines
from planaria.kube.settling import Settling

if TYPE_CHECKING:
    from planaria.kube.api import Api
    from planaria.kube.scaling_model import Sample
    from planaria.kube.sources import Source, Worker

_LOG_BYTES = 256 << 10
_LOG_LINES = 200
_MOST_LOGS = 4  # that are read where none of them has a step


class LogReader:
    """The logs of one job. From when on its lines count is decided in `settling`."""

    def __init__(self, api: Api, metric: Metric) -> None:
        self.metric = metric
        self._api = api
        self._matcher = Matcher(metric)
        self._cursors: dict[str, str] = {}
        self._settling = Settling()

    async def look(self, source: Source, since_s: float) -> tuple[list[Sample], str]:
        """Return the steps of the last `since_s` seconds that were not seen yet, and what is wrong with them in a sentence.

        Raises:
            KubeError: A log could not be read.
        """
        if self._matcher.given_up:  # no need for the lines
            return [], self._matcher.given_up
        lives = tuple(worker.life for worker in source.workers)
        self._settling = settling.seen(self._settling, lives, time.monotonic())
        if not self._settling.is_settled:
            return [], await self._settle(source, since_s)
        for worker in source.workers[:_MOST_LOGS]:
            readings, trouble = await self._read(source, worker, since_s)
            if readings or trouble:  # the steps of all workers are the same ones
                return [reading.sample(len(lives)) for reading in readings], trouble
        return [], ""

    @property
    def has_process(self) -> bool:
        """Tell whether there is a process that matches lines."""
        return self._matcher.pid is not None

    async def close(self) -> None:
        """End what matches lines. A later look starts another."""
        await self._matcher.close()

    async def _settle(self, source: Source, since_s: float) -> str:
        awaited = settling.awaited(self._settling)
        spoken, told = [], ""
        for worker in source.workers:
            if worker.life in awaited:
                readings, trouble = await self._read(source, worker, since_s)
                spoken += [worker.life] if readings else []
                told = told or trouble
        self._settling = settling.heard(self._settling, spoken, time.monotonic())
        if self._settling.is_settled:
            for worker in source.workers[:_MOST_LOGS]:
                await self._lines(source, worker, since_s)  # what they printed until now may be of those before
        return told

    async def _read(self, source: Source, worker: Worker, since_s: float) -> tuple[tuple[Reading, ...], str]:
        lines = await self._lines(source, worker, since_s)
        if not lines:
            return (), ""
        matched = await self._matcher.read(lines)
        return matched.readings, matched.trouble

    async def _lines(self, source: Source, worker: Worker, since_s: float) -> list[str]:
        query = {
            "timestamps": "true",
            "sinceSeconds": str(max(1, int(since_s))),
            "tailLines": str(_LOG_LINES),
            "limitBytes": str(_LOG_BYTES),
        }
        text = await self._api.log(source.namespace, worker.name, source.container, query)
        self._cursors = {one.uid: self._cursors[one.uid] for one in source.workers if one.uid in self._cursors}
        lines, self._cursors[worker.uid] = fresh_lines(whole_lines(text, _LOG_BYTES), self._cursors.get(worker.uid, ""))
        return lines
