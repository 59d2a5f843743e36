"""Contexts: some workers, all the same function or program, started together and waited for together."""

from __future__ import annotations

import abc
import os
import signal
import sys
import time
from abc import ABC
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TextIO

from planaria.contract.env import for_workers
from planaria.contract.failure import Failure
from planaria.elastic.multiprocessing.call import Recorded
from planaria.elastic.multiprocessing.crew import Crew
from planaria.elastic.multiprocessing.errors import ProcessFailure
from planaria.elastic.multiprocessing.failures import as_process_failure
from planaria.elastic.multiprocessing.logs_specs import DefaultLogsSpecs, LogsDest, LogsSpecs
from planaria.elastic.multiprocessing.signals import SignalException, install_handlers, undisturbed
from planaria.elastic.multiprocessing.start import new_worker, order_for
from planaria.elastic.multiprocessing.std import Std, to_map
from planaria.elastic.multiprocessing.subprocess_handler import SubprocessHandler, get_subprocess_handler
from planaria.elastic.multiprocessing.tail_log import TailLog
from planaria.elastic.utils.logging import get_logger
from planaria.process.model import Call

__all__ = [
    "DefaultLogsSpecs",
    "LogsDest",
    "LogsSpecs",
    "MultiprocessContext",
    "PContext",
    "RunProcsResult",
    "SignalException",
    "Std",
    "SubprocessContext",
    "get_std_cm",
    "to_map",
]

logger = get_logger(__name__)

_FOR_EVER_S = 10.0**9
_KILLED_S = 5.0  # how long the end of a killed worker is waited for at least: the kernel's business, and soon done


def _validate_full_rank(d: dict[int, Any], nprocs: int, what: str) -> None:
    actual_keys, expected_keys = set(d), set(range(nprocs))
    if actual_keys != expected_keys:
        raise RuntimeError(f"{what}, local rank mapping mismatch, expected: {expected_keys}, actual: {actual_keys}")


def get_std_cm(std_rd: str, redirect_fn: Callable[[str], AbstractContextManager[None]]) -> AbstractContextManager[None]:
    """Return a redirection to the path, or none without a path."""
    return redirect_fn(std_rd) if std_rd else nullcontext()


@dataclass
class RunProcsResult:
    """How the workers of a context ended, by local rank. Programs return None; a stream without a file has no path."""

    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)
    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)

    def is_failed(self) -> bool:
        """Tell whether any worker failed."""
        return len(self.failures) > 0


class PContext(ABC):
    """Workers that are started by `start`, waited for by `wait` and ended by `close`. May be subclassed.

    What is in `tee` of the log plan is shown on the console line by line, also while nobody waits; lines that contain any
    of the `duplicate_*_filters` are copied to one file for all ranks.
    """

    close_timeout = 30
    """How long the others have to end when one failed, or could not be started. Who made the context may set another."""

    def __init__(  # noqa: PLR0917  torch's signature
        self,
        name: str,
        entrypoint: Callable[..., Any] | str,
        args: dict[int, tuple[Any, ...]],
        envs: dict[int, dict[str, str]],
        logs_specs: LogsSpecs,
        log_line_prefixes: dict[int, str] | None = None,
        duplicate_stdout_filters: list[str] | None = None,
        duplicate_stderr_filters: list[str] | None = None,
    ) -> None:
        self.name = name
        nprocs = len(args)
        logs_dest = logs_specs.reify(envs)
        _validate_full_rank(logs_dest.stdouts, nprocs, "stdouts")
        _validate_full_rank(logs_dest.stderrs, nprocs, "stderrs")
        self.entrypoint = entrypoint
        self.args = args
        self.envs = envs
        self.stdouts = logs_dest.stdouts
        self.stderrs = logs_dest.stderrs
        self.error_files = logs_dest.error_files
        self.nprocs = nprocs
        self.filtered_stdout: TextIO | None = None
        self.filtered_stderr: TextIO | None = None
        self._tail_logs = [
            TailLog(name, logs_dest.tee_stdouts, sys.stdout, log_line_prefixes),
            TailLog(name, logs_dest.tee_stderrs, sys.stderr, log_line_prefixes),
        ]
        if duplicate_stdout_filters:
            self.filtered_stdout = out = _open_filtered(logs_dest.filtered_stdout)
            self._tail_matching(logs_dest.tee_stdouts, out, log_line_prefixes, duplicate_stdout_filters)
        if duplicate_stderr_filters:
            self.filtered_stderr = err = _open_filtered(logs_dest.filtered_stderr)
            self._tail_matching(logs_dest.tee_stderrs, err, log_line_prefixes, duplicate_stderr_filters)

    def _tail_matching(
        self, files: dict[int, str], dst: TextIO, prefixes: dict[int, str] | None, filters: list[str]
    ) -> None:
        def matches(line: str) -> bool:
            return any(word in line for word in filters)

        self._tail_logs.append(TailLog(self.name, files, dst, prefixes, log_line_filter=matches))

    def start(self) -> None:
        """Start the workers. From now on this process's main thread gets a `SignalException` for SIGTERM and its like."""
        install_handlers()
        self._start()
        for tail_log in self._tail_logs:
            tail_log.start()

    @abc.abstractmethod
    def _start(self) -> None:
        """Start the workers, each in a way of its own."""

    @abc.abstractmethod
    def _poll(self) -> RunProcsResult | None:
        """Return how it ended when all workers ended well or any failed, and the others were ended too; else None."""

    def wait(self, timeout: float = -1, period: float = 1) -> RunProcsResult | None:
        """Wait for the end, at most `timeout` seconds (negative: for ever, 0: just look); None while workers run.

        `period` is how often a context that can only be asked is asked; ours hear of an end at once.
        """
        deadline = time.monotonic() + (timeout if timeout >= 0 else _FOR_EVER_S)
        while True:
            result = self._poll()
            left_s = deadline - time.monotonic()
            if result is not None or left_s <= 0:
                return result
            self._pause(min(period, left_s))

    def _pause(self, at_most_s: float) -> None:
        """Let time pass until there may be something new."""
        time.sleep(at_most_s)

    @abc.abstractmethod
    def pids(self) -> dict[int, int]:
        """Return the pids by local rank."""

    @abc.abstractmethod
    def _close(self, death_sig: signal.Signals, timeout: int = 30) -> None:
        """End all workers."""

    def close(self, death_sig: signal.Signals | None = None, timeout: int = 30) -> None:
        """End all workers, with `death_sig` (SIGTERM) and after `timeout` seconds with SIGKILL, and show their last words."""
        self._close(death_sig=death_sig or signal.SIGTERM, timeout=timeout)
        for tail_log in self._tail_logs:
            tail_log.stop()
        for filtered in (self.filtered_stdout, self.filtered_stderr):
            if filtered is not None:
                filtered.close()


def _open_filtered(path: str) -> TextIO:
    return open(path, mode="a", errors="replace", buffering=1)


class _CrewContext(PContext):
    """What contexts of ours share: workers of the process room, and a loop of their own."""

    def __init__(self, numa_options: Any, *of_any_context: Any) -> None:
        super().__init__(*of_any_context)
        self._numa_options = numa_options
        self._crew = Crew()
        self._result: RunProcsResult | None = None

    def _pause(self, at_most_s: float) -> None:
        self._crew.wait(at_most_s)

    def pids(self) -> dict[int, int]:
        return {rank: worker.pid for rank, worker in self._crew.workers.items()}

    def _poll(self) -> RunProcsResult | None:
        if self._result is None:
            self._crew.look()
            failed = [end.failure for end in self._crew.ends.values() if end.failure is not None]
            if failed:
                self._result = self._failed(failed[0])
            elif len(self._crew.ends) == self.nprocs:
                self.close(timeout=self.close_timeout)
                values = {rank: self._crew.ends[rank].value for rank in range(self.nprocs)}
                self._result = RunProcsResult(values, {}, self.stdouts, self.stderrs)
        return self._result

    def _failed(self, first: Failure) -> RunProcsResult:
        rank, pid = first.local_rank, first.pid
        logger.error("failed (exitcode: %s) local_rank: %s (pid: %s) of %s", first.status, rank, pid, self._what())
        known = {rank: self._as_torchs(first)}  # the first one, whatever the others do when they are ended
        self.close(timeout=self.close_timeout)
        return RunProcsResult({}, self._failures(known), self.stdouts, self.stderrs)

    def _failures(self, known: dict[int, ProcessFailure]) -> dict[int, ProcessFailure]:
        """Return what to report when there is a first failure."""
        return known

    def _as_torchs(self, failure: Failure) -> ProcessFailure:
        return as_process_failure(failure, self.error_files.get(failure.local_rank, ""))

    @abc.abstractmethod
    def _what(self) -> str:
        """Say what the workers run."""

    def _close(self, death_sig: signal.Signals, timeout: int = 30) -> None:
        for worker in self._crew.alive:
            logger.warning("Sending process %s closing signal %s", worker.pid, death_sig.name)
            worker.signal(death_sig)
        self._crew.wait_until_dead(timeout)
        for worker in self._crew.alive:
            logger.warning(
                "Unable to shutdown process %s via %s, forcefully exiting via SIGKILL", worker.pid, death_sig
            )
            worker.signal(signal.SIGKILL)
        patience_s = max(timeout, _KILLED_S)
        self._crew.wait_until_dead(patience_s)
        for worker in self._crew.alive:
            logger.error(
                "Process %s did not exit after SIGKILL within %ss; going on without it", worker.pid, patience_s
            )
        self._crew.close()


class MultiprocessContext(_CrewContext):
    """Workers that call a function. A failure is that of the worker that failed first."""

    def __init__(  # noqa: PLR0917  torch's signature
        self,
        name: str,
        entrypoint: Callable[..., Any],
        args: dict[int, tuple[Any, ...]],
        envs: dict[int, dict[str, str]],
        start_method: str,
        logs_specs: LogsSpecs,
        log_line_prefixes: dict[int, str] | None = None,
        numa_options: Any = None,
        duplicate_stdout_filters: list[str] | None = None,
        duplicate_stderr_filters: list[str] | None = None,
    ) -> None:
        filters = duplicate_stdout_filters, duplicate_stderr_filters
        super().__init__(numa_options, name, entrypoint, args, envs, logs_specs, log_line_prefixes, *filters)
        self.start_method = start_method
        self._function = entrypoint

    def _start(self) -> None:
        if self._crew.workers:
            raise ValueError("The process context already initialized. Most likely the start method got called twice.")
        for rank in range(self.nprocs):
            environment = {**for_workers(os.environ), **{name: str(value) for name, value in self.envs[rank].items()}}
            call = Call(Recorded(self._function, rank, self._numa_options), self.args[rank], self.start_method)
            with undisturbed():
                stdout, stderr = self.stdouts[rank], self.stderrs[rank]
                worker = new_worker(rank, environment, stdout, stderr, self._crew.loop.now())
                worker.call(self._crew.loop, order_for(worker, (self._what(),), environment), call)
                self._crew.add(worker)

    def _what(self) -> str:
        name = getattr(self.entrypoint, "__qualname__", repr(self.entrypoint))
        return f"fn: {name} (start_method: {self.start_method})"


class SubprocessContext(_CrewContext):
    """Workers that run a program. Failures are those of all that did not end well, those that we ended included."""

    def __init__(  # noqa: PLR0917  torch's signature
        self,
        name: str,
        entrypoint: str,
        args: dict[int, tuple[Any, ...]],
        envs: dict[int, dict[str, str]],
        logs_specs: LogsSpecs,
        log_line_prefixes: dict[int, str] | None = None,
        numa_options: Any = None,
        duplicate_stdout_filters: list[str] | None = None,
        duplicate_stderr_filters: list[str] | None = None,
    ) -> None:
        filters = duplicate_stdout_filters, duplicate_stderr_filters
        super().__init__(numa_options, name, entrypoint, args, envs, logs_specs, log_line_prefixes, *filters)
        self.subprocess_handlers: dict[int, SubprocessHandler] = {}

    def _start(self) -> None:
        if self.subprocess_handlers:
            raise ValueError(
                "The subprocess handlers already initialized. Most likely the start method got called twice."
            )
        for rank in range(self.nprocs):
            with undisturbed():
                handler = get_subprocess_handler(
                    entrypoint=str(self.entrypoint),
                    args=self.args[rank],
                    env=self.envs[rank],
                    stdout=self.stdouts[rank],
                    stderr=self.stderrs[rank],
                    local_rank_id=rank,
                    numa_options=self._numa_options,
                )
                self.subprocess_handlers[rank] = handler
                self._crew.add(handler.running)

    def _failures(self, known: dict[int, ProcessFailure]) -> dict[int, ProcessFailure]:
        others = [end.failure for rank, end in self._crew.ends.items() if end.failure is not None and rank not in known]
        return known | {failure.local_rank: self._as_torchs(failure) for failure in others}

    def _what(self) -> str:
        return f"binary: {self.entrypoint}"
