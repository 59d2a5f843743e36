"""A store inside this process: the reference behind the door, for tests and for simulations on a loop of their own."""

from __future__ import annotations

from planaria.store.api import ANSWER_WITHIN_S, Store, Watching
from planaria.store.hub import Hub
from planaria.store.machine import Machine
from planaria.store.model import WatchLost, why_not_prefix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop
    from planaria.store.model import Changed, Event, Reply, Request


class MemoryStore(Store):
    """A store that nobody else can reach, except through another MemoryStore with the same hub."""

    def __init__(self, loop: Loop, hub: Hub | None = None) -> None:
        self._loop = loop
        self._hub = hub or Hub(loop, Machine())
        self._watches: dict[int, _MemoryWatching] = {}
        self._is_closed = False

    def ask(self, asked: Request, on_reply: Callable[[Reply], object], *, timeout_s: float = ANSWER_WITHIN_S) -> None:
        """Perform the request now and answer it in a later turn of the loop."""
        del timeout_s  # nothing here takes time
        if self._is_closed:
            return
        reply = self._hub.ask(asked)
        self._loop.call_soon(lambda: None if self._is_closed else on_reply(reply))

    def watch(self, prefix: str, after: int, on_event: Callable[[Event], object]) -> Watching:
        """Tell every change under `prefix` after a revision."""
        why = why_not_prefix(prefix)
        if why is not None:
            raise ValueError(why)
        watching = _MemoryWatching(self._watches, on_event)
        if not self._is_closed:
            self._watches[id(watching)] = watching
            watching.begin(self._hub, prefix, after)
        return watching

    def close(self) -> None:
        """Leave; what is stored stays in the hub."""
        self._is_closed = True
        for watching in list(self._watches.values()):
            watching.cancel()


class _MemoryWatching(Watching):
    def __init__(self, open_ones: dict[int, _MemoryWatching], on_event: Callable[[Event], object]) -> None:
        self._open_ones = open_ones
        self._on_event = on_event

    def begin(self, hub: Hub, prefix: str, after: int) -> None:
        self._subscription = hub.subscribe(prefix, after, self._tell, self._lose)

    def cancel(self) -> None:
        if self._open_ones.pop(id(self), None) is not None:
            self._subscription.cancel()

    def _tell(self, changes: tuple[Changed, ...], _position: int) -> None:
        for change in changes:
            if id(self) not in self._open_ones:
                return
            self._on_event(change)
        self._subscription.ready()

    def _lose(self) -> None:
        self._open_ones.pop(id(self), None)
        self._on_event(WatchLost())
