"""Find out whether an endpoint that does not speak our language is an etcd: a wrong flag then gets a sentence, not a time-out.

An etcd closes a connection that does not begin like HTTP, without a word. So who was mute is asked once, in HTTP.
"""

from __future__ import annotations

import _socket as socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop, Timer

ANSWER_WITHIN_S = 2.0
_QUESTION = b"GET /version HTTP/1.0\r\nHost: etcd\r\n\r\n"
_ANSWER_LIMIT_BYTES = 4096


def sentence(address: str, backend: str) -> str:
    """Say what is wrong when an etcd answers at an endpoint of another backend."""
    return f"--rdzv-backend={backend} expects an agent at {address}, but an etcd answers there: use --rdzv-backend=etcd"


class EtcdCheck:
    """Asks each endpoint at most once. `on_found` is called with one that is an etcd."""

    def __init__(self, loop: Loop, on_found: Callable[[str], object]) -> None:
        self._loop = loop
        self._left: dict[str, tuple[str, int]] = {}
        self._on_found = on_found
        self._running: set[_Visit] = set()

    def know(self, endpoint: str, address: str, port: int) -> None:
        """Remember where an endpoint is, so that nothing has to be looked up when it fails."""
        self._left[endpoint] = (address, port)

    def look_at(self, endpoint: str) -> None:
        """Look at an endpoint that said nothing of ours, if it is known and was not looked at yet."""
        if endpoint in self._left:
            where = self._left.pop(endpoint)
            visit = _Visit(self._loop, endpoint, self._ended)
            self._running.add(visit)
            visit.begin(*where)

    def cancel(self) -> None:
        """Look at nothing any more."""
        self._left.clear()
        while self._running:
            self._running.pop().close()

    def _ended(self, visit: _Visit, endpoint: str, answer: bytes) -> None:
        self._running.discard(visit)
        if b'"etcdserver"' in answer:
            self._on_found(endpoint)


class _Visit:
    """One question in HTTP and what comes back, whatever it is."""

    def __init__(self, loop: Loop, endpoint: str, on_end: Callable[[_Visit, str, bytes], object]) -> None:
        self._loop = loop
        self._endpoint = endpoint
        self._on_end = on_end
        self._socket: socket.socket | None = None
        self._limit: Timer | None = None
        self._answer = b""

    def begin(self, address: str, port: int) -> None:
        """Connect, and ask once that has worked."""
        self._limit = self._loop.call_later(ANSWER_WITHIN_S, self._end)
        try:
            stream = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
            self._socket = stream
            stream.setblocking(False)
            stream.connect((address, port))
        except BlockingIOError:
            self._loop.on_writable(stream.fileno(), self._ask)
        except OSError:
            self._end()
        else:
            self._ask()

    def close(self) -> None:
        """Forget it; nobody is called."""
        if self._limit is not None:
            self._limit.cancel()
        if self._socket is not None:
            self._loop.forget(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _ask(self) -> None:
        if self._socket is None:
            return
        try:
            self._socket.send(_QUESTION)
        except OSError:
            self._end()
            return
        self._loop.forget_writable(self._socket.fileno())
        self._loop.on_readable(self._socket.fileno(), self._read)

    def _read(self) -> None:
        if self._socket is None:
            return
        try:
            data = self._socket.recv(_ANSWER_LIMIT_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._answer += data
        if not data or len(self._answer) > _ANSWER_LIMIT_BYTES:
            self._end()

    def _end(self) -> None:
        self.close()
        self._on_end(self, self._endpoint, self._answer)
