"""The bare half of a connection: a descriptor on the loop, and the bytes that wait until the peer takes them."""

from __future__ import annotations

import _socket as socket  # the `socket` module costs 10 ms to import and adds nothing we use
import errno
import os
from abc import abstractmethod

from planaria.base.channel import NOBODY, STRANGER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.channel import Met
    from planaria.base.loop import Loop, Timer

STALL_S = 10.0  # without taking a byte of a full queue, or without finishing a message that was begun
LINGER_S = 1.0
CHUNK_BYTES = 1 << 16
_GONE = (errno.EPIPE, errno.ECONNRESET)

SHAKING, OPEN, CLOSING, ENDED = range(4)


class Stream:
    """Writes what is queued, gives up on a peer that does not read, and ends so that last words are heard.

    `stall_s` is how long a peer may leave a full queue alone.
    """

    __slots__ = (
        "_descriptor",
        "_is_corked",
        "_is_mute",
        "_loop",
        "_out",
        "_phase",
        "_timer",
        "bytes_out",
        "on_drained",
        "stall_s",
    )

    def __init__(self, loop: Loop, descriptor: int) -> None:
        self._loop = loop
        self._descriptor = descriptor
        self._phase = SHAKING
        self._out = bytearray()
        self._is_corked = False
        self._is_mute = False
        self._timer: Timer | None = None  # while the kernel's buffer is full, and while we linger
        self.bytes_out = 0
        self.on_drained: Callable[[], object] | None = None
        self.stall_s = STALL_S

    @abstractmethod
    def _lose(self, why: str, met: Met) -> None:
        """Give the peer up."""

    def _end(self) -> None:
        self._phase = ENDED
        self._loop.forget(self._descriptor)
        os.close(self._descriptor)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._out.clear()

    def _write(self, *pieces: bytes | memoryview) -> None:
        """Write pieces while nothing is queued; only what the kernel does not take now is copied."""
        try:
            sent = os.writev(self._descriptor, pieces)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._unwritable(error)
            return
        self.bytes_out += sent
        for piece in pieces:
            self._out += piece[sent:]
            sent = max(sent - len(piece), 0)
        if self._out:
            self._watch_writable()

    def _uncork(self) -> None:
        self._is_corked = False
        if self._phase == CLOSING or (self._out and self._timer is None):
            self._flush()

    def _flush(self) -> None:
        """Write what is queued, as far as the peer takes it."""
        if self._out:
            try:
                sent = os.write(self._descriptor, self._out)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self._unwritable(error)
                return
            self.bytes_out += sent
            if sent < len(self._out):
                del self._out[:sent]
                self._watch_writable()
                return
            self._out.clear()
        if self._phase == CLOSING:
            self._loop.forget_writable(self._descriptor)
            self._say_goodbye()
        elif self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._loop.forget_writable(self._descriptor)
            if self.on_drained is not None:
                self.on_drained()

    def _unwritable(self, error: OSError) -> None:
        """Stop writing. A peer that left may have said something before: reading finds that, and then the end."""
        self._out.clear()
        if self._phase != CLOSING and error.errno in _GONE:
            self._is_mute = True
            self._loop.forget_writable(self._descriptor)
        else:
            self._lose(f"the connection broke: {error.strerror}", STRANGER)

    def _watch_writable(self) -> None:
        self._loop.on_writable(self._descriptor, self._flush)
        if self._timer is None:
            taken = self.bytes_out
            self._set_timer(self.stall_s, lambda: self._check_stall(taken))

    def _check_stall(self, taken: int) -> None:
        if self.bytes_out == taken:
            self._lose(f"it has not read for {self.stall_s:g} s: {len(self._out)} bytes are waiting for it", NOBODY)
        else:
            taken = self.bytes_out
            self._set_timer(self.stall_s, lambda: self._check_stall(taken))

    def _set_timer(self, delay_s: float, callback: Callable[[], object]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, callback)

    def _say_goodbye(self) -> None:
        """Let the peer read to the end; `_discard` or the timer ends the rest."""
        stream = socket.socket(fileno=self._descriptor)
        try:
            stream.shutdown(socket.SHUT_WR)
        except OSError:  # it is gone already: reading finds the end
            return
        finally:
            stream.detach()

    def _discard(self) -> None:
        try:
            if os.read(self._descriptor, CHUNK_BYTES):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._end()

    def _blurt(self) -> None:
        """Write what goes into the kernel's buffer now; it may be the reason for which the peer is dropped."""
        try:
            self.bytes_out += os.write(self._descriptor, self._out)
        except OSError:
            return
