"""The worker processes of one life: start them, signal them, carry their output, gather the evidence of their end."""

from __future__ import annotations

import os

from planaria.base import linux, signals
from planaria.base.value import Value
from planaria.contract import blackbox
from planaria.contract.env import worker_environment
from planaria.errors import SpawnFailed
from planaria.process.command import worker_argv
from planaria.process.lines import line_prefix
from planaria.process.spawn import Start, spawn
from planaria.process.tee import Pace, Route, Tee, tail_of_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planaria.base.loop import Loop
    from planaria.contract.env import Round
    from planaria.contract.failure import Failure
    from planaria.process.logs import RunLogs, Stream, Streams
    from planaria.process.memory import OomKills
    from planaria.process.model import Command
    from planaria.process.sink import ConsoleSink

_BLACK_BOX_FD = 1023  # out of the way of programs that close or reuse low descriptors, in reach of select()


class WorkerSettings(Value):
    """What stays the same for every life of the group."""

    command: Command
    environment: Mapping[str, str]
    control: str
    host: str
    cpu_sets: tuple[frozenset[int], ...] = ()
    virtual_rank: bool = False
    signal_mask: frozenset[int] = frozenset()
    priority: int | None = None
    file_limit: int | None = None
    handled_signals: tuple[int, ...] = ()
    prefix_template: str | None = None


class WorkerEnd(Value):
    """The end of one worker; `failure` is None when it ended well."""

    local_rank: int
    failure: Failure | None


class Console(Value):
    """The launcher's two streams, shared by everybody who has something to show, and where warnings go."""

    stdout: ConsoleSink
    stderr: ConsoleSink
    warn: Callable[[str], object]


class _Worker:
    """One worker of the current life and all that is kept for the day it ends badly."""

    __slots__ = ("alive", "black_box", "killed_by_us", "local_rank", "pid", "rank", "started_at", "streams", "tees")

    def __init__(self, local_rank: int, rank: int, streams: Streams, started_at: float) -> None:
        self.local_rank = local_rank
        self.rank = rank
        self.streams = streams
        self.started_at = started_at
        self.pid = 0
        self.alive = False
        self.killed_by_us = False
        self.black_box = os.memfd_create("planaria-black-box", os.MFD_CLOEXEC)
        self.tees: list[Tee] = []


class Workers:
    """All workers of this node. `begin` starts a life, `end` closes it when every worker of it is dead."""

    def __init__(self, loop: Loop, settings: WorkerSettings, logs: RunLogs, console: Console) -> None:
        self._loop = loop
        self._pace = Pace(loop)
        self._settings = settings
        self._logs = logs
        self._console = console
        self._oom: OomKills | None = None
        self._life: list[_Worker] = []
        self._black_box_fd = min(_BLACK_BOX_FD, os.sysconf("SC_OPEN_MAX") - 1)

    @property
    def by_pid(self) -> dict[int, int]:
        """Return the local rank of each worker that runs, by its pid."""
        return {worker.pid: worker.local_rank for worker in self._life if worker.alive}

    def begin(self, life: Round, on_started: Callable[[int], None]) -> None:
        """Start every worker; `on_started(pid)` is called for each at once.

        Raises:
            SpawnFailed: The system is out of processes or memory. Workers started before stay for the caller to end.
            ProcessError: A log file or folder could not be made; likewise.
        """
        self._logs.begin_life(life.restart_count)
        for local_rank in range(life.local_world_size):
            worker = self._start(life, local_rank)
            self._life.append(worker)
            on_started(worker.pid)
        self._watch_memory()

    def _start(self, life: Round, local_rank: int) -> _Worker:
        streams = self._logs.open_streams(local_rank)
        worker = _Worker(local_rank, life.first_rank + local_rank, streams, self._loop.now())
        settings = self._settings
        environment = worker_environment(
            settings.environment,
            life,
            local_rank,
            error_file=streams.error_file,
            control=settings.control,
            virtual_rank=settings.virtual_rank,
        )
        start = Start(
            argv=worker_argv(settings.command, local_rank, self._black_box_fd),
            environment=environment,
            black_box_fd=worker.black_box,
            stdout_fd=streams.stdout.worker_fd,
            stderr_fd=streams.stderr.worker_fd,
            cpus=settings.cpu_sets[local_rank] if settings.cpu_sets else frozenset(),
            inherit_black_box_as=self._black_box_fd if settings.command.bootstrap else None,
            signal_mask=settings.signal_mask,
            priority=settings.priority,
            file_limit=settings.file_limit,
            handled_signals=settings.handled_signals,
        )
        try:
            worker.pid = spawn(start)
        except OSError as problem:
            streams.close()
            raise SpawnFailed(
                f"cannot fork the worker of local rank {local_rank}: {problem.strerror}",
                hint="is the limit of processes (ulimit -u, pids cgroup) or the memory used up?",
            ) from problem
        worker.alive = True
        streams.close_worker_ends()
        prefix = line_prefix(settings.prefix_template, role=life.role, local_rank=local_rank, rank=worker.rank)
        for stream, sink in ((streams.stdout, self._console.stdout), (streams.stderr, self._console.stderr)):
            if stream.read_fd is not None:
                route = Route(stream.log_fd, sink, prefix, stream.filters, stream.filtered_fd)
                worker.tees.append(Tee(self._pace, stream.read_fd, route, self._console.warn))
        return worker

    def _watch_memory(self) -> None:
        """Remember the OOM killer's count of this life's beginning; the workers run already, so nothing waits for it."""
        from planaria.process.memory import OomKills

        self._oom = OomKills()

    @property
    def signing(self) -> frozenset[int]:
        """The local ranks of this life whose start-up file says when it begins to run."""
        return frozenset(worker.local_rank for worker in self._life if self._settings.command.bootstrap)

    def signs(self) -> dict[int, float]:
        """Return when each of them began to run, by local rank, as far as they have said so."""
        heads = ((worker.local_rank, os.pread(worker.black_box, blackbox.SIGN_BYTES, 0)) for worker in self._life)
        found = ((local_rank, blackbox.started_at(head)) for local_rank, head in heads)
        return {local_rank: at for local_rank, at in found if at is not None}

    def signal(self, number: int) -> None:
        """Send a signal to every running worker and the rest of its process group."""
        for worker in self._life:
            if worker.alive:
                worker.killed_by_us = worker.killed_by_us or number == signals.SIGKILL
                _signal_group(worker.pid, number)

    def dump_stacks(self) -> None:
        """Ask every running worker for its stacks, where it can answer: the signal would end another program."""
        for worker in self._life:
            if worker.alive and linux.catches(worker.pid, blackbox.DUMP_STACKS):
                _signal(worker.pid, blackbox.DUMP_STACKS)

    def exited(self, pid: int, status: int) -> WorkerEnd | None:
        """Note that a worker ended; None for one of an earlier life, which the kernel held back until now."""
        worker = next((worker for worker in self._life if worker.pid == pid), None)
        if worker is None:
            return None
        worker.alive = False
        for tee in worker.tees:
            tee.catch_up()
        return WorkerEnd(worker.local_rank, self._failure(worker, status) if status != 0 else None)

    def _failure(self, worker: _Worker, status: int) -> Failure:
        from planaria.process.diagnose import Evidence, diagnose

        streams = worker.streams
        path = streams.error_file
        return diagnose(
            Evidence(
                rank=worker.rank,
                local_rank=worker.local_rank,
                host=self._settings.host,
                pid=worker.pid,
                status=status,
                started_at=worker.started_at,
                at=self._loop.now(),
                killed_by_us=worker.killed_by_us,
                oom_kills=self._oom.so_far() if self._oom and status == -signals.SIGKILL else 0,
                black_box=os.pread(worker.black_box, blackbox.LIMIT_BYTES, 0),
                error_file=linux.read_file(path) if path and os.path.exists(path) else None,
                error_file_path=path if self._logs.is_kept else "",
                stderr_tail=_stderr_tail(worker),
                log_files=_log_files((streams.stdout, streams.stderr)),
            )
        )

    def end(self) -> None:
        """Close the life: whatever its pipes still hold is shown, and nothing of it is read any more."""
        for worker in self._life:
            for tee in worker.tees:
                tee.finish()
            os.close(worker.black_box)
        self._life = []


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except ProcessLookupError:  # it was forked a moment ago and has no group of its own yet, or is gone
        _signal(pid, number)
    except PermissionError:  # it has become another user (a setuid program): not ours to end
        return


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _stderr_tail(worker: _Worker) -> bytes:
    stream = worker.streams.stderr
    if stream.read_fd is not None:
        return worker.tees[-1].tail()
    return tail_of_file(stream.log_path) if stream.log_path else b""


def _log_files(streams: tuple[Stream, ...]) -> tuple[str, ...]:
    return tuple(stream.log_path for stream in streams if stream.log_path)
