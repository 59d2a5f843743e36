"""A store in virtual time that loses answers and requests on demand, and the run's keys on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clocks import Clock

from planaria.base.loop import Loop
from planaria.rendezvous.model import StoreTrouble
from planaria.rendezvous.records import Records
from planaria.store.hub import Hub
from planaria.store.machine import Machine
from planaria.store.memory import MemoryStore
from planaria.store.model import Denied, LeaseGone, Refused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.rendezvous.model import Event
    from planaria.store.api import Watching
    from planaria.store.model import Event as StoreEvent
    from planaria.store.model import Reply, Request

TTL_S = 6.0
LOST = "lost"
AWAY = "away"
SAYS = {
    "denied": Denied("not permitted", by_rights=True),
    "full": Denied("no room", by_rights=False),
    "refused": Refused("too long"),
    "gone": LeaseGone(),
}


class FaultyStore(MemoryStore):
    """Does what the next word of `script` for a kind of request says: `lost` loses the answer, `away` the request.

    Every other word is answered in the store's place, see `SAYS`.
    """

    def __init__(self, loop: Loop, hub: Hub) -> None:
        super().__init__(loop, hub)
        self.script: dict[type, list[str]] = {}
        self.asked: list[Request] = []
        self.watched: list[str] = []

    def watch(self, prefix: str, after: int, on_event: Callable[[StoreEvent], object]) -> Watching:
        self.watched.append(prefix)
        return super().watch(prefix, after, on_event)

    def ask(self, asked: Request, on_reply: Callable[[Reply], object], *, timeout_s: float = 5.0) -> None:
        self.asked.append(asked)
        words = self.script.get(type(asked), [])
        word = words.pop(0) if words else ""
        if word == LOST:
            super().ask(asked, lambda _reply: on_reply(Unavailable("lost", maybe_done=True)), timeout_s=timeout_s)
        elif word == AWAY:
            self._loop.call_soon(lambda: on_reply(Unavailable("away", maybe_done=False)))
        elif word:
            self._loop.call_soon(lambda: on_reply(SAYS[word]))
        else:
            super().ask(asked, on_reply, timeout_s=timeout_s)


class Bench:
    """Two agents' records on one store, in time that does not pass by itself."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.loop = Loop(self.clock)
        self.hub = Hub(self.loop, Machine())
        self.store = FaultyStore(self.loop, self.hub)
        self.heard: list[Event] = []
        self.records = Records(self.loop, self.store, "run", TTL_S, self.heard.append)
        self.other_heard: list[Event] = []
        self.other = Records(self.loop, MemoryStore(self.loop, self.hub), "run", TTL_S, self.other_heard.append)

    def settle(self, seconds: float = 0.0) -> None:
        """Let everything happen that happens within some seconds."""
        end = self.clock.now + seconds
        while True:
            for _ in range(20):
                self.loop.run_once(0)
            coming = [entry[0] for entry in self.loop._timers if entry[2].is_pending]
            if not coming or min(coming) > end:
                break
            self.clock.now = max(self.clock.now, min(coming))
        self.clock.now = end

    def take(self) -> list[Event]:
        """Return what was heard since, but for troubles."""
        return [event for event in self.take_all() if not isinstance(event, StoreTrouble)]

    def take_all(self) -> list[Event]:
        heard, self.heard[:] = list(self.heard), []
        return heard
