"""Connect to an address: all the addresses of a name, one shortly after the other, and the first that opens wins."""

from __future__ import annotations

import _socket as socket  # the `socket` module costs 10 ms to import and adds nothing we use
import errno
import os

from planaria.base.addresses import join_address, look_up, numeric, split_address
from planaria.base.channel import NOBODY, NONCE_BYTES, PEER, REFUSED, STRANGER, Channel
from planaria.base.connection import Connection
from planaria.base.keep_alive import keep_alive

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from planaria.base.addresses import Target
    from planaria.base.channel import Met
    from planaria.base.loop import Loop, Timer
    from planaria.base.tls import Tls

_STAGGER_S = 0.25  # RFC 8305: long enough for a healthy path to answer, short enough not to be felt
_REASONS_SHOWN = 3
_FROM_LEAST_TO_MOST = (REFUSED, NOBODY, STRANGER, PEER)
_UNUSABLE = (ValueError, OverflowError)  # what sockets raise for text that is no address, and for a port that is none


def dial(  # noqa: PLR0913  # who, how and whom to tell; a record of them would be used here alone
    loop: Loop,
    address: str,
    *,
    token: bytes | None,
    timeout_s: float,
    on_open: Callable[[Connection], object],
    on_lost: Callable[[str, Met], object],
    tls: ssl.SSLContext | None = None,
) -> Dialling:
    """Connect to `host:port`, `[v6]:port` or the absolute path of a UNIX socket, and shake hands.

    Exactly one of the two is called, from the loop: `on_open(connection)`, or `on_lost(why, met)`. A host with several
    addresses has met us with the most that one of them did; `REFUSED` says that all of them refused the connection.
    Without a token `on_open` does not wait for the other end's hello; a mismatch is then a loss of the connection. Raises
    ValueError for an empty token.
    """
    trust = _Trust(token, tls)
    trust.channel()  # an empty token is found here, not in the loop
    return Dialling(loop, address, trust, timeout_s, on_open, on_lost)


class _Trust:
    """By what the two ends know each other."""

    def __init__(self, token: bytes | None, tls: ssl.SSLContext | None) -> None:
        self._token = token
        self._context = tls

    def channel(self) -> Channel:
        return Channel(token=self._token, dials=True, nonce=os.urandom(NONCE_BYTES))

    def tls(self, host: str) -> Tls | None:
        if self._context is None:
            return None
        from planaria.base.tls import Tls

        return Tls(self._context, host=host)


class Dialling:
    """An attempt to connect that has not ended yet."""

    def __init__(
        self,
        loop: Loop,
        address: str,
        trust: _Trust,
        timeout_s: float,
        on_open: Callable[[Connection], object],
        on_lost: Callable[[str, Met], object],
    ) -> None:
        self._loop = loop
        self._address = address
        self._host = address
        self._trust = trust
        self._on_open = on_open
        self._on_lost = on_lost
        self._is_over = False
        self._left: list[Target | str] = []
        self._connecting: dict[int, socket.socket] = {}
        self._shaking: set[Connection] = set()
        self._reasons: list[str] = []
        self._met: Met = REFUSED
        self._timer = loop.call_later(timeout_s, lambda: self._give_up(f"no answer within {timeout_s:g} s"))
        self._stagger: Timer | None = None
        loop.call_soon(self._start)  # never a callback from inside `dial`

    def cancel(self) -> None:
        """Give up without a word. Harmless when it is over."""
        self._is_over = True
        self._timer.cancel()
        if self._stagger is not None:
            self._stagger.cancel()
        for descriptor, stream in self._connecting.items():
            self._loop.forget(descriptor)
            stream.close()
        for connection in self._shaking:
            connection.close()
        self._connecting.clear()
        self._shaking.clear()

    def _start(self) -> None:
        if self._is_over:
            return
        if self._address.startswith("/"):
            self._found([self._address])
            return
        try:
            self._host, port = split_address(self._address)
            targets = numeric(self._host, port)
        except _UNUSABLE as error:
            self._give_up(str(error))
            return
        if targets:
            self._found([*targets])
        else:
            look_up(
                self._loop, self._host, port, lambda found: self._found(found if isinstance(found, str) else [*found])
            )

    def _found(self, targets: list[Target | str] | str) -> None:
        if self._is_over:
            return
        if isinstance(targets, str):
            self._give_up(targets)
            return
        self._left = targets
        self._try_next()

    def _try_next(self) -> None:
        """Try addresses until one does not fail at once; while that one is silent, the next is tried too."""
        if self._stagger is not None:
            self._stagger.cancel()
            self._stagger = None
        while self._left and not self._is_over:
            target = self._left.pop(0)
            try:
                self._connect(target)
            except OSError as error:
                self._note(_name_of(target), error.errno or errno.EIO)
                continue
            except _UNUSABLE as error:
                self._add(f"{_name_of(target)}: {error}", NOBODY)
                continue
            if self._left:
                self._stagger = self._loop.call_later(_STAGGER_S, self._try_next)
            return
        if not self._is_over and not self._connecting and not self._shaking:
            why = "; ".join(dict.fromkeys(self._reasons[:_REASONS_SHOWN])) or "the name has no address"
            self._give_up(why, self._met if self._reasons else NOBODY)

    def _connect(self, target: Target | str) -> None:
        family, address = (socket.AF_UNIX, target) if isinstance(target, str) else target
        stream = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        if family != socket.AF_UNIX:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keep_alive(stream)
        try:
            stream.connect(address)
        except BlockingIOError as error:
            if error.errno != errno.EINPROGRESS:  # EAGAIN: the queue of a UNIX socket is full
                stream.close()
                raise
        except (OSError, *_UNUSABLE):
            stream.close()
            raise
        self._connecting[stream.fileno()] = stream
        self._loop.on_writable(stream.fileno(), lambda: self._connected(stream, target))

    def _connected(self, stream: socket.socket, target: Target | str) -> None:
        descriptor = stream.fileno()
        self._loop.forget(descriptor)
        del self._connecting[descriptor]
        status = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if status == 0 and not isinstance(target, str) and stream.getsockname()[:2] == target[1][:2]:
            # Nobody listens there: the kernel gave us the very port we dialled, and we met ourselves.
            status = errno.ECONNREFUSED
        if status != 0:
            stream.close()
            self._note(_name_of(target), status)
            self._try_next()
            return
        self._shake_hands(stream.detach(), _name_of(target))

    def _shake_hands(self, descriptor: int, peer: str) -> None:
        try:
            tls = self._trust.tls(self._host)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            os.close(descriptor)
            self._failed(f"TLS cannot be used with {peer}: {error}", NOBODY)
            return
        connection = Connection(self._loop, descriptor, peer, self._trust.channel(), tls)
        self._shaking.add(connection)
        connection.on_lost = lambda why, met: self._left_by(connection, why, met)
        connection.begin(self._opened)

    def _left_by(self, connection: Connection, why: str, met: Met) -> None:
        if not self._is_over:
            self._shaking.discard(connection)
            self._failed(f"{connection.peer}: {why}", met)

    def _opened(self, connection: Connection) -> None:
        self._shaking.discard(connection)
        self.cancel()
        connection.on_lost = None
        self._on_open(connection)

    def _failed(self, why: str, met: Met) -> None:
        self._add(why, met)
        self._try_next()

    def _note(self, name: str, status: int) -> None:
        self._add(f"{name}: {os.strerror(status)}", REFUSED if status == errno.ECONNREFUSED else NOBODY)

    def _add(self, why: str, met: Met) -> None:
        self._reasons.append(why)
        self._met = max(self._met, met, key=_FROM_LEAST_TO_MOST.index)

    def _give_up(self, why: str, met: Met = NOBODY) -> None:
        self.cancel()
        self._on_lost(f"cannot reach {self._address} ({why})", met)


def _name_of(target: Target | str) -> str:
    return target if isinstance(target, str) else join_address(target[1][0], target[1][1])
