"""Write to the launcher's own stdout or stderr without ever waiting for whoever reads it.

The descriptor is shared with the shell, with `tee`, with workers that inherit it, so `O_NONBLOCK` is not ours to set.
"""

from __future__ import annotations

import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop

HIGH_WATER = 1 << 20
"""From this many waiting bytes on, producers should stop reading."""
LOW_WATER = HIGH_WATER // 4
"""Below this many waiting bytes they are called to go on."""
PIPE_BUF = select.PIPE_BUF  # a write of this size is atomic, and never blocks on a pipe that polls writable
WRITES_PER_WAKE_UP = 64  # a fast reader must not keep the loop from everything else
_LONGEST_POLL_S = 60.0
_FILE_TYPE, _FIFO = 0o170000, 0o010000  # `stat` is not imported for two numbers


class ConsoleSink:
    r"""Buffer what is to be shown and write it when the other end takes it, cut at line ends where it can be.

    Bytes that were written together stay together as far as the kernel allows: a piece of at most `PIPE_BUF` bytes
    that ends in a line end is never mixed with what another process writes into the same pipe. When the other end is
    gone (a closed pipe or terminal, a full disk), everything is dropped from then on and `on_dead` is told once why.
    """

    def __init__(self, loop: Loop, fd: int, on_dead: Callable[[OSError], object] | None = None) -> None:
        self._loop = loop
        self._own_fd = _private_copy(fd)
        self._fd = fd if self._own_fd is None else self._own_fd
        self._can_wait = _can_wait(loop, self._fd)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLOUT)
        self._on_dead = on_dead
        self._buffer = bytearray()
        self._producers: list[Callable[[], object]] = []
        self._queued = False
        self._watching = False
        self.is_dead = False
        self.taken_at = loop.now()
        """When the other end last took anything."""

    @property
    def pending_bytes(self) -> int:
        """Return how much is still to be written."""
        return len(self._buffer)

    @property
    def is_full(self) -> bool:
        """Tell a producer to stop and to ask for `on_drained`. Writing is still allowed."""
        return len(self._buffer) >= HIGH_WATER

    def write(self, data: bytes) -> None:
        """Take `data`, whatever its size; written at the end of the loop's turn or when the other end is ready."""
        if self.is_dead or not data:
            return
        self._buffer += data
        if not self._queued and not self._watching:
            self._queued = True
            self._loop.call_soon(self._pump)

    def on_drained(self, callback: Callable[[], object]) -> None:
        """Call back once, when there is room again. To be asked while `is_full`; who asked first is called first."""
        self._producers.append(callback)

    def flush(self, deadline: float) -> bool:
        """Write everything, waiting until `deadline` on the loop's clock if need be; tell whether all was written.

        For the end of a run: this is the one place that blocks.
        """
        while True:
            self._write_some()
            left_s = deadline - self._loop.now()
            if not self._buffer or left_s <= 0:
                break
            self._poll.poll(min(left_s, _LONGEST_POLL_S) * 1000)
        self._settle()
        return not self._buffer and not self.is_dead

    def close(self) -> None:
        """Drop what was not written and let go of the descriptor, which stays open if it is the caller's."""
        self._buffer.clear()
        self.is_dead = True
        self._settle()
        if self._own_fd is not None:
            os.close(self._own_fd)
            self._own_fd = None

    def _pump(self) -> None:
        self._queued = False
        self._write_some()
        self._settle()

    def _settle(self) -> None:
        """Watch the descriptor exactly while something waits for it, and call producers back when there is room."""
        if self._buffer and not self._watching:
            self._watching = self._loop.on_writable(self._fd, self._pump)
        elif not self._buffer and self._watching:
            self._watching = False
            self._loop.forget_writable(self._fd)
        if self._producers and len(self._buffer) < LOW_WATER:
            producers, self._producers = self._producers, []
            for callback in producers:
                callback()

    def _write_some(self) -> None:
        writes_left = WRITES_PER_WAKE_UP
        while self._buffer and writes_left:
            if not self._write_piece():
                return
            if self._can_wait:  # what epoll refuses takes everything now: nobody would call us again
                writes_left -= 1

    def _write_piece(self) -> bool:
        if self._can_wait:
            if self._own_fd is None and not self._poll.poll(0):
                return False
            size = self._buffer.rfind(b"\n", 0, PIPE_BUF) + 1 or PIPE_BUF
            piece = self._buffer[:size]
        else:
            piece = self._buffer
        try:
            written = os.write(self._fd, piece)
        except BlockingIOError:
            return False
        except OSError as exc:
            self._die(exc)
            return False
        del self._buffer[:written]
        self.taken_at = self._loop.now()
        return True

    def _die(self, exc: OSError) -> None:
        self.is_dead = True
        self._buffer.clear()
        if self._on_dead is not None:
            self._on_dead(exc)


def _private_copy(fd: int) -> int | None:
    """Open a pipe or terminal once more, not blocking: that flag belongs to this opening alone, as a `dup` would not.

    It matters most for terminals: one that is held (Ctrl-S) can poll writable and still block a write. Where the
    kernel says no (a socket, a pipe of another user), None: then polling before each small write has to do.
    """
    try:
        if not os.isatty(fd) and os.fstat(fd).st_mode & _FILE_TYPE != _FIFO:
            return None
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None


def _can_wait(loop: Loop, fd: int) -> bool:
    """Tell whether epoll takes `fd`. Regular files and `/dev/null` are written directly."""
    try:
        watched = loop.on_writable(fd, _nothing)
    except OSError:  # a closed descriptor: the first write finds out and reports it
        return False
    loop.forget_writable(fd)
    return watched


def _nothing() -> None:
    """Stand in for a callback that is never called."""
