"""TLS under a channel, on memory buffers: bytes in, bytes out. Only who was given an `ssl.SSLContext` imports this."""

from __future__ import annotations

import ssl

from planaria.base.channel import STRANGER, ChannelBroken

_CHUNK_BYTES = 1 << 16


class Tls:
    """One end of a TLS connection. What is sealed before the handshake is done waits for it."""

    __slots__ = ("_incoming", "_object", "_outgoing", "_waiting", "is_ended", "is_open")

    def __init__(self, context: ssl.SSLContext, *, host: str | None) -> None:
        """`host`: whose certificate the other end has to show; None for the listening end. Raises ValueError, SSLError."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=host is None, server_hostname=host)
        self._waiting = b""
        self.is_open = False
        self.is_ended = False

    def opening(self) -> bytes:
        """Return what has to be sent first."""
        self._shake_hands()
        return self._outgoing.read()

    def seal(self, data: bytes) -> bytes:
        """Return what to send for `data` now."""
        if not self.is_open:
            self._waiting += data
            return b""
        try:
            left = memoryview(data)
            while left:  # one call takes one record
                left = left[self._object.write(left) :]
        except ssl.SSLError as error:
            raise self._broken(error) from error
        return self._outgoing.read()

    def receive(self, data: bytes) -> tuple[bytes, bytes]:
        """Take what arrived; return what it says and the bytes to send back. Raises ChannelBroken."""
        self._incoming.write(data)
        if not self.is_open and not self._shake_hands():
            return b"", self._outgoing.read()
        said = []
        try:
            while chunk := self._object.read(_CHUNK_BYTES):
                said.append(chunk)
            self.is_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.is_ended = True
        except ssl.SSLError as error:
            raise self._broken(error) from error
        waiting, self._waiting = self._waiting, b""
        return b"".join(said), self.seal(waiting) + self._outgoing.read()

    def farewell(self) -> bytes:
        """Return what tells the other end that nothing more will follow."""
        try:
            self._object.unwrap()
        except (ssl.SSLError, ValueError):  # it waits for the answer of the other end; we do not
            return self._outgoing.read()
        return self._outgoing.read()

    def _shake_hands(self) -> bool:
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise self._broken(error) from error
        self.is_open = True
        return True

    def _broken(self, error: ssl.SSLError) -> ChannelBroken:
        if isinstance(error, ssl.SSLCertVerificationError):
            why = f"its TLS certificate is not accepted: {error.verify_message.rstrip('.')}"
        else:
            why = f"it broke TLS ({(error.reason or 'unknown reason').lower().replace('_', ' ')})"
        return ChannelBroken(why, self._outgoing.read(), STRANGER)
