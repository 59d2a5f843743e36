"""Show log files while they grow: whole lines only, each with its file's header. One thread, however many files."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Event, Thread
from typing import TextIO

from planaria.elastic.utils.logging import get_logger
from planaria.process.lines import LineCutter

__all__ = ["TailLog", "tail_logfile"]

logger = get_logger(__name__)

_READ_BYTES = 1 << 16


class _Follower:
    """One file, from its beginning; it need not exist yet."""

    def __init__(
        self, header: str, path: str, dst: TextIO | None, log_line_filter: Callable[[str], bool] | None
    ) -> None:
        self._header = header
        self._path = path
        self._dst = dst
        self._filter = log_line_filter
        self._fd: int | None = None
        self._cutter = LineCutter()

    def catch_up(self) -> None:
        """Show the lines that were completed since the last call."""
        if self._fd is None:
            try:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return
        while data := os.read(self._fd, _READ_BYTES):
            self._show(self._cutter.feed(data))

    def finish(self) -> None:
        """Show all there is, an unfinished last line too, and close the file."""
        self.catch_up()
        self._show(self._cutter.end())
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _show(self, lines: bytes) -> None:
        text = lines.decode("utf-8", "replace")
        shown = [line for line in text.split("\n")[:-1] if self._filter is None or self._filter(f"{line}\n")]
        if shown and self._dst is not None:  # one write, so that lines of two files never mix
            self._dst.write("".join(f"{self._header}{line}\n" for line in shown))


def tail_logfile(
    header: str,
    file: str,
    dst: TextIO | None,
    finished: Event,
    interval_sec: float,
    log_line_filter: Callable[[str], bool] | None = None,
) -> None:
    """Show one file until `finished` is set and all of it was shown."""
    _follow([_Follower(header, file, dst, log_line_filter)], finished, interval_sec)


def _follow(followers: list[_Follower], finished: Event, interval_sec: float) -> None:
    try:
        while not finished.wait(interval_sec):
            for follower in followers:
                follower.catch_up()
        for follower in followers:
            follower.finish()
    finally:
        for follower in followers:
            follower.close()


class TailLog:
    """Show files, which need not exist yet, from `start` until `stop`, which shows the rest.

    A line begins with `[<name><local rank>]:`, or with the prefix given for that rank. Where `dst` is None, as `sys.stderr` is
    in a process that was started without, nothing is shown.
    """

    def __init__(
        self,
        name: str,
        log_files: dict[int, str],
        dst: TextIO | None,
        log_line_prefixes: dict[int, str] | None = None,
        interval_sec: float = 0.1,
        log_line_filter: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._name = name
        self._dst = dst
        self._log_files = log_files
        self._log_line_prefixes = log_line_prefixes
        self._log_line_filter = log_line_filter
        self._interval_sec = interval_sec
        self._finished = Event()
        self._thread: Thread | None = None
        self._stopped = False

    def start(self) -> TailLog:
        """Begin to show the files."""
        files = {rank: path for rank, path in self._log_files.items() if path != os.devnull}
        if files:
            prefixes = self._log_line_prefixes or {}
            followers = [
                _Follower(prefixes.get(rank, f"[{self._name}{rank}]:"), path, self._dst, self._log_line_filter)
                for rank, path in files.items()
            ]
            # A thread, because whoever started the workers has other things to do than to wait for their output.
            self._thread = Thread(target=self._run, args=(followers,), name=f"TailLog_{self._name}", daemon=True)
            self._thread.start()
        return self

    def _run(self, followers: list[_Follower]) -> None:
        try:
            _follow(followers, self._finished, self._interval_sec)
        except Exception as exc:
            logger.exception("error in log tailer for %s. %s", self._name, type(exc).__qualname__)

    def stop(self) -> None:
        """Show what is still to be shown, and end."""
        self._finished.set()
        if self._thread is not None:
            self._thread.join()
        self._stopped = True

    def stopped(self) -> bool:
        """Tell whether `stop` was called."""
        return self._stopped
