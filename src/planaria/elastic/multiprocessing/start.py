"""What programs and functions have in common when they are started as workers of a context."""

from __future__ import annotations

import os
from collections.abc import Mapping

from planaria.contract.env import ERROR_FILE
from planaria.elastic.multiprocessing.signals import signals_named
from planaria.process.leash import hold
from planaria.process.logs import Stream, Streams
from planaria.process.running import Running
from planaria.process.spawn import Start

__all__ = ["new_worker", "order_for"]


def new_worker(local_rank: int, environment: Mapping[str, str], stdout: str, stderr: str, now: float) -> Running:
    """Open the files of one worker; no path means this process's own stream."""
    rank = environment.get("RANK", "")
    out = _stream(stdout)
    try:
        streams = Streams(out, _stream(stderr), environment.get(ERROR_FILE, ""))
    except OSError:
        if out.worker_fd is not None:
            os.close(out.worker_fd)
        raise
    return Running(local_rank, int(rank) if rank.isdecimal() else local_rank, streams, now)


def order_for(worker: Running, argv: tuple[str, ...], environment: Mapping[str, str]) -> Start:
    """Return how to start it: a session of its own, default signal handlers, and the end of it with this process."""
    return Start(
        argv=argv,
        environment=environment,
        black_box_fd=worker.black_box,
        stdout_fd=worker.streams.stdout.worker_fd,
        stderr_fd=worker.streams.stderr.worker_fd,
        handled_signals=tuple(map(int, signals_named(environment))),
        leash_fd=hold(),
    )


def _stream(path: str) -> Stream:
    if not path:
        return Stream()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o644)
    return Stream("file", worker_fd=descriptor, log_path=None if path == os.devnull else path)
