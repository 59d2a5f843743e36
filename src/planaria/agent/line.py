"""Lines between a member and its anchor: JSON values both ways, in order, until one of them is gone."""

from __future__ import annotations

from planaria.agent.berth import LONGEST_WHY, decode, encode
from planaria.base.text import safe_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.agent.berth import Ending
    from planaria.base.connection import Connection
    from planaria.base.loop import Loop, Timer

    Connect = Callable[[Callable[[Connection], object], Callable[[str], object]], Ending]

ANSWER_WITHIN_S = 10.0
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0


class Line:
    """One end. `on_message(value)` is called for every value, `on_lost(why)` at most once and never after `close`.

    What is sent before the line is open waits. What waits when it ends, and what is sent later, is forgotten.
    """

    def __init__(self, on_over: Callable[[Line], object]) -> None:
        self._on_over = on_over
        self._wire: Connection | None = None
        self._waiting: list[bytes] = []
        self.is_over = False
        self.dialling: Ending | None = None
        self.on_message: Callable[[object], object] | None = None
        self.on_lost: Callable[[str], object] | None = None

    def send(self, value: object) -> None:
        """Send a value, now or once the line is open. Raises ValueError for what is no JSON, or too long."""
        payload = encode("Say", value)
        if self.is_over:
            return
        if self._wire is None:
            self._waiting.append(payload)
        else:
            self._wire.send(payload)

    def close(self) -> None:
        """End the line after what was sent."""
        if not self.is_over:
            self._end()

    def join(self, wire: Connection) -> None:
        """Open the line over a connection whose peer knows that it is one."""
        if self.is_over:
            wire.close()
            return
        self._wire = wire
        wire.on_lost = lambda why, _met: self.lose(why)
        for payload in self._waiting:
            wire.send(payload)
        self._waiting.clear()
        wire.on_message = self._hear

    def lose(self, why: str) -> None:
        """End it without the owner's doing."""
        if not self.is_over:
            self._end()
            if self.on_lost is not None:
                self.on_lost(why)

    def _end(self) -> None:
        self.is_over = True
        self._waiting.clear()
        if self.dialling is not None:
            self.dialling.cancel()
        if self._wire is not None:
            self._wire.close()
        self._on_over(self)

    def _hear(self, payload: bytes) -> None:
        if self.is_over:
            return
        try:
            value = _said(payload)
        except ValueError as problem:
            self.lose(f"it sent no message of ours: {safe_line(str(problem), LONGEST_WHY)}")
            return
        if self.on_message is not None:
            self.on_message(value)


def _said(payload: bytes) -> object:
    word, rest = decode(payload)
    if word != "Say" or len(rest) != 1:
        raise ValueError(f"expected Say and a value, not {word[:40]!r}")
    return rest[0]


class Attendance:
    """Dials until an anchor has welcomed us, and opens `line` then. One that refuses us ends it."""

    def __init__(self, loop: Loop, header: bytes, line: Line, connect: Connect) -> None:
        self._loop = loop
        self._header = header
        self._line = line
        self._connect = connect
        self._pause_s = _FIRST_PAUSE_S
        self._timer: Timer | None = None
        self._wire: Connection | None = None
        self._dialling = connect(self._opened, self._failed)

    def cancel(self) -> None:
        """Dial no more."""
        self._dialling.cancel()
        if self._timer is not None:
            self._timer.cancel()
        if self._wire is not None:
            self._wire.close()

    def _opened(self, wire: Connection) -> None:
        self._wire = wire
        self._timer = self._loop.call_later(ANSWER_WITHIN_S, lambda: self._failed("it did not answer"))
        wire.on_lost = lambda why, _met: self._failed(why)
        wire.send(self._header)
        wire.on_message = self._answered

    def _failed(self, _why: str) -> None:
        """Try again later: an anchor may be there and not know its place yet."""
        self.cancel()
        self._wire = None
        self._timer = self._loop.call_later(self._pause_s, self._again)
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _again(self) -> None:
        self._dialling = self._connect(self._opened, self._failed)

    def _answered(self, payload: bytes) -> None:
        wire = self._wire
        if wire is None:
            return
        wire.on_message = None  # what comes with the same bytes is for the line
        try:
            word, rest = decode(payload)
        except ValueError:
            word, rest = "", []
        if word == "Welcome" and not rest:
            self._wire = None
            self.cancel()
            self._line.join(wire)
        else:
            why = rest[0] if word == "Refused" and rest and isinstance(rest[0], str) else "it gave no answer of ours"
            self._line.lose(safe_line(why, LONGEST_WHY))
