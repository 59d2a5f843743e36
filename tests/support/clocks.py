"""Clocks for loops in tests."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Leaping:
    """The real clock, which a test may put forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


class Timer:
    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self.when = when
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeLoop:
    """A clock that tests move, and timers that are due when it has passed them."""

    def __init__(self) -> None:
        self.at = 100.0
        self.timers: list[Timer] = []

    def now(self) -> float:
        return self.at

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        self.timers.append(Timer(self.at + delay_s, callback))
        return self.timers[-1]

    def pending(self) -> list[Timer]:
        return [timer for timer in self.timers if timer.callback is not None]

    def run_until(self, when: float) -> int:
        """Move the clock; return how many calls were made on the way."""
        count = 0
        while due := [timer for timer in self.pending() if timer.when <= when]:
            timer = min(due, key=lambda one: one.when)
            self.at, callback, timer.callback = max(self.at, timer.when), timer.callback, None
            assert callback is not None
            callback()
            count += 1
        self.at = when
        return count
