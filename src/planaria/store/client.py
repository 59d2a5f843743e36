"""The embedded store seen from another process: one connection that is made again whenever it breaks.

Requests that the store may have seen are sent again only where twice is as good as once; watches go on from where they
were. A server in a new life knows none of its old revisions, so that a watch of an old life is lost, and says so.
"""

from __future__ import annotations

from planaria.base.channel import NOBODY
from planaria.base.net import dial
from planaria.base.text import safe_line
from planaria.store import wire
from planaria.store.api import ANSWER_WITHIN_S, Store, Watching
from planaria.store.model import Get, Refused, Unavailable, WatchLost, is_repeatable, why_not_prefix, why_refused
from planaria.store.pending import Pending

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from ssl import SSLContext

    from planaria.base.channel import Met
    from planaria.base.loop import Loop, Timer
    from planaria.base.net import Connection, Dialling
    from planaria.store.model import Event, Reply, Request

_DIAL_WITHIN_S = 3.0
_WELCOME_WITHIN_S = 3.0
_AGAIN_S = 0.05  # the first wait before a new connection; doubled up to the longest
_LONGEST_AGAIN_S = 1.0
_PROBE_AFTER_S = (
    3.0  # a connection that was silent for so long is asked whether it lives; TCP alone may not tell for hours
)
_PROBE = Get("planaria/alive")


class RemoteStore(Store):
    """A client of a `StoreServer`. `addresses` ("host:port" or the path of a UNIX socket) are tried in turn."""

    def __init__(
        self, loop: Loop, addresses: Sequence[str], *, token: bytes | None, tls: SSLContext | None = None
    ) -> None:
        self._loop = loop
        self._addresses = tuple(addresses)
        self._token = token
        self._tls = tls
        self._tries = 0
        self._again_s = _AGAIN_S
        self._pending = Pending(loop)
        self._watches: dict[int, _RemoteWatching] = {}
        self._last_watch = 0
        self._dialling: Dialling | None = None
        self._connection: Connection | None = None
        self._timer: Timer | None = None
        self._is_welcome = False
        self._is_closed = False
        self._heard_at = 0.0
        self._dial()

    def ask(self, asked: Request, on_reply: Callable[[Reply], object], *, timeout_s: float = ANSWER_WITHIN_S) -> None:
        """Send a request, now or as soon as there is a connection."""
        if self._is_closed:
            return
        why = why_refused(asked)
        if why is not None:
            self._loop.call_soon(lambda: None if self._is_closed else on_reply(Refused(why)))
            return
        number = self._pending.add(asked, on_reply, timeout_s)
        if self._is_welcome:
            self._send_request(number)

    def watch(self, prefix: str, after: int, on_event: Callable[[Event], object]) -> Watching:
        """Tell every change under `prefix` after a revision."""
        why = why_not_prefix(prefix)
        if why is not None:
            raise ValueError(why)
        self._last_watch += 1
        watching = _RemoteWatching(self, self._last_watch, prefix, after, on_event)
        if not self._is_closed:
            self._watches[self._last_watch] = watching
            if self._is_welcome:
                self.send(watching.order())
        return watching

    def close(self) -> None:
        """Drop the connection and everything that hangs on it."""
        self._is_closed = True
        self._pending.clear()
        for watching in list(self._watches.values()):
            watching.cancel()
        self._drop()

    def send(self, message: wire.FromClient) -> None:
        """Send a message if there is anybody to send it to."""
        if self._connection is not None and self._is_welcome:
            self._connection.send(wire.encode(message))

    def forget(self, number: int) -> None:
        """Watch no more."""
        if self._watches.pop(number, None) is not None:
            self.send(wire.Unwatch(number))

    def _dial(self) -> None:
        address = self._addresses[self._tries % len(self._addresses)]
        self._tries += 1
        self._dialling = dial(
            self._loop,
            address,
            token=self._token,
            timeout_s=_DIAL_WITHIN_S,
            on_open=self._opened,
            on_lost=self._lost,
            tls=self._tls,
        )

    def _opened(self, connection: Connection) -> None:
        self._dialling = None
        self._connection = connection
        connection.on_lost = self._lost
        connection.on_message = self._receive
        connection.send(wire.encode(wire.Hello(wire.VERSION)))
        self._set_timer(_WELCOME_WITHIN_S, lambda: self._lost("no Welcome came"))

    def _lost(self, why: str, _met: Met = NOBODY) -> None:
        """Give up the connection and what cannot be sent again; dial anew a little later."""
        self._pending.trouble = safe_line(why)
        self._drop()
        self._set_timer(self._again_s, self._dial)
        self._again_s = min(self._again_s * 2, _LONGEST_AGAIN_S)
        for number, waiting in self._pending.all():
            if waiting.was_sent and not is_repeatable(waiting.asked):
                self._pending.give_up(number, "the connection broke before the answer came")

    def _drop(self) -> None:
        self._is_welcome = False
        if self._timer is not None:
            self._timer.cancel()
        if self._dialling is not None:
            self._dialling.cancel()
        if self._connection is not None:
            self._connection.on_message = None
            self._connection.close()
        self._dialling = self._connection = None

    def _receive(self, frame: bytes) -> None:
        self._heard_at = self._loop.now()
        try:
            message = wire.decode_from_server(frame)
        except ValueError as exc:
            self._lost(f"the store sent what is none of its messages: {exc}")
            return
        match message:
            case wire.Welcome():
                self._begin()
            case wire.Bye(why):
                self._lost(f"the store hung up: {why}")
            case wire.Answer(number, reply):
                self._pending.answer(number, reply)
            case wire.Told(number) | wire.Lost(number) if number in self._watches:
                self._watches[number].told(message)
            case _:
                pass  # of a watch that was cancelled meanwhile

    def _begin(self) -> None:
        """Send all that has waited for this connection."""
        self._is_welcome = True
        self._set_timer(_PROBE_AFTER_S, self._probe)
        self._again_s = _AGAIN_S
        self._pending.trouble = ""
        for number, _ in self._pending.all():
            self._send_request(number)
        for watching in self._watches.values():
            self.send(watching.order())

    def _probe(self) -> None:
        """Ask a silent store whether it is there; look again after as much silence."""
        silent_s = self._loop.now() - self._heard_at
        if silent_s < _PROBE_AFTER_S:
            self._set_timer(_PROBE_AFTER_S - silent_s, self._probe)
        else:
            self._timer = None
            self._send_request(self._pending.add(_PROBE, self._probed, _PROBE_AFTER_S))

    def _probed(self, reply: Reply) -> None:
        if not self._is_welcome:
            return
        if isinstance(reply, Unavailable):
            self._lost("the store has fallen silent")
        else:
            self._set_timer(_PROBE_AFTER_S, self._probe)

    def _set_timer(self, delay_s: float, callback: Callable[[], object]) -> None:
        """Set the one timer that a connection needs in each of its phases: dial again, be welcomed, probe."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, callback)

    def _send_request(self, number: int) -> None:
        waiting = self._pending.get(number)
        if waiting is not None:
            waiting.was_sent = True
            self.send(wire.Ask(number, waiting.asked))


class _RemoteWatching(Watching):
    def __init__(
        self, store: RemoteStore, number: int, prefix: str, after: int, on_event: Callable[[Event], object]
    ) -> None:
        self._store = store
        self._number = number
        self._prefix = prefix
        self._position = after
        self._on_event: Callable[[Event], object] | None = on_event

    def order(self) -> wire.Watch:
        """Return the message that begins this watch, or goes on with it."""
        return wire.Watch(self._number, self._prefix, self._position)

    def cancel(self) -> None:
        self._on_event = None
        self._store.forget(self._number)

    def told(self, message: wire.Told | wire.Lost) -> None:
        """Pass on what the store says."""
        if isinstance(message, wire.Lost):
            on_event = self._on_event
            self.cancel()
            if on_event is not None:
                on_event(WatchLost())
            return
        for change in message.changes:
            if self._on_event is not None:
                self._position = change.revision
                self._on_event(change)
        self._position = message.position
        if self._on_event is not None:
            self._store.send(wire.Seen(self._number))
