"""From threads to the loop: calls that a thread posts are made on the loop, in order. For backends whose library blocks."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from threading import Event as Flag
from threading import Thread

from planaria.base import signals
from planaria.store.api import Watching
from planaria.store.model import WatchLost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop
    from planaria.store.model import Event

_MOST_WAITING = 1024


class Bridge:
    """A queue of calls and a pipe that wakes the loop up."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.clock = loop.now
        self.closing = Flag()
        self._calls: deque[Callable[[], object]] = deque()
        self._read_end, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        loop.on_readable(self._read_end, self._make_calls)

    def start_thread(self, work: Callable[[], object]) -> None:
        """Run `work` in a thread that gets no signals and holds up nobody's exit."""
        before = signals.block(signals.NUMBERS.values())  # a thread inherits the mask of its maker
        try:
            Thread(target=work, name="planaria-store", daemon=True).start()
        finally:
            signals.restore_mask(before)

    def post(self, call: Callable[[], object]) -> None:
        """Have a call made on the loop; from any thread. Waits while the loop is far behind."""
        while len(self._calls) >= _MOST_WAITING and not self.closing.wait(0.05):
            pass
        self._calls.append(call)
        self._wake()

    def close(self) -> None:
        """Make no more calls. The pipe goes with the last thread that holds this object."""
        self.closing.set()
        self._calls.clear()
        self._loop.forget(self._read_end)

    def __del__(self) -> None:
        os.close(self._read_end)
        os.close(self._write_end)

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # full: the loop will wake up as it is
            os.write(self._write_end, b"\0")

    def _make_calls(self) -> None:
        try:
            os.read(self._read_end, 1 << 16)
        except BlockingIOError:
            return
        for _ in range(len(self._calls)):
            if self.closing.is_set():
                return
            self._calls.popleft()()
        if self._calls:
            self._wake()


class BridgedWatching(Watching):
    """A watch that lives on both sides: made and cancelled on the loop, read in a thread, told on the loop again."""

    def __init__(self, bridge: Bridge, on_event: Callable[[Event], object]) -> None:
        self._bridge = bridge
        self._on_event: Callable[[Event], object] | None = on_event

    @property
    def is_open(self) -> bool:
        """Tell whether there may be more to tell."""
        return self._on_event is not None

    def cancel(self) -> None:
        """Tell nothing more."""
        self._on_event = None

    def _post(self, *events: Event) -> None:
        """Have events told on the loop; from the thread. WatchLost is the last."""
        self._bridge.post(lambda: self._tell(events))

    def _tell(self, events: tuple[Event, ...]) -> None:
        for event in events:
            on_event = self._on_event
            if isinstance(event, WatchLost):
                self._on_event = None
            if on_event is not None:
                on_event(event)
