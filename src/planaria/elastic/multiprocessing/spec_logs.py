"""Let an agent write its workers' output where a log plan of torch's kind (`LogsSpecs`) says."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from planaria.base.value import replace
from planaria.contract.env import Round, worker_environment
from planaria.elastic.multiprocessing.logs_specs import LogsDest, LogsSpecs
from planaria.elastic.multiprocessing.std import Std
from planaria.errors import ProcessError, UsageError
from planaria.process.logs import Destination, Stream, Streams, open_both, open_stream
from planaria.process.model import STDOUT, LogSettings, StreamMask
from planaria.process.tee import PIPE_BYTES

__all__ = ["SpecLogs", "make_specs"]

_MOST_PIPES = 8  # of full size; more workers have smaller ones, as `RunLogs` does


class SpecLogs:
    """The logs of one run, with the paths of a `LogsSpecs`. Its folders are its own affair: only the files are opened here."""

    announce: str | None = None
    is_kept = True

    def __init__(
        self, specs: LogsSpecs, stdout_filters: tuple[str, ...] = (), stderr_filters: tuple[str, ...] = ()
    ) -> None:
        self._specs = specs
        self._stdout_filters = stdout_filters
        self._stderr_filters = stderr_filters
        self._dest = LogsDest()
        self._added: dict[int, dict[str, str]] = {}
        self._pipe_bytes = PIPE_BYTES

    def begin_life(self, life: Round) -> None:
        """Ask for the paths of a life, with the variables that its workers will have.

        Raises:
            ProcessError: The plan failed.
        """
        ranks = range(life.local_world_size)
        given = {
            rank: worker_environment({}, life, rank, error_file="", control="", virtual_rank=False) for rank in ranks
        }
        envs = {rank: dict(given[rank]) for rank in ranks}
        self._pipe_bytes = PIPE_BYTES * _MOST_PIPES // max(life.local_world_size, _MOST_PIPES)
        try:
            self._dest = self._specs.reify(envs)
        except Exception as exc:
            name = type(self._specs).__qualname__
            raise ProcessError(f"the log specs {name} failed: {type(exc).__name__}: {exc}") from exc
        self._added = {rank: _changes(given[rank], envs[rank]) for rank in ranks}

    def error_file(self, local_rank: int) -> str:
        """Return the path of a worker's error file in the last life; empty when it has none."""
        path = self._dest.error_files.get(local_rank, "")
        return "" if path == os.devnull else path

    def open_streams(self, local_rank: int) -> Streams:
        """Open what one worker writes to.

        Raises:
            ProcessError: A file could not be opened.
        """
        streams = open_both(
            lambda which, opened: self._open(which, local_rank, opened), local_rank, self.error_file(local_rank)
        )
        return replace(streams, variables=self._added.get(local_rank, {}))

    def _open(self, which: int, local_rank: int, opened: list[int]) -> Stream:
        dest = self._dest
        if which == STDOUT:
            path, tee = dest.stdouts.get(local_rank, ""), dest.tee_stdouts.get(local_rank, "")
            filters, filtered = self._stdout_filters, dest.filtered_stdout
        else:
            path, tee = dest.stderrs.get(local_rank, ""), dest.tee_stderrs.get(local_rank, "")
            filters, filtered = self._stderr_filters, dest.filtered_stderr
        where = Destination("file", path)
        if not path or path == os.devnull:
            where = Destination("null") if path else Destination("inherit")
        elif tee and tee != os.devnull:
            where = Destination("pipe", path, filters, filtered or None)
        return open_stream(where, self._pipe_bytes, opened)


def make_specs(kind: type[Any], settings: LogSettings) -> SpecLogs:
    """Make a plan of another package's kind from what the command line says.

    Raises:
        UsageError: It does not take that.
    """
    std = _std_of(kind)
    try:
        specs = kind(
            log_dir=settings.log_dir,
            redirects=_mask(settings.redirects, std),
            tee=_mask(settings.tee, std),
            local_ranks_filter=set(settings.shown_ranks) if settings.shown_ranks else None,
        )
    except Exception as exc:
        raise UsageError(f"--logs-specs: {kind.__qualname__} cannot be made: {type(exc).__name__}: {exc}") from exc
    return SpecLogs(specs, settings.stdout_filters, settings.stderr_filters)


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a plan gave to a worker, beside those that it has anyway."""
    return {name: str(value) for name, value in after.items() if before.get(name) != value}


def _std_of(kind: type[Any]) -> Any:
    """Return the `Std` that a class was written with: torch's, if it is derived from torch's `LogsSpecs`."""
    found = (getattr(sys.modules.get(base.__module__), "Std", None) for base in reversed(kind.__mro__))
    return next((std for std in found if std is not None), Std)


def _mask(mask: StreamMask, std: Any) -> Any:
    return {rank: std(streams) for rank, streams in mask.by_rank} if mask.by_rank else std(mask.every)
