"""The named pipe of torch's expiration timers: made, kept open, emptied, made again when somebody deletes it.

We hold both of its ends. So a client can always open it, also while workers stop or are started again, and we never see an
end of it.
"""

from __future__ import annotations

import errno
import os
import select
import stat

from planaria.contract.timer import LINE_LIMIT_BYTES
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop

_PIPE_BYTES = 1 << 20  # what a user without privileges may have: 8,000 lines wait in it while the agent gets no CPU
_CHUNK_BYTES = 1 << 16
_LOOK_EVERY_S = 0.25  # to look costs less than inotify, and torch's client gives up after 0.9 s


def make_fifo(path: str, source: str) -> int:
    """Make a named pipe that only our user may use, and open it; a stale one of ours, which nobody reads, is replaced.

    Raises:
        UsageError: The name is taken, or nothing can be made there; `source` is who chose it.
    """
    try:
        if _is_stale(path):
            os.unlink(path)
        os.mkfifo(path, 0o600)
        return _open_fifo(path)
    except FileExistsError as exc:
        raise UsageError(
            f"{source} expects the path of a pipe to be made, got {path!r}, where there is {_what_is_at(path)} already",
            hint="remove it, or choose another name",
        ) from exc
    except OSError as exc:
        raise UsageError(
            f"{source} expects the path of a pipe to be made, got {path!r}: {os.strerror(exc.errno or 0)}"
        ) from exc


def _is_stale(path: str) -> bool:
    """Tell whether this is a pipe of ours that nobody reads: what an agent that was killed left behind."""
    try:
        found = os.lstat(path)
        if not stat.S_ISFIFO(found.st_mode) or found.st_uid != os.getuid():
            return False
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW))
    except FileNotFoundError:
        return False
    except OSError as exc:
        return exc.errno == errno.ENXIO
    return False


def _what_is_at(path: str) -> str:
    try:
        found = os.lstat(path)
    except OSError:  # gone again
        return "something"
    if not stat.S_ISFIFO(found.st_mode):
        return "a file" if stat.S_ISREG(found.st_mode) else "something else"
    return "a pipe that another process reads" if found.st_uid == os.getuid() else "a pipe of another user"


def _open_fifo(path: str) -> int:
    """Open both ends of the pipe that was just made, without blocking, and make room in it."""
    import fcntl
    from contextlib import suppress

    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    found = os.fstat(descriptor)
    if not stat.S_ISFIFO(found.st_mode) or found.st_uid != os.geteuid():  # somebody put another thing there meanwhile
        os.close(descriptor)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    os.fchmod(descriptor, 0o600)  # whatever the umask is
    with suppress(OSError):  # this user has too many large pipes already: 64 KiB have to do
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return descriptor


class LineReader:
    """Cuts what comes out of a pipe into lines. Pure. What is too long to be a line comes in pieces that are wrong."""

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes."""
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        if len(self._partial) > LINE_LIMIT_BYTES:
            lines.append(self._partial)
            self._partial = b""
        return [line for line in lines if line]


class TimerPipe:
    """The agent's end. `on_line(line)` gets every line, `complain(text)` what went wrong with the pipe itself.

    Raises:
        UsageError: It cannot be made.
    """

    def __init__(
        self, loop: Loop, path: str, source: str, on_line: Callable[[bytes], None], complain: Callable[[str], None]
    ) -> None:
        self.path = path
        self._loop = loop
        self._source = source
        self._on_line = on_line
        self._complain = complain
        self._reader = LineReader()
        self._retired: int | None = None
        self._use(make_fifo(path, source))
        self._look_later()

    def _use(self, descriptor: int) -> None:
        self._descriptor = descriptor
        found = os.fstat(descriptor)
        self._identity = (found.st_dev, found.st_ino)
        self._loop.on_readable(descriptor, self._read_some)

    def read_all(self) -> None:
        """Take every line that waits in the pipe now; what is written meanwhile may be left."""
        self._empty(self._descriptor)

    def _empty(self, descriptor: int) -> None:
        for _ in range(_PIPE_BYTES // _CHUNK_BYTES):
            if not self._read(descriptor):
                return

    def _read_some(self) -> None:
        room = select.poll()  # select() takes no descriptor from 1,024 on, and a leader has thousands
        room.register(self._descriptor, select.POLLOUT)
        was_full = not room.poll(0)
        self.read_all()  # first: whoever waits for room has it, however long a complaint takes
        if was_full:
            self._complain(f"watchdog: {self.path} was full, so a worker may have failed to write to it")

    def _read(self, descriptor: int) -> bool:
        try:
            chunk = os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        for line in self._reader.feed(chunk):
            self._on_line(line)
        return True

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(_LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        """See whether the name still leads to our pipe."""
        self._look_later()
        self._let_go()
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            self._make_again()
        except OSError as exc:
            self._complain(f"watchdog: {self.path} cannot be reached: {os.strerror(exc.errno or 0)}")
        else:
            if (found.st_dev, found.st_ino) == self._identity:
                return
            if _is_stale(self.path):  # we made it at the last look, and could not open it
                self._make_again()
            else:
                self._complain(f"watchdog: {self.path} is not our pipe any more, so no new scope is heard of there")

    def _make_again(self) -> None:
        try:
            descriptor = make_fifo(self.path, self._source)
        except UsageError as problem:  # it is tried again at the next look
            self._complain(f"watchdog: {self.path} was deleted and cannot be made again: {problem}")
            return
        self._complain(f"watchdog: {self.path} was deleted; it was made again")
        self._loop.forget(self._descriptor)
        # A client may have opened it a moment ago: it is read once more at the next look.
        self._retired = self._descriptor
        self._use(descriptor)

    def _let_go(self) -> None:
        if self._retired is not None:
            self._empty(self._retired)
            os.close(self._retired)
            self._retired = None

    def close(self) -> None:
        """Remove the pipe. Clients that still use it fail from now on."""
        self._timer.cancel()
        self._let_go()
        self._loop.forget(self._descriptor)
        os.close(self._descriptor)
        try:
            found = os.lstat(self.path)
            if (found.st_dev, found.st_ino) == self._identity:
                os.unlink(self.path)
        except OSError:
            return
