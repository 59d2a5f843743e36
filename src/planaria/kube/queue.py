"""Jobs that somebody should look at. A key is a fact, not an event: woken ten times, it is looked at once.

One key is looked at by one task at a time. What goes wrong with one is told, slows that one down, and touches no other; the
jobs of many namespaces take turns, so that those of one cannot keep the others waiting.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from planaria.errors import KubeError
from planaria.kube.turns import Turns

if TYPE_CHECKING:
    from planaria.kube.watching import Key

_GAP_S = 0.1  # between two looks at the same job: what comes together is looked at together
_FIRST_S = 0.5
_MOST_S = 120.0
_AWAY_S = 5.0  # while nobody answers: what is wrong is not the job


class Queue:
    """Keys that wait for `look(key)`, which returns after how many seconds to look again though nothing changes."""

    def __init__(
        self,
        look: Callable[[Key], Awaitable[float | None]],
        chance: Callable[[], float],
        say: Callable[[str], object],
        measured: Callable[[float, str], object] = lambda _seconds, _result: None,
    ) -> None:
        self._look = look
        self._chance = chance
        self._say = say
        self._measured = measured
        self._ready = Turns()
        self._busy: set[Key] = set()
        self._again: set[Key] = set()  # woken while busy
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._failures: dict[Key, int] = {}
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready)

    def wake(self, key: Key) -> None:
        """Have a key looked at soon."""
        if key in self._busy:
            self._again.add(key)
        elif key not in self._failures:  # one that failed has its own time
            self._enter(key)

    def wake_later(self, key: Key, delay_s: float) -> None:
        """Have a key looked at after a while, or earlier; the earliest of several counts."""
        loop = asyncio.get_running_loop()
        before = self._timers.get(key)
        if before is not None and before.when() <= loop.time() + delay_s:
            return
        if before is not None:
            before.cancel()
        self._timers[key] = loop.call_later(delay_s, self._due, key)

    def forget(self, key: Key) -> None:
        """Drop what is remembered of a key that is no more, or is another: it failed never, and waits for nothing."""
        self._failures.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    async def run(self, tasks: int) -> None:
        """Look at keys for ever, at so many at a time."""
        async with asyncio.TaskGroup() as group:
            for _ in range(tasks):
                group.create_task(self._work())

    def _enter(self, key: Key) -> None:
        self._ready.add(key)
        self._arrived.set()

    def _due(self, key: Key) -> None:
        self._timers.pop(key, None)
        if key in self._busy:
            self._again.add(key)
        else:
            self._enter(key)

    async def _work(self) -> None:
        while True:
            while not self._ready:
                self._arrived.clear()
                await self._arrived.wait()
            key = self._ready.take()
            self._busy.add(key)
            try:
                await self._one(key)
            finally:
                self._busy.discard(key)

    async def _one(self, key: Key) -> None:
        began = time.monotonic()
        result = "done"
        try:
            after_s = await self._look(key)
            self._failures.pop(key, None)
        except KubeError as problem:
            result = "conflict" if problem.is_conflict else "refused" if problem.status else "unanswered"
            first_s = _GAP_S if problem.is_conflict else _FIRST_S
            most_s = _MOST_S if problem.status else _AWAY_S
            after_s = max(self._failed(key, first_s, most_s), problem.retry_after_s)
            if not problem.is_conflict:
                self._say(f"{key[0]}/{key[1]}: {problem}; looking again in {after_s:.1f} s")
        except Exception:  # noqa: BLE001  a bug that one job brings out: the others go on
            result = "bug"
            after_s = self._failed(key, _FIRST_S, _MOST_S)
            told = f"{key[0]}/{key[1]}: a bug in planaria, please report it; looking again in {after_s:.1f} s"
            self._say(f"{told}\n{traceback.format_exc()}")
        self._measured(time.monotonic() - began, result)
        self._next(key, after_s)

    def _next(self, key: Key, after_s: float | None) -> None:
        if key in self._again:
            self._again.discard(key)
            after_s = min(_GAP_S, after_s) if after_s is not None and key not in self._failures else after_s or _GAP_S
        if after_s is not None:
            self.wake_later(key, max(after_s, _GAP_S))

    def _failed(self, key: Key, first_s: float, most_s: float) -> float:
        count = self._failures[key] = self._failures.get(key, 0) + 1
        return min(most_s, first_s * 2.0 ** min(count - 1, 10)) * (0.75 + self._chance() / 2)
