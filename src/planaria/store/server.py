"""The embedded store: a machine behind a listener, for the agents of one job.

No client can hurt another. What a client may cause to be held is bounded: the machine has limits, a watch costs a position
and one batch until the client says that it has handled it, and a client that does not read its answers is dropped by its
connection. Whoever breaks the protocol is dropped with one line, and nobody else notices.
"""

from __future__ import annotations

import os

from planaria.base.net import Complaints, Listener
from planaria.base.text import safe_line
from planaria.store import wire
from planaria.store.hub import Hub
from planaria.store.machine import Machine
from planaria.store.model import Refused, why_not_prefix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext

    from planaria.base.channel import Met
    from planaria.base.loop import Loop
    from planaria.base.net import Connection
    from planaria.store.hub import Subscription
    from planaria.store.machine import Limits
    from planaria.store.model import Changed

_WATCHES_A_CLIENT = 64
_SILENT_LIMIT_S = 30.0  # a client speaks every 3 s, if only to probe: one that is silent for ten times that is gone
_FRAME_LIMIT_BYTES = (1 << 20) - 64  # what a frame may carry, with room for its MAC


class StoreServer:
    """Serves one store on a TCP port or, when `address` is a path, on a UNIX socket that only its owner may use.

    `on_refused` gets a few lines about clients that were dropped for what they sent. What is stored lives as long as this
    object: after a restart every revision and lease of before is unknown.

    Raises:
        OSError: The address cannot be listened on.
    """

    def __init__(
        self,
        loop: Loop,
        address: tuple[str, int] | str,
        *,
        token: bytes | None,
        tls: SSLContext | None = None,
        on_refused: Callable[[str], object] | None = None,
        limits: Limits | None = None,
    ) -> None:
        # A start of 2^40 values keeps revisions below 2^53: readers of JSON in other languages can hold them.
        start = int.from_bytes(os.urandom(5), "big")
        self._hub = Hub(loop, Machine(start=start, limits=limits))
        self._complaints = Complaints(loop, on_refused)
        self._clients: dict[int, _Client] = {}
        self._listener = Listener(loop, address, self._welcome, token=token, on_refused=self._complaints, tls=tls)
        self.port = self._listener.port
        self._loop = loop
        self._timer = loop.call_later(_SILENT_LIMIT_S, self._drop_silent)

    def close(self) -> None:
        """Stop serving: clients lose their connections, and everything stored is gone."""
        self._listener.close()
        self._complaints.close()
        self._timer.cancel()
        for client in list(self._clients.values()):
            client.end()
        self._hub.close()

    def forget(self, client: _Client) -> None:
        """Count a client no longer."""
        self._clients.pop(id(client), None)

    def refuse(self, peer: str, why: str) -> None:
        """Say why a client was dropped, in few lines however often it happens."""
        self._complaints.add(safe_line(f"store: dropped {peer}: {why}"), peer)

    def _drop_silent(self) -> None:
        for client in list(self._clients.values()):
            if not client.has_spoken:
                client.end()
            client.has_spoken = False
        self._timer = self._loop.call_later(_SILENT_LIMIT_S, self._drop_silent)

    def _welcome(self, connection: Connection) -> None:
        client = _Client(self, self._hub, connection)
        self._clients[id(client)] = client
        connection.on_lost = client.lost
        connection.on_message = client.receive


class _Client:
    """One connection's requests and watches."""

    def __init__(self, server: StoreServer, hub: Hub, connection: Connection) -> None:
        self._server = server
        self._hub = hub
        self._connection = connection
        self._watches: dict[int, Subscription] = {}
        self._is_welcome = False
        self._is_over = False
        self.has_spoken = True

    def receive(self, frame: bytes) -> None:
        """Handle one frame; one that is not in order is the last."""
        if self._is_over:
            return
        self.has_spoken = True
        try:
            self._handle(wire.decode_from_client(frame))
        except ValueError as exc:
            self._connection.send(wire.encode(wire.Bye(str(exc)[:200])))
            self._server.refuse(self._connection.peer, str(exc))
            self.end()

    def lost(self, _why: str, _met: Met) -> None:
        """Take note that the connection is gone."""
        self._leave()

    def end(self) -> None:
        """Close the connection."""
        self._leave()
        self._connection.close()

    def _leave(self) -> None:
        self._is_over = True
        for watch in self._watches.values():
            watch.cancel()
        self._watches.clear()
        self._server.forget(self)

    def _handle(self, message: wire.FromClient) -> None:
        match message:
            case wire.Hello(version):
                if version != wire.VERSION or self._is_welcome:
                    raise ValueError(f"this store speaks version {wire.VERSION}, not {version}, and greets once")
                self._is_welcome = True
                self._connection.send(wire.encode(wire.Welcome(wire.VERSION)))
            case _ if not self._is_welcome:
                raise ValueError("the first message is not a Hello")
            case wire.Ask(number, request):
                self._answer(number, wire.encode(wire.Answer(number, self._hub.ask(request))))
            case wire.Watch(number, prefix, after):
                self._watch(number, prefix, after)
            case wire.Seen(number):
                if number in self._watches:
                    self._watches[number].ready()
            case wire.Unwatch(number):
                watch = self._watches.pop(number, None)
                if watch is not None:
                    watch.cancel()

    def _answer(self, number: int, frame: bytes) -> None:
        if len(frame) > _FRAME_LIMIT_BYTES:  # keys full of quotes, which JSON doubles
            frame = wire.encode(
                wire.Answer(number, Refused("this listing does not fit into a frame: use a longer prefix"))
            )
        self._connection.send(frame)

    def _watch(self, number: int, prefix: str, after: int) -> None:
        why = why_not_prefix(prefix)
        if why is not None:
            raise ValueError(why)
        if number in self._watches or len(self._watches) >= _WATCHES_A_CLIENT:
            raise ValueError(f"a client has at most {_WATCHES_A_CLIENT} watches, each with a number of its own")
        self._watches[number] = self._hub.subscribe(
            prefix, after, lambda changes, position: self._tell(number, changes, position), lambda: self._lose(number)
        )

    def _tell(self, number: int, changes: tuple[Changed, ...], position: int) -> None:
        self._connection.send(wire.encode(wire.Told(number, changes, position)))

    def _lose(self, number: int) -> None:
        self._watches.pop(number, None)
        self._connection.send(wire.encode(wire.Lost(number)))
