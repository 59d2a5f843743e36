"""Frames whose payloads go straight to where they are wanted, without a copy on the way from the kernel."""

from __future__ import annotations

from planaria.base.channel import LENGTH_BYTES, ChannelBroken

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Filling:
    """Fills `target` with the payloads of the frames that come next.

    `check(payload, code)` raises ChannelBroken for one that was changed. Bytes are in their place before they were checked:
    who owns `target` believes nothing before all of it is there.
    """

    __slots__ = ("_at", "_check", "_code_bytes", "_end", "_start", "_tail", "_tail_at", "_target")

    def __init__(
        self,
        target: memoryview,
        code_bytes: int,
        check: Callable[[memoryview, memoryview], object],
    ) -> None:
        self._target = target
        self._code_bytes = code_bytes
        self._check = check
        self._start = self._at = self._end = 0  # of the payload that is on its way
        # After a payload come its code and the length of the next one. Of what is before the first, only the length is left.
        self._tail = memoryview(bytearray(code_bytes + LENGTH_BYTES))
        self._tail_at = code_bytes

    @property
    def _tail_end(self) -> int:
        """Return how much of the tail is ours: what follows the last code is another's."""
        return self._code_bytes + (LENGTH_BYTES if self._end < len(self._target) else 0)

    def buffers(self) -> list[memoryview]:
        """Return where the next bytes belong, in order."""
        return [self._target[self._at : self._end], self._tail[self._tail_at : self._tail_end]]

    def took(self, size_bytes: int) -> bool:
        """Hear that so many bytes were put there; return whether that was all. Raises ChannelBroken."""
        payload_bytes = min(size_bytes, self._end - self._at)
        self._at += payload_bytes
        self._tail_at += size_bytes - payload_bytes
        if self._at < self._end or self._tail_at < self._tail_end:
            return False
        if self._end:
            self._check(self._target[self._start : self._end], self._tail[: self._code_bytes])
        if self._end == len(self._target):
            return True
        self._begin(int.from_bytes(self._tail[self._code_bytes :], "big"))
        return False

    def _begin(self, size_bytes: int) -> None:
        left_bytes = len(self._target) - self._end
        if not 0 < size_bytes <= left_bytes:
            raise ChannelBroken(f"it sent a frame of {size_bytes} bytes where at most {left_bytes} were to come")
        self._start = self._at = self._end
        self._end += size_bytes
        self._tail_at = 0

    def feed(self, data: bytes) -> tuple[bool, bytes]:
        """Put bytes there; return whether that was all, and what is left of them. Raises ChannelBroken."""
        view, is_over = memoryview(data), False
        while view and not is_over:
            room = next(filter(None, self.buffers()))
            size_bytes = min(len(room), len(view))
            room[:size_bytes] = view[:size_bytes]
            view = view[size_bytes:]
            is_over = self.took(size_bytes)
        return is_over, bytes(view)
