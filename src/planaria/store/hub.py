"""A machine on a loop's clock: leases end on time, and every watcher is told at its own pace.

Nothing is queued for a watcher. Each has a position in the machine's bounded history and gets the next batch when it is
ready for one; a watcher that is too slow finds its place forgotten and is told so. A change that many watch is told to a
few in each turn of the loop, so that requests are answered in between.
"""

from __future__ import annotations

from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop, Timer
    from planaria.store.machine import Machine
    from planaria.store.model import Changed, Reply, Request

    Tell = Callable[[tuple[Changed, ...], int], object]

_WATCHERS_A_TURN = 64
_CHANGES_A_BATCH = 256
_BATCH_BYTES = 256 << 10  # one frame holds it in base64, with room to spare
_QUIET_REVISIONS = 1024  # a watcher of quiet keys still hears how far it is, a quarter of the history behind at most


class Subscription:
    """One watcher: `on_told(changes, position)` gives it a batch and waits for `ready`; `on_lost` is the last call."""

    def __init__(self, hub: Hub, prefix: str, after: int, on_told: Tell, on_lost: Callable[[], object]) -> None:
        self._hub = hub
        self.prefix = prefix
        self.position = self.told = after
        self.is_ready = True
        self.is_queued = False
        self.on_told = on_told
        self.on_lost = on_lost

    def ready(self) -> None:
        """Ask for the next batch."""
        self.is_ready = True
        self._hub.look_after(self)

    def cancel(self) -> None:
        """End it; nothing more is called."""
        self._hub.forget(self)


class Hub:
    """Answers requests at once and tells watchers soon after. Many stores, or the clients of a server, share one."""

    def __init__(self, loop: Loop, machine: Machine) -> None:
        self._loop = loop
        self._machine = machine
        self._watchers: dict[int, Subscription] = {}
        self._behind: deque[Subscription] = deque()
        self._is_pumping = False
        self._timer: Timer | None = None

    def ask(self, asked: Request) -> Reply:
        """Perform a request now."""
        reply = self._machine.request(asked, self._loop.now())
        self._settle()
        return reply

    def subscribe(self, prefix: str, after: int, on_told: Tell, on_lost: Callable[[], object]) -> Subscription:
        """Begin to tell the changes under `prefix` after a revision; the first call comes in a later turn."""
        watcher = Subscription(self, prefix, after, on_told, on_lost)
        self._watchers[id(watcher)] = watcher
        self.look_after(watcher)
        return watcher

    def forget(self, watcher: Subscription) -> None:
        """Call a watcher no more. Harmless when it was forgotten before."""
        self._watchers.pop(id(watcher), None)

    def look_after(self, watcher: Subscription) -> None:
        """See to it that a watcher that is ready gets what it has not been told yet."""
        if watcher.is_ready and not watcher.is_queued and watcher.position != self._machine.revision:
            watcher.is_queued = True
            self._behind.append(watcher)
            self._pump_soon()

    def close(self) -> None:
        """Stop the clock and forget every watcher."""
        self._watchers.clear()
        self._behind.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _settle(self) -> None:
        """Do what has to follow a request: tell the watchers, and set the clock to the next lease that ends."""
        if self._machine.take_changes():
            for watcher in self._watchers.values():
                self.look_after(watcher)
        end = self._machine.next_expiry()
        if end is None or (self._timer is not None and self._timer.is_pending and self._timer.when <= end):
            return  # a timer that comes too early finds nothing to do and is set anew
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(end, self._expire)

    def _expire(self) -> None:
        self._machine.expire(self._loop.now())
        self._settle()

    def _pump_soon(self) -> None:
        if not self._is_pumping:
            self._is_pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping = False
        for _ in range(min(_WATCHERS_A_TURN, len(self._behind))):
            watcher = self._behind.popleft()
            watcher.is_queued = False
            if id(watcher) in self._watchers:
                self._advance(watcher)
        if self._behind:
            self._pump_soon()

    def _advance(self, watcher: Subscription) -> None:
        changes = self._machine.changes_after(watcher.position, _CHANGES_A_BATCH)
        if changes is None:
            self.forget(watcher)
            watcher.on_lost()
            return
        batch: list[Changed] = []
        size_bytes = 0
        for change in changes:
            if change.key.startswith(watcher.prefix):
                size_bytes += len(change.key) + len(change.value or b"")
                if batch and size_bytes > _BATCH_BYTES:
                    break
                batch.append(change)
            watcher.position = change.revision
        if batch or watcher.position - watcher.told >= _QUIET_REVISIONS:
            watcher.told = watcher.position
            watcher.is_ready = False
            watcher.on_told(tuple(batch), watcher.position)
        self.look_after(watcher)
