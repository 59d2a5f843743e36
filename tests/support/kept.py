"""A handler of events that keeps them for a test to look at."""

from __future__ import annotations

from typing import Any


class Kept:
    """What was handled, and whether it was closed."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.is_closed = False

    def handle(self, event: Any) -> None:
        self.events.append(event)

    def close(self) -> None:
        self.is_closed = True
