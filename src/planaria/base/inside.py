"""A connection inside of this process, for one that talks to itself as it talks to others: see `Connection`."""

from __future__ import annotations

from planaria.base.channel import PEER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.channel import Met
    from planaria.base.loop import Loop


def pair(loop: Loop, name: str) -> tuple[Inside, Inside]:
    """Return both ends of a connection that is open."""
    one, other = Inside(loop, name), Inside(loop, name)
    one.other, other.other = other, one
    return one, other


class Inside:
    """One end. What is sent arrives at the other after what is ready now; messages wait until somebody wants them."""

    __slots__ = (
        "_inbox",
        "_is_over",
        "_loop",
        "_on_filled",
        "_on_message",
        "_target",
        "bytes_in",
        "bytes_out",
        "on_drained",
        "on_lost",
        "other",
        "peer",
        "stall_s",
    )

    def __init__(self, loop: Loop, name: str) -> None:
        self._loop = loop
        self._inbox: list[bytes] = []
        self._is_over = False
        self._on_filled: Callable[[], object] | None = None
        self._on_message: Callable[[bytes], object] | None = None
        self._target: memoryview | None = None
        self.other: Inside
        self.peer = name
        self.stall_s = 0.0
        self.bytes_in = self.bytes_out = 0
        self.on_drained: Callable[[], object] | None = None
        self.on_lost: Callable[[str, Met], object] | None = None

    @property
    def on_message(self) -> Callable[[bytes], object] | None:
        """What is called for every message."""
        return self._on_message

    @on_message.setter
    def on_message(self, callback: Callable[[bytes], object] | None) -> None:
        self._on_message = callback
        self._loop.call_soon(self._deliver)

    def send(self, payload: bytes) -> None:
        """Send a message; forgotten when the connection is over."""
        if self._is_over:
            return
        self._count(len(payload))
        self._loop.call_soon(lambda: self.other._take(payload))  # noqa: SLF001  # the two ends are one thing

    def send_bulk(self, payload: memoryview) -> bool:
        """Copy a piece of much to where the other end wants it."""
        other = self.other
        if other._is_over or other._target is None:  # noqa: SLF001  # as above
            return False
        self._count(len(payload))
        other._put(payload)  # noqa: SLF001  # as above
        return True

    def fill(self, target: memoryview, on_filled: Callable[[], object]) -> None:
        """Put what the other end sends in bulk into `target`; then call `on_filled`."""
        if not self._is_over:
            self._target, self._on_filled = target, on_filled

    def close(self) -> None:
        """End it: the other end is told, after what was sent."""
        if self._is_over:
            return
        self._end()
        self._loop.call_soon(self.other._lose)  # noqa: SLF001  # as above

    def _count(self, size_bytes: int) -> None:
        self.bytes_out += size_bytes
        self.other.bytes_in += size_bytes

    def _take(self, payload: bytes) -> None:
        if not self._is_over:
            self._inbox.append(payload)
            self._deliver()

    def _deliver(self) -> None:
        while self._inbox and self._on_message is not None:
            self._on_message(self._inbox.pop(0))

    def _put(self, payload: memoryview) -> None:
        assert self._target is not None
        self._target[: len(payload)] = payload
        self._target = self._target[len(payload) :]
        if not self._target:
            self._target = None
            self._loop.call_soon(self._fill_over)

    def _fill_over(self) -> None:
        on_filled, self._on_filled = self._on_filled, None
        if on_filled is not None:
            on_filled()

    def _lose(self) -> None:
        if not self._is_over:
            on_lost = self.on_lost
            self._end()
            if on_lost is not None:
                on_lost("it ended the connection", PEER)

    def _end(self) -> None:
        self._is_over = True
        self._inbox.clear()
        self._target = self._on_filled = self._on_message = self.on_drained = self.on_lost = None
