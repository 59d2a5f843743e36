"""The events of one node, as many as are worth keeping: all that happened, and of what repeats itself the newest. Pure."""

from __future__ import annotations

from planaria.insight.fields import integer, part, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_EVENTS = 20_000  # far more than a run has restarts; a journal that somebody fills is not kept whole


class Notebook:
    """Takes events in their order. Of progress the newest of each round is kept, of commits the newest of each tier."""

    def __init__(self) -> None:
        self._count = 0
        self._events: dict[int, Mapping[str, object]] = {}
        self._newest: dict[tuple[str, str, int | None], int] = {}

    def take(self, event: Mapping[str, object]) -> None:
        """Keep one more event, and forget what it replaces."""
        self._count += 1
        name, data = text(event, "name"), part(event, "metadata")
        if name in ("planaria.progress", "planaria.commit"):
            key = (name, text(data, "tier"), integer(data, "round"))
            self._events.pop(self._newest.get(key, 0), None)
            self._newest[key] = self._count
        self._events[self._count] = event
        if len(self._events) > MOST_EVENTS:
            del self._events[next(iter(self._events))]

    @property
    def events(self) -> tuple[Mapping[str, object], ...]:
        """What is kept, oldest first."""
        return tuple(self._events.values())
