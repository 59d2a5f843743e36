"""The newest events of one node, numbered: all that happened, and of what repeats itself only the last. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    Event = Mapping[str, object]


class Notebook:
    """Takes events in their order.

    Of the progress of a round the newest is kept, and so it is of its commits by tier. That a worker of a local rank was
    started, or ended without having failed, is kept of the newest only. Of those whose sizes are told not more than
    `most_bytes` are kept.
    """

    def __init__(self, most: int, most_bytes: int = 64 << 20) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._sizes: dict[int, int] = {}
        self._bytes = 0
        self._count = 0
        self._events: dict[int, Event] = {}
        self._newest: dict[object, int] = {}

    def take(self, event: Event, size_bytes: int = 0) -> None:
        """Keep one more event, and forget what it replaces; of too many the oldest goes."""
        self._count += 1
        key = _key(event)
        if key is not None:
            self._forget(self._newest.pop(key, 0))
            self._newest[key] = self._count
            if len(self._newest) > self._most:
                del self._newest[next(iter(self._newest))]
        self._events[self._count], self._sizes[self._count] = event, size_bytes
        self._bytes += size_bytes
        while len(self._events) > self._most or (self._bytes > self._most_bytes and len(self._events) > 1):
            self._forget(next(iter(self._events)))

    def _forget(self, number: int) -> None:
        self._events.pop(number, None)
        self._bytes -= self._sizes.pop(number, 0)

    @property
    def count(self) -> int:
        """The number of the newest event; the first one is 1."""
        return self._count

    @property
    def events(self) -> tuple[Event, ...]:
        """What is kept, oldest first."""
        return tuple(self._events.values())

    def after(self, number: int) -> list[tuple[int, Event]]:
        """Return what is kept of what came after an event, with its numbers."""
        return [(own, event) for own, event in self._events.items() if own > number]


def _key(event: Event) -> str | None:
    """Return what an event has in common with those that it replaces, None for one that replaces none."""
    name, data = event.get("name"), event.get("metadata")
    if not isinstance(data, dict):
        return None
    if name in ("planaria.progress", "planaria.commit"):
        return repr((name, data.get("tier"), data.get("round")))
    if name == "planaria.worker.started" or (name == "planaria.worker.exited" and data.get("result") != "failed"):
        return repr((name, data.get("local_rank")))
    return None
