"""Take what a function returns out of its worker's pipe, while the worker runs.

A pipe holds 64 KiB. Whoever waits for a worker to end before reading what it has to say waits for ever.
"""

from __future__ import annotations

import os

from planaria.process import pickling
from planaria.process.function_main import LENGTH_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.base.loop import Loop

_READ_BYTES = 1 << 20
_READS_PER_WAKE_UP = 4  # a worker with much to say must not keep the loop from everything else


class Result:
    """The return value of one worker, as far as it has come."""

    def __init__(self, loop: Loop, read_fd: int) -> None:
        self._loop = loop
        self._read_fd: int | None = read_fd
        self._data = bytearray()
        os.set_blocking(read_fd, False)
        loop.on_readable(read_fd, self._on_readable)

    @property
    def is_whole(self) -> bool:
        """Tell whether all of it is here; one who leaves by `os._exit` has none."""
        size = len(self._data)
        return size >= LENGTH_BYTES and size - LENGTH_BYTES == int.from_bytes(self._data[:LENGTH_BYTES], "little")

    @property
    def is_partial(self) -> bool:
        """Tell whether some of it is here, and not all."""
        return bool(self._data) and not self.is_whole

    def value(self) -> object:
        """Return the value, once it is whole. Raises whatever unpickling raises."""
        return pickling.load(memoryview(self._data)[LENGTH_BYTES:])

    def catch_up(self) -> None:
        """Take all there is, after the worker's end: its last words may still be in the pipe."""
        while self._read():
            continue

    def close(self) -> None:
        """Read no more."""
        if self._read_fd is not None:
            self._loop.forget(self._read_fd)
            os.close(self._read_fd)
            self._read_fd = None

    def _on_readable(self) -> None:
        for _ in range(_READS_PER_WAKE_UP):
            if not self._read():
                return

    def _read(self) -> bool:
        """Take a piece; False when there is nothing (more)."""
        if self._read_fd is None:
            return False
        try:
            piece = os.read(self._read_fd, _READ_BYTES)
        except BlockingIOError:
            return False
        self._data += piece
        if not piece:
            self.close()
        return bool(piece)
