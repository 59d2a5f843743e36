"""The worker processes of one life: start them, signal them, carry their output, gather the evidence of their end."""

from __future__ import annotations

import os

from planaria.base import signals
from planaria.base.value import Value, replace
from planaria.contract import blackbox
from planaria.contract.env import worker_environment
from planaria.process.command import filled, worker_argv
from planaria.process.lines import line_prefix
from planaria.process.model import Call
from planaria.process.running import Running, Scene
from planaria.process.spawn import Start
from planaria.process.tee import Pace, Route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planaria.base.loop import Loop
    from planaria.contract.env import Round
    from planaria.contract.failure import Failure
    from planaria.process.logs import Logs
    from planaria.process.memory import OomKills
    from planaria.process.model import Command
    from planaria.process.sink import ConsoleSink
    from planaria.process.standbys import Standbys

_BLACK_BOX_FD = 1023  # out of the way of programs that close or reuse low descriptors, in reach of select()


class WorkerSettings(Value):
    """What stays the same for every life of the group. `embedded`: in a process that has more to do than this job."""

    command: Command | Call
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
    embedded: bool = False


class WorkerSeen(Value):
    """A worker of the current life as others may see it."""

    local_rank: int
    rank: int
    pid: int
    is_alive: bool
    started_at: float
    stdout_log: str | None = None
    """The file that its output goes to, if there is one; likewise the other."""
    stderr_log: str | None = None


class WorkerEnd(Value):
    """The end of one worker; `failure` is None when it ended well."""

    local_rank: int
    failure: Failure | None


class Console(Value):
    """The launcher's two streams, shared by everybody who has something to show, and where warnings go."""

    stdout: ConsoleSink
    stderr: ConsoleSink
    warn: Callable[[str], object]


class Workers:
    """All workers of this node. `begin` starts a life, `end` closes it when every worker of it is dead.

    `return_values` has, by local rank, what the functions of the current or last life returned so far. With `standbys`, the
    workers of a program are promoted where that is possible; `cold` says, by local rank, why those of this life were not.
    `on_lines`, once it is set, gets the local rank and whole lines of every stream that comes through here.
    """

    def __init__(self, loop: Loop, settings: WorkerSettings, logs: Logs, console: Console) -> None:
        self._loop = loop
        self._pace = Pace(loop)
        self._settings = settings
        self._logs = logs
        self._console = console
        self._oom: OomKills | None = None
        self._life: list[Running] = []
        self._round: Round | None = None
        self.return_values: dict[int, object] = {}
        self.standbys: Standbys | None = None
        self.cold: dict[int, str] = {}
        self.on_lines: Callable[[int, bytes], object] | None = None
        self._black_box_fd = min(_BLACK_BOX_FD, os.sysconf("SC_OPEN_MAX") - 1)

    @property
    def by_pid(self) -> dict[int, int]:
        """Return the local rank of each worker that runs, by its pid."""
        return {worker.pid: worker.local_rank for worker in self._life if worker.alive}

    @property
    def seen(self) -> tuple[WorkerSeen, ...]:
        """Return the workers of this life, also those that have ended."""
        return tuple(
            WorkerSeen(
                one.local_rank,
                one.rank,
                one.pid,
                one.alive,
                one.started_at,
                one.streams.stdout.log_path,
                one.streams.stderr.log_path,
            )
            for one in self._life
        )

    @property
    def black_boxes(self) -> tuple[tuple[WorkerSeen, int], ...]:
        """Return the workers that run, each with the descriptor of its black box."""
        boxes = {one.local_rank: one.black_box for one in self._life if one.alive}
        return tuple((seen, boxes[seen.local_rank]) for seen in self.seen if seen.local_rank in boxes)

    def is_held(self, since: float) -> bool:
        """Tell whether output waits for a console that took nothing since then: a held terminal, a reader that is stuck."""
        return any(tee.is_held(since) for worker in self._life for tee in worker.tees)

    def mark_black_boxes(self) -> None:
        """Remember how much is in them: somebody is going to ask for stacks that are no worker's last words."""
        for worker in self._life:
            worker.mark_black_box()

    def settle_black_boxes(self) -> None:
        """Take those stacks out again."""
        for worker in self._life:
            worker.settle_black_box()

    def begin(self, life: Round, on_started: Callable[[int, int | None, int | None], None]) -> None:
        """Start every worker; `on_started(pid, status_fd, lifeline)` is called for each at once (see `Children.add`).

        A standby that was promoted is watched already, since it was started.

        Raises:
            SpawnFailed: The system is out of processes or memory. Workers started before stay for the caller to end.
            ProcessError: A log file or folder could not be made; likewise.
            UsageError: A function or its arguments cannot be pickled.
        """
        self.return_values, self.cold = {}, {}
        self._round = life
        self._logs.begin_life(life)
        for local_rank in range(life.local_world_size):
            worker = self._start(life, local_rank)
            self._life.append(worker)
            if not worker.is_promoted:
                on_started(worker.pid, worker.status_fd, worker.lifeline)
        self._watch_memory()

    def _start(self, life: Round, local_rank: int) -> Running:
        settings = self._settings
        streams = self._logs.open_streams(local_rank)
        worker = Running(local_rank, life.first_rank + local_rank, streams, self._loop.now())
        start = self._order(life, worker)
        if isinstance(settings.command, Call):
            call = replace(settings.command, args=filled(settings.command.args, local_rank))
            worker.call(self._loop, replace(start, argv=("function",)), call)
        else:
            self._start_program(worker, self._complete(start, settings.command, local_rank))
        prefix = line_prefix(settings.prefix_template, role=life.role, local_rank=local_rank, rank=worker.rank)
        for stream, sink in ((streams.stdout, self._console.stdout), (streams.stderr, self._console.stderr)):
            shown, before = sink if stream.is_shown else None, prefix if stream.has_prefix else b""
            route = Route(stream.log_fd, shown, before, stream.filters, stream.filtered_fd, self._reader_of(local_rank))
            worker.tee(self._pace, stream, route, self._console.warn)
        return worker

    def _reader_of(self, local_rank: int) -> Callable[[bytes], object] | None:
        hear = self.on_lines
        return None if hear is None else lambda lines: hear(local_rank, lines)

    def _complete(self, start: Start, command: Command, local_rank: int) -> Start:
        argv = worker_argv(command, local_rank, self._black_box_fd, learn=self.standbys is not None)
        return replace(start, argv=argv, inherit_black_box_as=self._black_box_fd if command.bootstrap else None)

    def _start_program(self, worker: Running, start: Start) -> None:
        """Promote a standby if there is one for this very start, else start cold."""
        if self.standbys is not None:
            taken = self.standbys.take(worker.local_rank, start)
            if taken.standby is None:
                self.cold[worker.local_rank] = taken.why
            elif worker.promote(taken.standby, start):
                return
            else:
                self.cold[worker.local_rank] = self.standbys.died_in_promotion(worker.local_rank)
        worker.start(start)

    @property
    def promoted(self) -> tuple[int, ...]:
        """Return the local ranks of this life whose workers were standbys."""
        return tuple(worker.local_rank for worker in self._life if worker.is_promoted)

    def orders(self) -> tuple[Start, ...]:
        """Return, by local rank, how the workers of this life would be started cold: what `Standbys.keep` wants to know.

        Empty for functions, and for programs that do not go through the start-up file.
        """
        command = self._settings.command
        if self._round is None or isinstance(command, Call) or not command.bootstrap:
            return ()
        life = self._round
        starts = ((self._order(life, worker), worker.local_rank) for worker in self._life)
        return tuple(self._complete(start, command, local_rank) for start, local_rank in starts)

    @property
    def learned(self) -> blackbox.Learned:
        """Return what the workers of this life have loaded so far: ranks differ, and a standby may get any of them."""
        found = [worker.learned for worker in self._life]
        files = {name: file for one in reversed(found) for name, file in one.files}
        ordered = dict.fromkeys(name for one in found for name, _ in one.files)
        joins = tuple(join for one in found for join in one.joins)
        return blackbox.Learned(tuple((name, files[name]) for name in ordered), joins)

    def _order(self, life: Round, worker: Running) -> Start:
        settings, streams = self._settings, worker.streams
        environment = worker_environment(
            settings.environment,
            life,
            worker.local_rank,
            error_file=streams.error_file,
            control=settings.control,
            virtual_rank=settings.virtual_rank,
        )
        return Start(
            argv=(),
            environment=environment | dict(streams.variables),
            black_box_fd=worker.black_box,
            stdout_fd=streams.stdout.worker_fd,
            stderr_fd=streams.stderr.worker_fd,
            cpus=settings.cpu_sets[worker.local_rank] if settings.cpu_sets else frozenset(),
            signal_mask=settings.signal_mask,
            priority=settings.priority,
            file_limit=settings.file_limit,
            handled_signals=settings.handled_signals,
            leash_fd=_leash() if settings.embedded else None,
        )

    def _watch_memory(self) -> None:
        """Remember the OOM killer's count of this life's beginning; the workers run already, so nothing waits for it."""
        from planaria.process.memory import OomKills

        self._oom = OomKills()

    @property
    def signing(self) -> frozenset[int]:
        """The local ranks of this life whose start-up file says when it begins to run."""
        command = self._settings.command
        signs = command.start_method == "spawn" if isinstance(command, Call) else command.bootstrap
        return frozenset(worker.local_rank for worker in self._life if signs)

    def signs(self) -> dict[int, float]:
        """Return when each of them began to run, by local rank, as far as they have said so."""
        heads = ((worker.local_rank, os.pread(worker.black_box, blackbox.SIGN_BYTES, 0)) for worker in self._life)
        found = ((local_rank, blackbox.started_at(head)) for local_rank, head in heads)
        return {local_rank: at for local_rank, at in found if at is not None}

    def signal(self, number: int, only: frozenset[int] | None = None) -> None:
        """Send a signal to every running worker, or to those of some local ranks, and the rest of its process group."""
        for worker in self._life:
            if only is None or worker.local_rank in only:
                worker.signal(number)

    def dump_stacks(self) -> None:
        """Ask every running worker for its stacks, where it can answer; one whose child shows its own, after that."""
        for worker in self._life:
            worker.dump_stacks(self._loop)

    def suspect(self, local_rank: int, message: str, at: float, signal: int) -> Failure:
        """Return the failure of a worker that hangs, as it would be if nothing more were ever heard of it."""
        from planaria.contract.failure import Failure

        worker = self._life[local_rank]
        return Failure(
            rank=worker.rank,
            local_rank=local_rank,
            host=self._settings.host,
            pid=worker.pid,
            status=-signal,
            at=at,
            age_s=at - worker.started_at,
            kind="watchdog",
            message=message,
        )

    def blame(self, failure: Failure, pid: int) -> None:
        """Hold a worker to a failure, however it will end; a process below it, `pid`, is asked for its stacks too."""
        worker = self._life[failure.local_rank]
        worker.blame = failure
        if pid != worker.pid:
            worker.dump_stacks(self._loop, pid)

    def exited(self, pid: int, status: int) -> WorkerEnd | None:
        """Note that a worker ended; None for one of an earlier life, which the kernel held back until now."""
        worker = next((worker for worker in self._life if worker.pid == pid), None)
        if worker is None:
            return None
        worker.ended(status)
        if worker.status != 0 or worker.blame is not None:
            return WorkerEnd(worker.local_rank, worker.failure(self._scene(status)))
        try:
            self.return_values[worker.local_rank] = worker.returned()
        except Exception as problem:  # noqa: BLE001  the classes in it may raise anything
            return WorkerEnd(worker.local_rank, worker.unreadable(problem, self._scene(status)))
        return WorkerEnd(worker.local_rank, None)

    def _scene(self, status: int) -> Scene:
        return Scene(
            host=self._settings.host,
            at=self._loop.now(),
            oom_kills=self._oom.so_far() if self._oom and status == -signals.SIGKILL else 0,
            error_file_is_kept=self._logs.is_kept,
        )

    def end(self) -> None:
        """Close the life: whatever its pipes still hold is shown, and nothing of it is read any more."""
        for worker in self._life:
            worker.close()
        self._life = []


def _leash() -> int:
    from planaria.process.leash import hold

    return hold()
