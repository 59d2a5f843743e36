"""A small HTTP server on our loop, for few and short requests (`http.server` costs 60 ms to import, and a thread each).

Whoever connects is a stranger. It has a few seconds for a request of a few kilobytes and for taking its answer, and is dropped
when others wait for its place: slow, silent or many, clients cost a bounded number of descriptors and bytes, and never block.
"""

from __future__ import annotations

import _socket as socket  # the `socket` module costs 10 ms to import and adds nothing we use
import os

from planaria.base.value import Value, replace
from planaria.observe.request import HEAD_LIMIT_BYTES, Reply, Request, read_head, refused, write_reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop, Timer

    Respond = Callable[[Reply], object]

REQUEST_S = 5.0  # from the first byte, or the connection, to the last byte of a request: dripping bytes does not help
IDLE_S = 30.0  # between two requests; Prometheus asks every 15 s
TAKE_S = 5.0  # to take an answer
LINGER_S = 1.0  # closing at once would throw away an answer that is still on its way to one who goes on sending
MOST_CLIENTS = 64
_ACCEPTS_A_TURN = 16
_BREATH_S = 0.02  # after a full turn: at most 800 connections a second, so a flood leaves time for others
_PAUSE_S = 0.25  # after an error of `accept`, or when every client is being answered
_CHUNK_BYTES = 16 << 10
_LINGER_BYTES = 1 << 20


class Peer(Value):
    """Who asks: a process of our own user (`is_owner`, a UNIX socket told), this machine, or somebody beyond."""

    is_owner: bool = False
    is_loopback: bool = False


OWNER = Peer(is_owner=True, is_loopback=True)


class HttpServer:
    """Reads requests and writes what `answer(request, peer, respond)` responds with, once, now or later."""

    def __init__(self, loop: Loop, answer: Callable[[Request, Peer, Respond], object]) -> None:
        self.loop = loop
        self.answer = answer
        self._clients: dict[_Client, None] = {}  # the oldest first
        self._socket: socket.socket | None = None
        self._pause: Timer | None = None

    def listen(self, listening: socket.socket) -> None:
        """Accept connections of a TCP socket that listens and does not block. It is closed with this server."""
        self._socket = listening
        self._go_on()

    def take(self, connection: socket.socket, peer: Peer) -> None:
        """Serve a connection that somebody else accepted; one too many is dropped."""
        if len(self._clients) >= MOST_CLIENTS and not self._make_room():
            connection.close()
            return
        client = _Client(self, connection, peer)
        self._clients[client] = None
        client.wait_for_request(REQUEST_S)

    def close(self) -> None:
        """Serve nobody any more."""
        if self._pause is not None:
            self._pause.cancel()
        if self._socket is not None:
            self.loop.forget(self._socket.fileno())
            self._socket.close()
            self._socket = None
        for client in list(self._clients):
            client.close()

    def forget(self, client: _Client) -> None:
        """Let a client go that has closed its connection."""
        self._clients.pop(client, None)

    def _go_on(self) -> None:
        self._pause = None
        if self._socket is not None:
            self.loop.on_readable(self._socket.fileno(), self._accept)

    def _rest(self, delay_s: float) -> None:
        if self._socket is not None:
            self.loop.forget(self._socket.fileno())
            self._pause = self.loop.call_later(delay_s, self._go_on)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_A_TURN):
            if self._socket is None:
                return
            if len(self._clients) >= MOST_CLIENTS and not self._make_room():
                self._rest(_PAUSE_S)
                return
            try:
                descriptor, address = self._socket._accept()  # type: ignore[attr-defined]  # noqa: SLF001  what socket.accept wraps
            except BlockingIOError:
                return
            except OSError:  # it left while it waited, or there are no descriptors: the next one may be fine, soon
                self._rest(_PAUSE_S)
                return
            os.set_blocking(descriptor, False)
            self.take(socket.socket(fileno=descriptor), Peer(is_loopback=is_loopback(address[0])))
        self._rest(_BREATH_S)

    def _make_room(self) -> bool:
        """Drop whoever has waited longest without having asked anything."""
        silent = next((client for client in self._clients if client.is_silent), None)
        if silent is not None:
            silent.close()
        return silent is not None


def is_loopback(host: str) -> bool:
    """Tell whether an address, as the kernel writes it, is this machine's own."""
    return host.startswith(("127.", "::ffff:127.")) or host == "::1"


class _Client:
    """One connection, from request to answer and again."""

    def __init__(self, server: HttpServer, connection: socket.socket, peer: Peer) -> None:
        self._server = server
        self._loop = server.loop
        self._socket = connection
        self._descriptor = connection.fileno()
        self._peer = peer
        self._inbound = b""
        self._request: Request | None = None
        self._outbound = memoryview(b"")
        self._keeps_alive = False
        self._lingered = 0
        self._timer: Timer | None = None
        self.is_silent = True

    def wait_for_request(self, within_s: float) -> None:
        """Read until a request is whole."""
        self.is_silent = True
        self._set_timer(within_s)
        self._loop.on_readable(self._descriptor, self._read)

    def close(self) -> None:
        """Drop the connection."""
        if self._descriptor < 0:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._loop.forget(self._descriptor)
        self._descriptor = -1
        self._socket.close()
        self._server.forget(self)

    def _set_timer(self, within_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(within_s, self.close)

    def _receive(self) -> bytes | None:
        """Return what came, nothing at the end, None when it was a false alarm."""
        try:
            return self._socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _read(self) -> None:
        chunk = self._receive()
        if chunk == b"":
            self.close()
        elif chunk is not None:
            if not self._inbound and self._request is None:
                self._set_timer(REQUEST_S)  # the first bytes of a request
            self._inbound += chunk
            self._advance()

    def _advance(self) -> None:
        """Go on with what has been read: head, body, answer."""
        if self._descriptor < 0:
            return
        if self._request is None:
            found = self._take_head()
            if found is None:
                return
            if isinstance(found, Reply):
                self._stop_reading()
                self._write(found, keeps_alive=False, has_body=True)
                return
            self._request = found
        request = self._request
        if len(self._inbound) < request.length:
            return
        self._request, body, self._inbound = None, self._inbound[: request.length], self._inbound[request.length :]
        self._stop_reading()
        self._server.answer(replace(request, body=body), self._peer, self._respond_to(request))

    def _take_head(self) -> Request | Reply | None:
        if self._inbound[:2] == b"\r\n":  # RFC 9112: after the body of the last one there may be an empty line
            self._inbound = self._inbound[2:]
        end = self._inbound.find(b"\r\n\r\n", 0, HEAD_LIMIT_BYTES)
        if end < 0:
            if len(self._inbound) < HEAD_LIMIT_BYTES:
                return None
            return refused(431, f"expected a request line and header fields of at most {HEAD_LIMIT_BYTES} bytes")
        head, self._inbound = self._inbound[:end], self._inbound[end + 4 :]
        return read_head(head)

    def _stop_reading(self) -> None:
        self.is_silent = False
        self._loop.forget(self._descriptor)
        if self._timer is not None:
            self._timer.cancel()

    def _respond_to(self, request: Request) -> Respond:
        is_open = True

        def respond(reply: Reply) -> None:
            nonlocal is_open
            if is_open and self._descriptor >= 0:
                self._write(reply, keeps_alive=request.keeps_alive, has_body=request.method != "HEAD")
            is_open = False

        return respond

    def _write(self, reply: Reply, *, keeps_alive: bool, has_body: bool) -> None:
        self._keeps_alive = keeps_alive
        self._outbound = memoryview(write_reply(reply, keeps_alive=keeps_alive, has_body=has_body))
        self._set_timer(TAKE_S)
        self._loop.on_writable(self._descriptor, self._flush)

    def _flush(self) -> None:
        try:
            self._outbound = self._outbound[self._socket.send(self._outbound) :]
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if self._outbound:
            return
        self._loop.forget(self._descriptor)
        if not self._keeps_alive:
            self._linger()
            return
        self.wait_for_request(IDLE_S)
        if self._inbound:  # the next request is here already
            self._set_timer(REQUEST_S)
            self._loop.call_soon(self._advance)

    def _linger(self) -> None:
        """Say that this was all, and read what still comes, for a moment."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.close()
            return
        self.is_silent = True
        self._set_timer(LINGER_S)
        self._loop.on_readable(self._descriptor, self._drop_rest)

    def _drop_rest(self) -> None:
        chunk = self._receive()
        if chunk is None:
            return
        self._lingered += len(chunk)
        if not chunk or self._lingered > _LINGER_BYTES:
            self.close()
