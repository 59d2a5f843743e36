"""The listening end: answer the doctors of other hosts, and say here what they found."""

from __future__ import annotations

from planaria.base.net import Listener
from planaria.doctor import talk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop
    from planaria.base.net import Connection
    from planaria.doctor.model import Finding
    from planaria.doctor.talk import Greeting

STREAM_S = 1.0
GREETING_S = 5.0  # a doctor greets at once
VISIT_S = 60.0  # a visit takes 3 s where all is well
CONSOLE_S = 1.0
_BLOB = bytes(talk.LARGE_BYTES)
_PIECE = memoryview(talk.DOWN + bytes(talk.PIECE_BYTES))


class Answering:
    """Answers at a port until the loop is stopped. `told(host, findings)` is called for each visitor that reports.

    Raises:
        OSError: The port cannot be had.
    """

    def __init__(
        self,
        loop: Loop,
        address: tuple[str, int],
        own: Callable[[], Greeting],
        told: Callable[[str, list[Finding]], object],
        *,
        token: bytes | None,
        complain: Callable[[str], object],
    ) -> None:
        self._loop = loop
        self._own = own
        self._told = told
        self._waiting: list[Connection] = []
        self._is_busy = False
        self._listener = Listener(loop, address, self._welcome, token=token, on_refused=complain)
        self.port = self._listener.port

    def close(self) -> None:
        """Answer nobody any more."""
        self._listener.close()

    def _welcome(self, connection: Connection) -> None:
        """Let everybody wait for their turn: two at once would share the bandwidth that is measured."""
        self._waiting.append(connection)
        connection.on_lost = lambda _why, _met: self._waiting.remove(connection)
        if self._is_busy:
            self._console(connection)
        else:
            self._next()

    def _console(self, connection: Connection) -> None:
        """Say now and then, to one that waits, that its turn comes."""
        if connection in self._waiting:
            connection.send(talk.WAIT)
            self._loop.call_later(CONSOLE_S, lambda: self._console(connection))

    def _next(self) -> None:
        self._is_busy = bool(self._waiting)
        if self._waiting:
            _Visitor(self._loop, self._waiting.pop(0), self._own, self._told, self._next)


class _Visitor:
    """One talk, which is over when the visitor leaves, is out of order, or takes too long. Then `left` is called."""

    def __init__(
        self,
        loop: Loop,
        connection: Connection,
        own: Callable[[], Greeting],
        told: Callable[[str, list[Finding]], object],
        left: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._own = own
        self._told = told
        self._left = left
        self._host = ""
        self._taken = 0
        self._timer = loop.call_later(GREETING_S, self._end)
        connection.on_message = self._hear
        connection.on_lost = lambda _why, _met: self._end()

    def _end(self) -> None:
        self._timer.cancel()
        self._connection.close()
        self._left()

    def _hear(self, message: bytes) -> None:
        if not self._host:
            greeting = talk.read_greeting(message)
            if greeting is None:
                self._end()
                return
            self._timer.cancel()
            self._timer = self._loop.call_later(VISIT_S, self._end)
            self._host = f"{greeting.host} ({self._connection.peer})"
            self._connection.send(talk.greet(self._own()))
            return
        self._answer(message)

    def _answer(self, message: bytes) -> None:
        match message[:1]:
            case talk.PING:
                self._connection.send(message[:32])
            case talk.LARGE:
                self._connection.send(talk.ARRIVED)
            case talk.MORE:
                self._connection.send(talk.LARGE + _BLOB)
            case talk.UP:
                self._taken += len(message)
            case talk.UP_END:
                self._connection.send(talk.UP_END + b"%d" % self._taken)
            case talk.DOWN:
                self._stream()
            case talk.REPORT:
                self._told(self._host, talk.read_report(message))
            case _:
                self._end()

    def _stream(self) -> None:
        until = self._loop.now() + STREAM_S

        def more() -> None:
            while self._loop.now() < until:
                if not self._connection.send_bulk(_PIECE):
                    return
            self._connection.on_drained = None
            self._connection.send(talk.DOWN_END)

        self._connection.on_drained = more
        more()
