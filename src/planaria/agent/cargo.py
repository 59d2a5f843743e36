"""Bring a part from one agent's memory into another's: who sends says `Size`, who receives says `Go`, and bytes follow.

    store    header, Size ->            fetch    header ->
                          <- Go                         <- Size
             bytes        ->                     Go     ->
                          <- Busy ...                   <- bytes
                          <- Kept

Nobody sends bytes that were not asked for, so that they can be read straight into their place. `Refused` ends it.
"""

from __future__ import annotations

from planaria.agent.berth import LONGEST_WHY, Berth
from planaria.base.text import safe_line
from planaria.errors import InternalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.agent.dock import Host
    from planaria.base.connection import Connection
    from planaria.base.loop import Loop, Timer

    Done = Callable[[str], object]

BUSY_EVERY_S = 10.0  # a third of what a peer may be silent for


class Fetching:
    """The asking end of a fetch."""

    def __init__(
        self, loop: Loop, wire: Connection, header: bytes, into: Callable[[int], memoryview | str], on_done: Done
    ) -> None:
        self._into = into
        self._on_done = on_done
        self._is_sized = False
        wire.send(header)
        self._berth = Berth(loop, wire, self._hear, on_done)

    def cancel(self) -> None:
        """Give it up; nothing is called any more."""
        self._berth.end()

    def _hear(self, word: str, rest: list[object]) -> None:
        if word == "Refused":
            self._finish(_why(rest))
        elif word == "Size" and not self._is_sized:
            self._is_sized = True
            size_bytes = _size(rest)
            room = self._into(size_bytes)
            if isinstance(room, str):
                self._finish(room)
                return
            self._berth.fill(fitting(room, size_bytes), lambda: self._finish(""))
            self._berth.say("Go")
        else:
            raise ValueError(f"{word[:40]!r} where nothing of it was expected")

    def _finish(self, why: str) -> None:
        self._berth.end()
        self._on_done(why)


class Storing:
    """The asking end of a store."""

    def __init__(self, loop: Loop, wire: Connection, header: bytes, source: memoryview, on_done: Done) -> None:
        self._source = source
        self._on_done = on_done
        self._is_gone = self._is_sent = False
        wire.send(header)
        self._berth = Berth(loop, wire, self._hear, on_done)
        self._berth.say("Size", len(source))

    def cancel(self) -> None:
        """Give it up; nothing is called any more."""
        self._berth.end()

    def _hear(self, word: str, rest: list[object]) -> None:
        if word == "Refused":
            self._finish(_why(rest))
        elif word == "Go" and not self._is_gone:
            self._is_gone = True
            self._berth.pour(self._source, self._sent)
        elif word == "Kept" and self._is_sent:
            self._finish("")
        elif word != "Busy" or not self._is_sent:
            raise ValueError(f"{word[:40]!r} where nothing of it was expected")

    def _sent(self) -> None:
        self._is_sent = True

    def _finish(self, why: str) -> None:
        self._berth.end()
        self._on_done(why)


class Giving:
    """The asked end of a fetch."""

    def __init__(
        self,
        loop: Loop,
        wire: Connection,
        part: tuple[memoryview, Callable[[], None]],
        on_over: Callable[[str], object],
    ) -> None:
        self._part: memoryview | None
        self._part, self._let_go = memoryview(part[0]).cast("B"), part[1]
        self._on_over = on_over
        self._is_going = False
        self._berth = Berth(loop, wire, self._hear, self._over)
        self._berth.say("Size", len(self._part))

    def cancel(self) -> None:
        """End it."""
        self._berth.end()
        self._release()

    def _hear(self, word: str, rest: list[object]) -> None:
        if word != "Go" or rest or self._is_going or self._part is None:
            raise ValueError(f"{word[:40]!r} where nothing of it was expected")
        self._is_going = True
        self._berth.pour(self._part, self._release)

    def _release(self) -> None:
        if self._part is not None:
            self._part.release()
            self._part = None
            self._let_go()

    def _over(self, why: str) -> None:
        self._release()
        self._on_over(why)


class Taking:
    """The asked end of a store."""

    def __init__(self, loop: Loop, wire: Connection, host: Host, what: tuple[int, object], on_over: Done) -> None:
        self._loop = loop
        self._host = host
        self._round, self._header = what
        self._on_over = on_over
        self._is_sized = self._is_offered = self._is_over = False
        self._pulse: Timer | None = None
        self._berth = Berth(loop, wire, self._hear, self._over)

    def cancel(self) -> None:
        """End it: what is not there will not come."""
        self._end("this agent ends it")

    def _hear(self, word: str, rest: list[object]) -> None:
        if word != "Size" or self._is_sized:
            raise ValueError(f"{word[:40]!r} where nothing of it was expected")
        self._is_sized = True
        size_bytes = _size(rest)
        room = self._host.offered(self._round, self._header, size_bytes)
        if isinstance(room, str):
            self._tell(room)
            return
        self._is_offered = True
        self._berth.fill(fitting(room, size_bytes), self._filled)
        self._berth.say("Go")

    def _filled(self) -> None:
        self._is_offered = False
        self._pulse = self._loop.call_later(BUSY_EVERY_S, self._busy)
        self._host.arrived(self._round, self._header, self._tell)

    def _busy(self) -> None:
        self._berth.say("Busy")
        self._pulse = self._loop.call_later(BUSY_EVERY_S, self._busy)

    def _tell(self, why: str) -> None:
        if not self._is_over:
            self._berth.say("Refused", safe_line(why, LONGEST_WHY)) if why else self._berth.say("Kept")
            self._over(why)

    def _over(self, why: str) -> None:
        if not self._is_over:
            self._end(why)
            self._on_over(why)

    def _end(self, why: str) -> None:
        self._is_over = True
        if self._pulse is not None:
            self._pulse.cancel()
        self._berth.end()
        if self._is_offered:
            self._is_offered = False
            self._host.dropped(self._round, self._header, why)


def fitting(room: memoryview, size_bytes: int) -> memoryview:
    """Return where so many bytes go, as bytes."""
    room = memoryview(room).cast("B")
    if len(room) != size_bytes or room.readonly:
        raise InternalError(f"{size_bytes} bytes were to be put into {len(room)}")
    return room


def _size(rest: list[object]) -> int:
    match rest:
        case [int(size_bytes)] if type(size_bytes) is int and 0 <= size_bytes < 1 << 62:
            return size_bytes
    raise ValueError("expected a size")


def _why(rest: list[object]) -> str:
    match rest:
        case [str(why)] if why:
            return safe_line(why, LONGEST_WHY)
    raise ValueError("expected a reason")
