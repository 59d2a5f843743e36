"""Carry one stream of one worker from its pipe to its log file, unchanged, and to the console, line by line."""

from __future__ import annotations

import fcntl
import os

from planaria.base.value import Value
from planaria.process.lines import LineCutter, matching, prefixed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop
    from planaria.process.sink import ConsoleSink

    Warn = Callable[[str], object]

PIPE_BYTES = 1 << 20
TAIL_BYTES = 8192
_READ_BYTES = 1 << 16  # below malloc's mmap threshold: a bigger buffer would cost a mapping for every short line
_READS_PER_WAKE_UP = 4
_TICK_S = 0.025
_WAKE_UPS_PER_TICK = 2
_IDLE_TICKS = 8


class Route(Value):
    """Where a worker's bytes go. The descriptors are the tee's from then on; the sink is shared.

    `filters`: a line that contains any of them is copied to `filtered_fd`, with the prefix. `on_lines` gets whole lines.
    """

    log_fd: int | None = None
    sink: ConsoleSink | None = None
    prefix: bytes = b""
    filters: tuple[bytes, ...] = ()
    filtered_fd: int | None = None
    on_lines: Callable[[bytes], object] | None = None


class Pace:
    """Read the streams that write little and often together, once a tick.

    64 workers that flush each of 1,000 lines a second would wake the launcher 64,000 times: 70 % of a core. A launcher
    that takes more than its share of busy CPUs is made to wait for them, with everybody's output.
    """

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self._gathering: list[Tee] = []
        self._is_due = False

    @property
    def tick(self) -> int:
        """Return the number of the running tick."""
        return int(self.loop.now() / _TICK_S)

    def gather(self, tee: Tee) -> None:
        """Call `tee.on_tick` at every tick until it returns False."""
        self._gathering.append(tee)
        if not self._is_due:
            self._is_due = True
            self.loop.call_at((self.tick + 1) * _TICK_S, self._on_tick)

    def _on_tick(self) -> None:
        self._is_due = False
        gathering, self._gathering = self._gathering, []
        for tee in gathering:
            if tee.on_tick():
                self.gather(tee)


class Tee:
    """Read a worker's pipe until `finish`. A console that is too slow slows the worker, not the launcher's memory."""

    def __init__(self, pace: Pace, read_fd: int, route: Route, warn: Warn | None = None) -> None:
        self._pace = pace
        self._loop = pace.loop
        self._read_fd = read_fd
        self._route = route
        self._log = _File(route.log_fd, warn)
        self._filtered = _File(route.filtered_fd, warn)
        self._shows_lines = any(one is not None for one in (route.sink, route.filtered_fd, route.on_lines))
        self._cutter = LineCutter()
        self._tail = bytearray()
        self._tick = 0
        self._wake_ups = 0
        self._recent_bytes = 0
        self._idle_ticks = 0
        self._gathers_below = fcntl.fcntl(read_fd, fcntl.F_GETPIPE_SZ) // 4
        self._at_end = False
        self._finished = False
        self._is_waiting = False
        os.set_blocking(read_fd, False)
        self._resume()

    def tail(self) -> bytes:
        """Return the last `TAIL_BYTES` the worker wrote; still answers after `finish`."""
        return bytes(self._tail[-TAIL_BYTES:])

    def is_held(self, since: float) -> bool:
        """Tell whether the worker has said something that nobody has read, for a console that took nothing since then."""
        sink = self._route.sink
        return self._is_waiting and not self._finished and sink is not None and sink.taken_at <= since

    def catch_up(self) -> None:
        """Take what the pipe holds right now, however full the sink is; `tail` then has the worker's last words."""
        left = fcntl.fcntl(self._read_fd, fcntl.F_GETPIPE_SZ)
        while left > 0 and not self._at_end:
            taken = self._read()
            if not taken:
                break
            left -= taken

    def finish(self) -> None:
        """Take what the pipe holds right now, end the last line, and close everything. The worker is dead.

        Never waits for the end of the stream, which a grandchild may keep open, and never takes more than the pipe can
        hold, which a grandchild may keep full. The sink gets it all, full or not.
        """
        if self._finished:
            return
        self._finished = True
        self._loop.forget_readable(self._read_fd)
        self.catch_up()
        self._show(self._cutter.end())
        os.close(self._read_fd)
        self._log.close()
        self._filtered.close()

    def _resume(self) -> None:
        self._is_waiting = False
        if not self._finished and not self._at_end:
            self._loop.on_readable(self._read_fd, self._on_readable)

    def _on_readable(self) -> None:
        if self._waits_for_sink():
            self._loop.forget_readable(self._read_fd)
            return
        taken = self._take()
        tick = self._pace.tick
        if tick != self._tick:
            self._recent_bytes = self._recent_bytes if tick == self._tick + 1 else 0
            self._tick, self._wake_ups = tick, 0
        self._wake_ups += 1
        self._recent_bytes += taken
        if self._at_end:
            self._loop.forget_readable(self._read_fd)
        elif self._wake_ups >= _WAKE_UPS_PER_TICK and self._recent_bytes < self._gathers_below:
            self._loop.forget_readable(self._read_fd)
            self._idle_ticks = 0
            self._pace.gather(self)

    def on_tick(self) -> bool:
        """Take what gathered since the last tick; tell whether the stream still writes little and often."""
        if self._finished or self._at_end or self._waits_for_sink():
            return False
        self._recent_bytes = self._take()
        self._idle_ticks = 0 if self._recent_bytes else self._idle_ticks + 1
        if self._recent_bytes < self._gathers_below and self._idle_ticks < _IDLE_TICKS and not self._at_end:
            return True
        self._tick = self._pace.tick
        self._resume()
        return False

    def _waits_for_sink(self) -> bool:
        # Asked before reading, not after: so those who had their turn queue up behind those who had not.
        sink = self._route.sink
        if sink is None or not sink.is_full:
            return False
        self._is_waiting = True
        sink.on_drained(self._resume)
        return True

    def _take(self) -> int:
        """Read a few chunks, as far as there are any; return how many bytes that was."""
        taken = 0
        for _ in range(_READS_PER_WAKE_UP):
            size = self._read()
            taken += size
            if size < _READ_BYTES:
                break
        if self._at_end:
            self._show(self._cutter.end())
        return taken

    def _read(self) -> int:
        """Carry one chunk; return its size, 0 when there is nothing (more)."""
        try:
            data = os.read(self._read_fd, _READ_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            self._at_end = True
            return 0
        self._log.write(data)
        self._tail += data[-TAIL_BYTES:]
        if len(self._tail) > 4 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]
        if self._shows_lines:
            self._show(self._cutter.feed(data))
        return len(data)

    def _show(self, lines: bytes) -> None:
        if not lines:
            return
        if self._route.sink is not None:
            self._route.sink.write(prefixed(self._route.prefix, lines))
        if self._filtered.is_open:
            self._filtered.write(prefixed(self._route.prefix, matching(self._route.filters, lines)))
        if self._route.on_lines is not None:
            self._route.on_lines(lines)


class _File:
    """A log file that may fail (a full disk, a lost mount): that is said once, and the worker goes on without it."""

    def __init__(self, fd: int | None, warn: Warn | None) -> None:
        self._fd = fd
        self._warn = warn

    @property
    def is_open(self) -> bool:
        return self._fd is not None

    def write(self, data: bytes) -> None:
        if self._fd is None or not data:
            return
        try:
            written = os.write(self._fd, data)
            while written < len(data):
                written += os.write(self._fd, memoryview(data)[written:])
        except OSError as exc:
            self._give_up(self._fd, exc)

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is None:
            return
        try:
            os.close(fd)
        except OSError as exc:  # network file systems report lost writes here
            self._say("the end of a worker's log may be missing", exc)

    def _give_up(self, fd: int, exc: OSError) -> None:
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            path = "a worker's log"
        self._say(f"cannot write {path}, going on without it", exc)
        self.close()

    def _say(self, what: str, exc: OSError) -> None:
        if self._warn is not None:
            self._warn(f"{what}: {os.strerror(exc.errno or 0)}")


def open_pipe(size_bytes: int = PIPE_BYTES) -> tuple[int, int]:
    """Return the read end, not blocking, and the write end of a pipe of `size_bytes`, or as large as we are allowed."""
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    try:  # noqa: SIM105  # `contextlib` costs more to import than it says
        fcntl.fcntl(read_fd, fcntl.F_SETPIPE_SZ, size_bytes)
    except OSError:
        pass  # over /proc/sys/fs/pipe-max-size or this user's share: the usual 64 KiB will do
    return read_fd, write_fd


def tail_of_file(path: str, limit: int = TAIL_BYTES) -> bytes:
    """Return the last `limit` bytes of a log file; nothing when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        size = os.lseek(fd, 0, os.SEEK_END)
        return os.pread(fd, limit, max(size - limit, 0))
    except OSError:
        return b""
    finally:
        os.close(fd)
