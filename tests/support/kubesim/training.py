"""A run as an operator sees it: it goes on while enough members are there, is as fast as their number makes it, and ends."""

from __future__ import annotations

from collections.abc import Callable

from kubesim.nodes import Nodes
from kubesim.timeline import Timeline
from planaria.kube.scaling_model import Sample

_TICK_S = 1.0
_SAMPLE_TICKS = 2


class Run:
    """The training of one elastic job."""

    def __init__(
        self, nodes: Nodes, time: Timeline, bounds: tuple[int, int], work: float, rate: Callable[[int], float]
    ) -> None:
        self.nodes, self.time, self.bounds, self.work, self.rate = nodes, time, bounds, work, rate
        self.done, self.ticks, self.is_finished = 0.0, 0, False
        self.sizes: set[int] = set()
        self.samples: list[Sample] = []
        time.after(_TICK_S, self._tick)

    def _tick(self) -> None:
        members = [
            container for container in self.nodes.running.values() if container.is_worker and not container.is_drained
        ]
        size = min(len(members), self.bounds[1])
        if self.is_finished:  # who starts now finds a run that is over
            for container in members:
                self._end(container)
        elif size >= self.bounds[0]:
            self.ticks += 1
            self.sizes.add(size)
            self.done += self.rate(size) * _TICK_S
            if self.ticks % _SAMPLE_TICKS == 0:
                self.samples.append(Sample(size, seconds=size / self.rate(size), step=self.ticks))
            if self.done >= self.work:
                self.is_finished = True
        self.time.after(_TICK_S, self._tick)

    def _end(self, container: object) -> None:
        self.time.after(self.nodes.rng.uniform(0.0, 0.9), lambda: self.nodes.end(container, 0))  # type: ignore[arg-type]  a Container
