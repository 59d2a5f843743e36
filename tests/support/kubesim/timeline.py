"""Virtual time: what is to happen when."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Timeline:
    """Things to do, by time; those of one moment in the order in which they were asked for."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self.now = start
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._counter = 0

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        self._counter += 1
        heapq.heappush(self._due, (self.now + max(0.0, seconds), self._counter, act))

    def run_until(self, end: float, is_over: Callable[[], bool] = lambda: False) -> None:
        while self._due and self._due[0][0] <= end and not is_over():
            self.now, _, act = heapq.heappop(self._due)
            act()
        if not is_over():
            self.now = max(self.now, end)
