"""A connection that carries whole messages: a descriptor on the loop, a channel above it and perhaps TLS between them.

The peer may be broken or hostile. It can cost us its own descriptor, one unfinished message and one bounded queue, never
the time of others: every read and write is bounded, and what it does not read or finish in time ends it.
"""

from __future__ import annotations

import os

from planaria.base.channel import NOBODY, PEER, STRANGER, ChannelBroken
from planaria.base.stream import CHUNK_BYTES, CLOSING, ENDED, LINGER_S, OPEN, SHAKING, STALL_S, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.channel import Channel, Met
    from planaria.base.filling import Filling
    from planaria.base.loop import Loop, Timer
    from planaria.base.tls import Tls

QUEUE_LIMIT_BYTES = 4 << 20
_MESSAGES_A_TURN = 64  # a chunk may hold ten thousand; others want their turn too


class Connection(Stream):
    """Sends and receives messages. Made by `Listener` and `dial`, and handed over once it is open.

    `on_message(payload)` is called for every message; until it is set they wait, and so does the peer.
    `on_lost(why, met)` is called at most once, after the last message, never from inside a call of the owner's and never
    after `close`; a connection is never `REFUSED`. `peer` is its address as text. `on_drained()` is called whenever the
    kernel has taken all that waited for a peer that reads slowly.
    """

    __slots__ = (
        "_channel",
        "_filling",
        "_inbox",
        "_is_paused",
        "_lost",
        "_midway_timer",
        "_on_filled",
        "_on_lost",
        "_on_message",
        "_on_open",
        "_tls",
        "bytes_in",
        "messages_in",
        "peer",
        "queue_limit_bytes",
    )

    def __init__(self, loop: Loop, descriptor: int, peer: str, channel: Channel, tls: Tls | None = None) -> None:
        """Take over `descriptor`, which has to be non-blocking."""
        super().__init__(loop, descriptor)
        self._channel = channel
        self._tls = tls
        self._inbox: list[bytes] = []  # newest first: taken from the end
        self._filling: Filling | None = None
        self._is_paused = False
        self._lost: tuple[str, Met] | None = None
        self._midway_timer: Timer | None = None
        self._on_open: Callable[[Connection], object] | None = None
        self._on_message: Callable[[bytes], object] | None = None
        self._on_lost: Callable[[str, Met], object] | None = None
        self._on_filled: Callable[[], object] | None = None
        self.peer = peer
        self.queue_limit_bytes = QUEUE_LIMIT_BYTES
        self.bytes_in = self.messages_in = 0

    @property
    def on_message(self) -> Callable[[bytes], object] | None:
        """What is called for every message."""
        return self._on_message

    @on_message.setter
    def on_message(self, callback: Callable[[bytes], object] | None) -> None:
        self._on_message = callback
        if callback is not None and self._inbox:
            self._loop.call_soon(self._deliver)

    @property
    def on_lost(self) -> Callable[[str, Met], object] | None:
        """What is called when the connection ended without our doing."""
        return self._on_lost

    @on_lost.setter
    def on_lost(self, callback: Callable[[str, Met], object] | None) -> None:
        self._on_lost = callback
        if callback is not None and self._lost is not None:
            self._loop.call_soon(self._report)

    @property
    def is_ended(self) -> bool:
        """Tell whether nothing more can happen: lost, or closed and everything said."""
        return self._phase == ENDED

    def begin(self, on_open: Callable[[Connection], object]) -> None:
        """Shake hands and then call `on_open`; what it sends leaves together with the last of the handshake."""
        self._on_open = on_open
        self._loop.on_readable(self._descriptor, self._read)
        self._is_corked = True
        try:
            if self._tls is not None:
                self._out += self._tls.opening()
            if opening := self._channel.opening():
                self._queue(opening)
            self._open_if_ready()
        finally:
            self._uncork()

    def read_now(self) -> None:
        """Take what has arrived already, before the loop says so."""
        self._read()

    def send(self, payload: bytes) -> None:
        """Send a message, now or as soon as the peer takes it; forgotten when the connection is lost or closed.

        Raises:
            ChannelBroken: The message is over the limit. Nothing was sent.
        """
        if self._phase != OPEN or self._is_mute:
            return
        self._queue(self._channel.seal(payload))
        if len(self._out) > self.queue_limit_bytes:
            self._lose(f"it does not read: {len(self._out)} bytes are waiting for it", NOBODY)
        elif not self._is_corked and self._timer is None:  # a timer: the kernel's buffer is full, the loop will tell
            self._flush()

    def send_bulk(self, payload: memoryview) -> bool:
        """Send a message that is a piece of much more, and tell whether the kernel took all of it.

        What it took was not copied. After a no the next piece is for when `on_drained` is called, if ever.

        Raises:
            ChannelBroken: The piece is over the limit. Nothing was sent.
        """
        if self._phase != OPEN or self._is_mute:
            return False
        if self._tls is not None or self._out:
            self._queue(self._channel.seal(payload))
            if self._timer is None:
                self._flush()
            return not self._out
        head, code = self._channel.wrap(payload)
        self._write(head, payload, code)
        return self._phase == OPEN and not self._out and not self._is_mute

    def fill(self, target: memoryview, on_filled: Callable[[], object]) -> None:
        """Put the messages that come next into `target`, one after the other and without a copy; then call `on_filled`.

        For who has asked the peer for nothing yet: one that has sent something already is lost.
        """
        if self._phase != OPEN:
            return
        if self._inbox:
            self._lose("it sent what was not asked for yet", PEER)
            return
        try:
            self._filling = self._channel.fill(target)
        except ChannelBroken as broken:
            self._lose(str(broken), broken.met)
            return
        self._on_filled = on_filled

    def close(self) -> None:
        """End the connection once what was sent is on its way, after a second at the latest. Reports nothing more."""
        self._on_open = self._on_message = self._on_lost = self._on_filled = self.on_drained = self._filling = None
        self._inbox.clear()
        self._lost = None
        if self._phase in (CLOSING, ENDED):
            return
        if self._phase == SHAKING or self._is_mute:
            self._end()
            return
        self._phase = CLOSING
        if self._tls is not None:
            self._out += self._tls.farewell()
        self._set_timer(LINGER_S, self._end)
        # To close with something unread would reset the connection and might take our last words from the peer.
        self._loop.on_readable(self._descriptor, self._discard)
        if not self._is_corked:
            self._flush()

    def _queue(self, data: bytes) -> None:
        if self._tls is None:
            self._out += data
            return
        try:
            self._out += self._tls.seal(data)
        except ChannelBroken as broken:  # TLS was broken by the peer, and only now we notice
            self._lose(str(broken), broken.met)

    def _read(self) -> None:
        if self._inbox:  # the peer waits until its earlier messages were taken
            if self._on_message is None:
                self._is_paused = True
                self._loop.forget_readable(self._descriptor)
            return
        try:
            if self._filling is not None and self._tls is None:
                data, size = b"", os.readv(self._descriptor, self._filling.buffers())
            else:
                data = os.read(self._descriptor, CHUNK_BYTES)
                size = len(data)
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(f"the connection broke: {error.strerror}", STRANGER)
            return
        if not size:
            self._lose("it ended the connection", STRANGER)
            return
        self.bytes_in += size
        self._is_corked = True
        try:
            self._take(data) if data else self._take_bulk(size)
            self._open_if_ready()
            if self._midway_timer is None and self._channel.is_midway and self._phase == OPEN:
                self._watch_midway()
            if self._inbox:
                self._deliver()
            if self._tls is not None and self._tls.is_ended:
                self._lose("it ended the connection", STRANGER)
        finally:
            self._uncork()

    def _take(self, data: bytes) -> None:
        """Let TLS and channel have `data`; answer what they want answered, keep the messages."""
        try:
            if self._tls is not None:
                data, reply = self._tls.receive(data)
                self._out += reply
        except ChannelBroken as broken:
            self._out += broken.farewell
            self._lose(str(broken), broken.met)
            return
        try:
            if self._filling is not None:
                is_full, data = self._filling.feed(data)
                if not is_full:
                    return
                self._filled()
            payloads, reply = self._channel.receive(data)
        except ChannelBroken as broken:
            self._queue(broken.farewell)
            self._lose(str(broken), broken.met)
            return
        if reply:
            self._queue(reply)
        if payloads:
            self.messages_in += len(payloads)
            payloads.reverse()
            self._inbox = payloads

    def _take_bulk(self, size: int) -> None:
        """Let the channel look at what was read into the memory of who wants it."""
        try:
            if self._filling is not None and self._filling.took(size):
                self._filled()
        except ChannelBroken as broken:
            self._lose(str(broken), broken.met)

    def _filled(self) -> None:
        on_filled, self._on_filled, self._filling = self._on_filled, None, None
        if on_filled is not None:
            on_filled()

    def _open_if_ready(self) -> None:
        if self._on_open is None or self._phase != SHAKING:
            return
        if self._channel.is_open and (self._tls is None or self._tls.is_open):
            on_open, self._on_open = self._on_open, None
            self._phase = OPEN
            on_open(self)

    def _deliver(self) -> None:
        left = _MESSAGES_A_TURN
        try:
            while self._inbox and left and self._on_message is not None:
                left -= 1
                self._on_message(self._inbox.pop())
        finally:  # also when the callback raised: the others have not been heard
            if self._inbox and self._on_message is not None:
                self._loop.call_soon(self._deliver)
            if self._is_paused and self._on_message is not None and self._phase == OPEN:
                self._is_paused = False
                self._loop.on_readable(self._descriptor, self._read)

    def _watch_midway(self) -> None:
        """Look again after a while; cheaper than a timer for each message that comes in two pieces."""
        heard = self.messages_in
        self._midway_timer = self._loop.call_later(STALL_S, lambda: self._check_midway(heard))

    def _check_midway(self, heard: int) -> None:
        self._midway_timer = None
        if self._phase != OPEN or not self._channel.is_midway:
            return
        if self.messages_in == heard:
            self._lose(f"it has not finished a message for {STALL_S:g} s", NOBODY)
        else:
            self._watch_midway()

    def _lose(self, why: str, met: Met) -> None:
        if self._phase == ENDED:
            return
        is_ours = self._phase == CLOSING
        if self._out and not is_ours:
            self._blurt()
        self._end()
        if not is_ours:
            self._lost = why, met
            self._loop.call_soon(self._report)

    def _report(self) -> None:
        if self._inbox and self._on_message is not None:
            self._deliver()
            if self._inbox:
                self._loop.call_soon(self._report)
                return
        if self._on_lost is not None and self._lost is not None:
            (why, met), self._lost = self._lost, None
            self._on_lost(why, met)

    def _end(self) -> None:
        if self._phase != ENDED:
            super()._end()
            if self._midway_timer is not None:
                self._midway_timer.cancel()
            self._midway_timer = None
            self._filling = self._on_filled = self.on_drained = None  # what was to be filled may be freed now
