"""Open the workers' streams as a `LogsSpecs` plans them, for the driver that carries their output itself."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from planaria.contract.env import RESTART_COUNT
from planaria.process.logs import Stream, Streams
from planaria.process.tee import PIPE_BYTES, open_pipe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planaria.contract.env import Round
    from planaria.elastic.multiprocessing import LogsDest, LogsSpecs


class PlannedLogs:
    """A plan is made anew for every life. `filters`: which lines of stdout and of stderr are copied to a file for all."""

    is_kept = True

    def __init__(self, specs: LogsSpecs, stdout_filters: Sequence[str], stderr_filters: Sequence[str]) -> None:
        self._specs = specs
        self._stdout_filters = tuple(map(os.fsencode, stdout_filters))
        self._stderr_filters = tuple(map(os.fsencode, stderr_filters))
        self._dest: LogsDest

    def begin_life(self, life: Round) -> None:
        """Let the plan be made for the workers of a life."""
        told = {"TORCHELASTIC_RUN_ID": life.run_id, RESTART_COUNT: str(life.restart_count)}
        envs = {
            local_rank: {**told, "RANK": str(life.first_rank + local_rank), "LOCAL_RANK": str(local_rank)}
            for local_rank in range(life.local_world_size)
        }
        self._dest = self._specs.reify(envs)

    def open_streams(self, local_rank: int) -> Streams:
        """Open what one worker writes to."""
        plan = self._dest
        stdout = _open(plan.stdouts, plan.tee_stdouts, local_rank, self._stdout_filters, plan.filtered_stdout)
        try:
            stderr = _open(plan.stderrs, plan.tee_stderrs, local_rank, self._stderr_filters, plan.filtered_stderr)
        except OSError:
            Streams(stdout, Stream(), "").close()
            raise
        error_file = plan.error_files.get(local_rank, "")
        return Streams(stdout, stderr, "" if error_file == os.devnull else error_file)


def _open(
    paths: dict[int, str], shown: dict[int, str], local_rank: int, filters: tuple[bytes, ...], filtered: str
) -> Stream:
    path = paths.get(local_rank, "")
    if shown.get(local_rank):
        read_fd, write_fd = open_pipe(PIPE_BYTES)
        log_fd = None if shown[local_rank] == os.devnull else _append_to(shown[local_rank])
        copy_fd = _append_to(filtered) if filters and filtered not in ("", os.devnull) else None
        return Stream("pipe", write_fd, read_fd, log_fd, shown[local_rank], filters, copy_fd)
    if not path:
        return Stream()
    if path == os.devnull:
        return Stream("null", worker_fd=os.open(path, os.O_WRONLY | os.O_CLOEXEC))
    return Stream("file", worker_fd=_append_to(path), log_path=path)


def _append_to(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
