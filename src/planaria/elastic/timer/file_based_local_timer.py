"""Timers of processes that write to a named pipe: torch's own clients and ours, to our server or to an agent."""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
import time
from typing import TYPE_CHECKING

from planaria.agent.fifo import TimerPipe
from planaria.base.loop import Loop
from planaria.base.net import Complaints
from planaria.base.text import safe_line
from planaria.contract import timer
from planaria.elastic.timer.api import TimerBook, TimerClient, TimerRequest
from planaria.elastic.timer.debug_info_logging import log_debug_info_for_expired_timers

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FileTimerClient", "FileTimerRequest", "FileTimerServer"]

logger = logging.getLogger(__name__)

_TRIES, _BETWEEN_TRIES_S = 10, 0.1  # a server that was started beside us may need a second
_FULL_S = 10.0  # how long a client waits for room in a full pipe
_SHOWN_CHARACTERS = 60


class FileTimerRequest(TimerRequest):
    """A request of one process, by pid; `signal` is what the server sends it when its time is over, 0 or less nothing."""

    __slots__ = ["signal", "version"]

    def __init__(self, worker_pid: int, scope_id: str, expiration_time: float, signal: int = 0) -> None:
        super().__init__(worker_id=worker_pid, scope_id=scope_id, expiration_time=expiration_time)
        self.version = timer.VERSION
        self.signal = signal

    @property
    def worker_pid(self) -> int:
        """Return the pid of the process whose timer this is."""
        pid: int = self.worker_id
        return pid

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FileTimerRequest):
            return False
        return super().__eq__(other) and (self.version, self.signal) == (other.version, other.signal)

    __hash__ = None  # fields may change, as in torch

    def to_json(self) -> str:
        """Return the request as it is written."""
        return timer.as_json(self._line())

    def to_bytes(self) -> bytes:
        """Return what goes into the pipe.

        Raises:
            ValueError: It is too long.
        """
        return timer.encode(self._line())

    def _line(self) -> timer.TimerLine:
        return timer.TimerLine(self.worker_pid, self.scope_id, self.expiration_time, self.signal)


class FileTimerClient(TimerClient):
    """Writes the timers of this process to the named pipe of a server on the same host.

    `signal` is what the process is ended with when a timer expires; 0 or less ends nothing.
    """

    def __init__(self, file_path: str, signal: int = signal.SIGKILL) -> None:
        super().__init__()
        self._file_path = file_path
        self.signal = signal

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Begin a timer for a scope of this process."""
        self._send_request(FileTimerRequest(os.getpid(), scope_id, expiration_time, int(self.signal)))

    def release(self, scope_id: str) -> None:
        """Release it."""
        self._send_request(FileTimerRequest(os.getpid(), scope_id, -1, 0))

    def _send_request(self, request: FileTimerRequest) -> None:
        """Write a request in one piece, waiting for room in a full pipe.

        Raises:
            RuntimeError: It is too long.
            BrokenPipeError: There is no server, or it does not read.
        """
        try:
            line = request.to_bytes()
        except ValueError:
            said = f"FileTimerRequest larger than {select.PIPE_BUF} bytes is not supported: {request.to_json()}"
            raise RuntimeError(said) from None
        try:
            descriptor = self._open_non_blocking()
            try:
                _write_whole(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as exc:
            raise BrokenPipeError(
                "Could not send the FileTimerRequest because FileTimerServer is not available."
            ) from exc

    def _open_non_blocking(self) -> int:
        for _ in range(_TRIES - 1):
            try:
                return os.open(self._file_path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                time.sleep(_BETWEEN_TRIES_S)
        return os.open(self._file_path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def _write_whole(descriptor: int, line: bytes) -> None:
    deadline = time.monotonic() + _FULL_S
    room = select.poll()  # select() takes no descriptor from 1,024 on
    room.register(descriptor, select.POLLOUT)
    while True:
        try:
            os.write(descriptor, line)  # all of it or nothing: it is short enough
        except BlockingIOError:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise
            room.poll(left_s * 1000)
        else:
            return


class FileTimerServer:
    """Reads a named pipe in a thread of its own and ends processes whose timers expire, but never its own process.

    `log_event(name, request)` hears of starts, expirations and ends. Unlike torch's, the server takes any file at
    `file_path` but a stale pipe for somebody else's and does not delete it; a pipe that somebody deletes is made again.
    What goes wrong with the pipe, or is no timer, is logged in few lines.

    Raises:
        UsageError: There is something at `file_path` already, or nothing can be made there.
    """

    def __init__(
        self,
        file_path: str,
        run_id: str,
        max_interval: float = 10,
        daemon: bool = True,
        log_event: Callable[[str, FileTimerRequest | None], None] | None = None,
    ) -> None:
        self._file_path = file_path
        self._run_id = run_id
        self._max_interval = max_interval
        self._daemon = daemon
        self._timers = TimerBook()
        self._heard: list[FileTimerRequest] = []
        self._stop_signaled = False
        self._run_once = False
        self._watchdog_thread: threading.Thread | None = None
        self._loop = Loop()
        self._complaints = Complaints(self._loop, logger.warning)
        self._pipe: TimerPipe | None = self._open_pipe()
        self._wake, self._wake_end = os.pipe()
        self._loop.on_readable(self._wake, lambda: os.read(self._wake, 1))
        self._log_event = log_event if log_event is not None else lambda _name, _request: None
        self._last_progress_time = int(time.time())

    def _open_pipe(self) -> TimerPipe:
        return TimerPipe(self._loop, self._file_path, "file_path", self._on_line, self._complaints.add)

    def start(self) -> None:
        """Begin to watch."""
        logger.info("Starting %s... file_path=%s", type(self).__name__, self._file_path)
        # A thread: the program around it is the user's, and does not turn our loop.
        self._watchdog_thread = threading.Thread(target=self._watchdog_loop, daemon=self._daemon)
        self._watchdog_thread.start()
        self._log_event("watchdog started", None)

    def stop(self) -> None:
        """Stop watching and remove the pipe."""
        logger.info("Stopping %s", type(self).__name__)
        self._stop_signaled = True
        self._end()
        self._log_event("watchdog stopped", None)

    def run_once(self) -> None:
        """Deal with what is in the pipe, end what has expired, and stop."""
        self._run_once = True
        self._end()

    def _end(self) -> None:
        if self._watchdog_thread is not None:
            os.write(self._wake_end, b"\0")
            self._watchdog_thread.join()
            self._watchdog_thread = None
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
            self._loop.close()
            for descriptor in (self._wake, self._wake_end):
                os.close(descriptor)

    @staticmethod
    def is_process_running(pid: int) -> bool:
        """Tell whether there is such a process and we may send it signals."""
        try:
            os.kill(pid, 0)
        except OSError:
            return False
        return True

    def get_last_progress_time(self) -> int:
        """Return when the server last went round, in whole seconds of the wall clock."""
        return self._last_progress_time

    def _watchdog_loop(self) -> None:
        while not self._stop_signaled:
            is_last = self._run_once
            try:
                self._run_watchdog()
            except Exception:
                logger.exception("Error running watchdog")
            self._last_progress_time = int(time.time())
            if is_last:
                break

    def _run_watchdog(self) -> None:
        self.register_timers(self._get_requests())
        expired = self.get_expired_timers(time.time())
        told = {pid: [one.to_json() for one in timers] for pid, timers in expired.items()}
        log_debug_info_for_expired_timers(self._run_id, told)
        for pid, timers in expired.items():
            self._reap_expired(pid, timers)
        self.clear_timers(set(expired))

    def _reap_expired(self, pid: int, timers: list[FileTimerRequest]) -> None:
        """End a process with the first signal that one of its timers asks for."""
        for request in timers:
            self._log_event("timer expired", request)
            if request.signal > 0:
                logger.info("Reaping worker_pid=[%s]. Expired timer: %s", pid, request.scope_id)
                if self._reap_worker(pid, request.signal):
                    self._log_event("kill worker process", request)
                return
        logger.info("No signal specified with worker=[%s]. Do not reap it.", pid)

    def _get_requests(self) -> list[FileTimerRequest]:
        """Wait for lines until the next timer may expire, `max_interval` at most; return what they ask for."""
        if self._pipe is None:
            return []
        self._loop.run_once(0.0 if self._run_once else self._timers.wait_s(self._max_interval))
        self._pipe.read_all()  # a release that came just in time counts
        heard, self._heard = self._heard, []
        return heard

    def _on_line(self, line: bytes) -> None:
        try:
            found = timer.decode(line)
        except ValueError as problem:
            shown = safe_line(line.decode("utf-8", "replace"), _SHOWN_CHARACTERS)
            self._complaints.add(f"watchdog: ignored a line that is no timer ({problem}): {shown}")
            return
        self._heard.append(FileTimerRequest(found.pid, found.scope, found.expires_at, found.signal))

    def register_timers(self, timer_requests: list[FileTimerRequest]) -> None:
        """Begin and release the timers that were asked for."""
        for request in timer_requests:
            self._timers.register(request, request.signal)

    def clear_timers(self, worker_pids: set[int]) -> None:
        """Forget the timers of these processes, and of those that are gone."""
        for pid in self._timers.holders():
            if pid in worker_pids or not self.is_process_running(pid):
                self._timers.drop(pid)

    def get_expired_timers(self, deadline: float) -> dict[int, list[FileTimerRequest]]:
        """Return the timers that expire at `deadline` or before, by pid, the earliest first."""
        found: dict[int, list[FileTimerRequest]] = {}
        for request in self._timers.expired(deadline):
            found.setdefault(request.worker_pid, []).append(request)
        return found

    def _reap_worker(self, worker_pid: int, signal: int) -> bool:
        if worker_pid == os.getpid():
            logger.error("A timer of this process expired, which is the server's own: it is not ended")
            return False
        try:
            os.kill(worker_pid, signal)
        except ProcessLookupError:
            logger.info("Process with pid=%s does not exist. Skipping", worker_pid)
        except OSError:
            logger.exception("Error terminating pid=%s", worker_pid)
            return False
        return True
