"""Virtual time: a heap of calls. A call of a node that has died is not made."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Timer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = itertools.count()

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        timer = Timer(callback)
        heapq.heappush(self._heap, (self.now + delay_s, next(self._count), timer))
        return timer

    def run_until(self, when: float, done: Callable[[], bool] = lambda: False) -> None:
        while self._heap and self._heap[0][0] <= when and not done():
            self.now, _, timer = heapq.heappop(self._heap)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        if not done():
            self.now = max(self.now, when)
