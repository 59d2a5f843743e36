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
        self._listener = Listener(loop, address, self._welcome, token=token, on_refused=complain)
        self.port = self._listener.port

    def close(self) -> None:
        """Answer nobody any more."""
        self._listener.close()

    def _welcome(self, connection: Connection) -> None:
        _Visitor(self._loop, connection, self._own, self._told)


class _Visitor:
    """One talk. Whatever is out of order ends it."""

    def __init__(
        self,
        loop: Loop,
        connection: Connection,
        own: Callable[[], Greeting],
        told: Callable[[str, list[Finding]], object],
    ) -> None:
        self._loop = loop
        self._connection = connection
        self._own = own
        self._told = told
        self._host = ""
        self._taken = 0
        connection.on_message = self._hear
        connection.on_lost = lambda _why, _met: None

    def _hear(self, message: bytes) -> None:
        if not self._host:
            greeting = talk.read_greeting(message)
            if greeting is None:
                self._connection.close()
                return
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
                self._connection.close()

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
