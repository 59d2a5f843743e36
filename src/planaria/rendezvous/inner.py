"""The connection of an agent with itself, for the one that leads and is a member too."""

from __future__ import annotations

from planaria.rendezvous.model import SELF, Lost, Opened, Received

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop
    from planaria.rendezvous.messages import Message
    from planaria.rendezvous.model import Event


class Inner:
    """The connection of an agent with itself: what one end sends, the other receives after what is ready now."""

    def __init__(self, loop: Loop, conn: str, report: Callable[[Event], object]) -> None:
        self._loop = loop
        self._report = report
        self._other = {conn: SELF, SELF: conn}
        self._ends = {conn, SELF}
        self._later(conn, Opened(conn))

    def has(self, conn: str) -> bool:
        """Tell whether `conn` is an end of it that was not closed."""
        return conn in self._ends

    def send(self, conn: str, message: Message) -> None:
        """Let the other end receive a message."""
        other = self._other[conn]
        self._later(other, Received(other, message))

    def close(self, conn: str) -> None:
        """Close one end: the other loses its peer, after what was sent."""
        self._ends.discard(conn)
        other = self._other[conn]
        self._later(other, Lost(other))

    def end(self) -> None:
        """Close both ends; nothing is reported."""
        self._ends.clear()

    def _later(self, end: str, event: Event) -> None:
        self._loop.call_soon(lambda: self._deliver(end, event))

    def _deliver(self, end: str, event: Event) -> None:
        if end not in self._ends:
            return
        if isinstance(event, Lost):
            self._ends.discard(end)
        self._report(event)
