"""Listen for connections that carry messages, on TCP or a UNIX socket; `dial` is the other end.

Whoever connects is a stranger until hands were shaken. Strangers cost little: one descriptor and less than 80 bytes each
(TLS needs more), few at a time and not for long; they are reported in few lines and never slow down those who are known.
"""

from __future__ import annotations

import _socket as socket  # the `socket` module costs 10 ms to import and adds nothing we use
import errno
import os

from planaria.base.addresses import join_address, look_up_now, split_address
from planaria.base.channel import NONCE_BYTES, Channel
from planaria.base.connection import Connection
from planaria.base.dial import Dialling, dial
from planaria.base.keep_alive import keep_alive

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from planaria.base.loop import Loop, Timer

__all__ = ["Complaints", "Connection", "Dialling", "Listener", "dial", "join_address", "split_address"]

_BACKLOG = 4096  # a whole cluster may dial in the same moment; the kernel cuts it to net.core.somaxconn
_ACCEPTS_A_TURN = 64
_STRANGERS = 256
_STRANGER_S = 5.0
_GRACE_S = 0.5  # a stranger's time when others wait for its place; honest ones need it when all cores are busy
_PAUSE_S = 0.25  # after an error of `accept` that may last: a shortage of descriptors, or one we do not know
_LINES_EVERY_S = 1.0
_LONGEST_SILENCE_S = 300.0
_KINDS = 64  # of complaints that are told apart; a stranger can make up as many as it likes
# accept(2): that one left while it waited, or the network told its fault here; the next in the queue may be fine.
_ITS_OWN = (
    errno.ECONNABORTED,
    errno.EPROTO,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENONET,
    errno.ENOPROTOOPT,
)


class Listener:
    """Accepts connections at `address`: (host, port), or the path of a UNIX socket that only our user may use.

    Host "" means every address of this machine; a name is looked up at once, which may block. `on_connection` gets every
    connection whose hands were shaken, `on_refused` a few lines about those that were dropped before: see `Complaints`, of
    which it may be one that others use too.

    Raises:
        OSError: The address cannot be had.
        ValueError: The token is empty.
    """

    def __init__(
        self,
        loop: Loop,
        address: tuple[str, int] | str,
        on_connection: Callable[[Connection], object],
        *,
        token: bytes | None,
        on_refused: Callable[[str], object] | Complaints | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        Channel(
            token=token, dials=False, nonce=bytes(NONCE_BYTES)
        )  # an empty token is found here, not by the first peer
        self._loop = loop
        self._on_connection = on_connection
        self._token = token
        self._tls = tls
        self._shares_complaints = isinstance(on_refused, Complaints)
        self._complaints = on_refused if isinstance(on_refused, Complaints) else Complaints(loop, on_refused)
        self._strangers: dict[Connection, float] = {}  # since when; oldest first
        self._sweep: Timer | None = None
        self._pause: Timer | None = None
        self._path = address if isinstance(address, str) else ""
        self._socket = _unix_socket(address) if isinstance(address, str) else tcp_socket(*address)
        self.port: int = 0 if self._path else self._socket.getsockname()[1]
        self._listen()

    def close(self) -> None:
        """Accept nobody any more and drop the strangers; connections that were handed over stay."""
        if not self._shares_complaints:
            self._complaints.close()
        for timer in (self._sweep, self._pause):
            if timer is not None:
                timer.cancel()
        self._sweep = self._pause = None
        if self._socket.fileno() >= 0:
            self._loop.forget(self._socket.fileno())
            self._socket.close()
            if self._path:
                os.unlink(self._path)
        for connection in self._strangers:
            connection.close()
        self._strangers.clear()

    def _listen(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        self._loop.on_readable(self._socket.fileno(), self._accept)

    def _wait(self, delay_s: float) -> None:
        """Accept nobody for a while; those who wait keep their place in the kernel's queue."""
        self._loop.forget(self._socket.fileno())
        self._pause = self._loop.call_later(delay_s, self._listen)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_A_TURN):
            if len(self._strangers) >= _STRANGERS and not self._make_room():
                return
            try:
                descriptor, address = self._socket._accept()  # type: ignore[attr-defined]  # noqa: SLF001  what socket.accept wraps
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _ITS_OWN:
                    continue
                self._complaints.add(f"cannot accept connections: {os.strerror(error.errno or 0)}")
                self._wait(_PAUSE_S)  # to try again at once would keep this process busy and change nothing
                return
            self._meet(descriptor, self._path or join_address(address[0], address[1]))
            if self._socket.fileno() < 0:  # closed by the owner it was handed to
                return

    def _make_room(self) -> bool:
        """Drop the oldest stranger, or wait until it has had a fair time."""
        oldest, since = next(iter(self._strangers.items()))
        left_s = since + _GRACE_S - self._loop.now()
        if left_s > 0:
            self._wait(left_s)
            return False
        self._drop(oldest, "others waited while it did not shake hands")
        return True

    def _meet(self, descriptor: int, peer: str) -> None:
        os.set_blocking(descriptor, False)
        tls = None
        if self._tls is not None:
            from planaria.base.tls import Tls

            tls = Tls(self._tls, host=None)
        channel = Channel(token=self._token, dials=False, nonce=os.urandom(NONCE_BYTES))
        connection = Connection(self._loop, descriptor, peer, channel, tls)
        self._strangers[connection] = self._loop.now()
        connection.on_lost = lambda why, _: self._left_by(connection, why)
        connection.begin(self._opened)
        connection.read_now()  # it dialled, so it speaks first, and mostly it has spoken
        if self._sweep is None and self._strangers:
            self._sweep = self._loop.call_later(_STRANGER_S, self._drop_silent)

    def _opened(self, connection: Connection) -> None:
        self._forget(connection)
        connection.on_lost = None
        self._on_connection(connection)

    def _left_by(self, connection: Connection, why: str) -> None:
        self._forget(connection)
        if connection.bytes_in:  # one that came and left without a word only looked whether somebody is here
            self._complaints.add(f"dropped a connection from {connection.peer}: {why}", connection.peer)

    def _forget(self, connection: Connection) -> None:
        self._strangers.pop(connection, None)
        if self._pause is not None and len(self._strangers) < _STRANGERS:
            self._listen()

    def _drop(self, connection: Connection, why: str) -> None:
        self._strangers.pop(connection, None)
        connection.close()
        self._complaints.add(f"dropped a connection from {connection.peer}: {why}", connection.peer)

    def _drop_silent(self) -> None:
        self._sweep = None
        now = self._loop.now()
        for connection, since in list(self._strangers.items()):
            if since + _STRANGER_S > now:
                self._sweep = self._loop.call_at(since + _STRANGER_S, self._drop_silent)
                return
            self._drop(connection, f"it did not shake hands within {_STRANGER_S:g} s")


class Complaints:
    """Says lines about others, and few of them, whatever the others do.

    One of a new kind is said as soon as a line may be; equal ones, but for the peer's port, again after 1, 2, 4 ... 300 s,
    the newest with how many more there were. Kinds take turns: one line a second. What was left out is said when its time
    has come.
    """

    def __init__(self, loop: Loop, say: Callable[[str], object] | None) -> None:
        self._loop = loop
        self._say = say
        self._kinds: dict[str, _Kind] = {}
        self._timer: Timer | None = None
        self._quiet_until = loop.now()

    def add(self, line: str, peer: str = "") -> None:
        """Say a line, now or later. `peer` is the address in it, which may have another port the next time."""
        if self._say is None:
            return
        now = self._loop.now()
        kind = self._kind(line.replace(peer, peer.rpartition(":")[0]) if peer else line, now)
        if not kind.unsaid and now > kind.due_at + _LONGEST_SILENCE_S:
            kind.silence_s = 0.0  # it was over: this is news again
        kind.line = line
        kind.unsaid += 1
        if self._timer is None or kind.due_at < self._timer.when:
            self._speak()

    def close(self) -> None:
        """Say nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._say = None

    def _kind(self, name: str, now: float) -> _Kind:
        if name not in self._kinds and len(self._kinds) >= _KINDS:
            over = next((known for known, kind in self._kinds.items() if not kind.unsaid), None)
            if over is None:
                name = next(
                    reversed(self._kinds)
                )  # so many wait for their turn that this one takes the turn of the last
            else:
                del self._kinds[over]
        return self._kinds.setdefault(name, _Kind(now))

    def _speak(self) -> None:
        """Say the line that has waited longest, if it is time for one; come back for the next."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._loop.now()
        kind, told = self._next(), ""
        if kind is not None and now >= max(kind.due_at, self._quiet_until):
            told = f"{kind.line} (and {kind.unsaid - 1} more)" if kind.unsaid > 1 else kind.line
            kind.said(now)
            self._quiet_until = now + _LINES_EVERY_S
            kind = self._next()
        if kind is not None:
            self._timer = self._loop.call_at(max(kind.due_at, self._quiet_until), self._speak)
        if told and self._say is not None:
            self._say(told)

    def _next(self) -> _Kind | None:
        waiting = [kind for kind in self._kinds.values() if kind.unsaid]
        return min(waiting, key=lambda kind: kind.due_at) if waiting else None


class _Kind:
    """Complaints that are equal, and when the next of them may be said."""

    __slots__ = ("due_at", "line", "silence_s", "unsaid")

    def __init__(self, now: float) -> None:
        self.due_at = now
        self.silence_s = 0.0
        self.unsaid = 0
        self.line = ""

    def said(self, now: float) -> None:
        self.silence_s = min(max(2 * self.silence_s, _LINES_EVERY_S), _LONGEST_SILENCE_S)
        self.due_at = now + self.silence_s
        self.unsaid = 0


def _unix_socket(path: str) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        stream.bind(path)
        os.chmod(path, 0o600)  # nobody can connect before `listen`
        stream.listen(_BACKLOG)
    except OSError:
        stream.close()
        raise
    return stream


def tcp_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens and does not block; for `host` see `Listener`. Raises OSError."""
    if host:
        family, address = look_up_now(host, port)[0]
        return _listening(family, address)
    try:
        return _listening(socket.AF_INET6, ("::", port, 0, 0))
    except OSError as error:
        if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            raise
        return _listening(socket.AF_INET, ("0.0.0.0", port))  # noqa: S104  asked for: every address


def _listening(family: int, address: tuple[str, int] | tuple[str, int, int, int]) -> socket.socket:
    stream = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # what is accepted inherits it
        keep_alive(stream)  # and this
        if family == socket.AF_INET6:
            stream.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if address[0] == "::" else 1)
        stream.bind(address)
        stream.listen(_BACKLOG)
    except OSError:
        stream.close()
        raise
    return stream
