"""One worker that was started, and all that is kept for the day it ends badly."""

from __future__ import annotations

import os

from planaria.base import linux, signals
from planaria.base.value import Value, replace
from planaria.contract import blackbox
from planaria.errors import SpawnFailed
from planaria.process.children import LOST_STATUS
from planaria.process.command import LEARN
from planaria.process.spawn import spawn, spawn_on_lifeline
from planaria.process.tee import Tee, tail_of_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop
    from planaria.contract.failure import Failure
    from planaria.process.logs import Stream, Streams
    from planaria.process.model import Call
    from planaria.process.results import Result
    from planaria.process.spawn import Start
    from planaria.process.stacks import Stacks
    from planaria.process.standby import Standby
    from planaria.process.tee import Pace, Route, Warn


_UNKNOWN = 255  # what an end of which nothing is known counts as


class Scene(Value):
    """Where and when a worker's end was seen, for the report."""

    host: str
    at: float
    oom_kills: int = 0
    error_file_is_kept: bool = True


class Running:
    """One worker. It is started once, dies once, and is closed when nothing of it is wanted any more."""

    __slots__ = (
        "_held_fd",
        "_is_lost",
        "_mark",
        "_result",
        "alive",
        "black_box",
        "blame",
        "is_promoted",
        "killed_by_us",
        "lifeline",
        "local_rank",
        "pid",
        "rank",
        "stacks",
        "started_at",
        "status",
        "status_fd",
        "streams",
        "tees",
    )

    def __init__(self, local_rank: int, rank: int, streams: Streams, started_at: float) -> None:
        self.local_rank = local_rank
        self.rank = rank
        self.streams = streams
        self.started_at = started_at
        self.pid = 0
        self.stacks: Stacks | None = None  # once somebody wanted to see some
        self.alive = False
        self.is_promoted = False
        self.status: int | None = None
        self.killed_by_us = False
        self.blame: Failure | None = None
        self.black_box = os.memfd_create("planaria-black-box", os.MFD_CLOEXEC)
        self.tees: list[Tee] = []
        self.status_fd: int | None = None
        self.lifeline: int | None = None
        self._held_fd: int | None = None
        self._is_lost = False
        self._mark: int | None = None
        self._result: Result | None = None

    def start(self, start: Start) -> None:
        """Start the program of `start.argv`. What only the worker needs of its streams is closed here.

        Raises:
            SpawnFailed: The system is out of processes or memory; this worker is closed.
        """
        self._launch(lambda: self._spawn(start))

    def promote(self, standby: Standby, start: Start) -> bool:
        """Make a standby this worker, instead of `start`; False when it is gone: nothing has happened, and `start` it is.

        From here on it is a worker as any other: the same evidence, streams and process group. Its parent waits for it already.
        """
        if not standby.promote(start):
            return False
        self.pid, self.alive, self.is_promoted = standby.pid, True, True
        self.streams.close_worker_ends()
        return True

    def call(self, loop: Loop, start: Start, call: Call) -> None:
        """Start a function, likewise; `loop` reads what it returns.

        Raises:
            UsageError: The function or an argument cannot be pickled; this worker is closed.
        """
        self._launch(lambda: self._call(loop, start, call))

    def _launch(self, launch: Callable[[], None]) -> None:
        try:
            launch()
        except OSError as problem:
            self._give_up()
            raise SpawnFailed(
                f"cannot fork the worker of local rank {self.local_rank}: {problem.strerror}",
                hint="is the limit of processes (ulimit -u, pids cgroup) or the memory used up?",
            ) from problem
        except BaseException:
            self._give_up()
            raise
        self.alive = True
        self.streams.close_worker_ends()

    def _spawn(self, start: Start) -> None:
        if LEARN in start.argv:  # where processes stand by, an end is worth knowing early
            self.pid, self.lifeline = spawn_on_lifeline(start)
        else:
            self.pid = spawn(start)

    def _call(self, loop: Loop, start: Start, call: Call) -> None:
        from planaria.process.function_main import Ends
        from planaria.process.functions import start_function
        from planaria.process.results import Result

        read_fd, write_fd = os.pipe()
        try:
            started = start_function(call, start, Ends(write_fd, self.black_box, self.rank))
        except BaseException:
            os.close(read_fd)
            raise
        finally:
            os.close(write_fd)
        self.pid, self.status_fd, self._held_fd = started.pid, started.status_fd, started.held_fd
        self._result = Result(loop, read_fd)

    def _give_up(self) -> None:
        self.streams.close()
        os.close(self.black_box)

    def tee(self, pace: Pace, stream: Stream, route: Route, warn: Warn) -> None:
        """Carry one of its streams from now on."""
        if stream.read_fd is not None:
            self.tees.append(Tee(pace, stream.read_fd, route, warn))

    def signal(self, number: int) -> None:
        """Send a signal to it and the rest of its process group, if it lives."""
        if self.alive:
            self.killed_by_us = self.killed_by_us or number == signals.SIGKILL
            signal_group(self.pid, number)

    def dump_stacks(self, loop: Loop, pid: int = 0) -> None:
        """Ask it for its stacks, or a process below it, where that can answer; `loop` says when it is that one's turn."""
        if not self.alive:
            return
        if self.stacks is None:
            from planaria.process.stacks import Stacks  # most workers are never asked

            self.stacks = Stacks(loop, self.black_box, ask_for_stacks)
        self.stacks.want(pid or self.pid)

    def _ask_no_more(self) -> None:
        if self.stacks is not None:
            self.stacks.close()

    def mark_black_box(self) -> None:
        """Remember the end of its black box."""
        self._mark = os.fstat(self.black_box).st_size

    def settle_black_box(self) -> None:
        """Take out what was written since then, which was saved elsewhere, unless a record is among it.

        The worker writes at the same position as we have, since it got its descriptor from us.
        """
        mark, self._mark = self._mark, None
        if mark is None or blackbox.has_records(os.pread(self.black_box, blackbox.LIMIT_BYTES, mark)):
            return
        os.ftruncate(self.black_box, mark)
        os.lseek(self.black_box, mark, os.SEEK_SET)

    def kill_leftovers(self) -> None:
        """Kill what is below it or in its process group, dead or alive itself.

        For a process that has other children, which cannot simply end all of them. A dead worker must not be reaped yet: else
        its number may be another's. Below a fork server it is reaped at once, and so `ended` sees to its group.
        """
        if self.alive:
            from planaria.process.descendants import descendants_of

            self.killed_by_us = True
            for victim in descendants_of(self.pid):
                signal_one(victim, signals.SIGKILL)
        if self.alive or self._held_fd is None:
            _kill_group(self.pid)

    def ended(self, status: int) -> None:
        """Note that it ended, and take its last words out of the pipes. `status` may be lost, see `LOST_STATUS`."""
        self.alive = False
        self._ask_no_more()
        if self._held_fd is not None:
            _kill_group(self.pid)
        for tee in self.tees:
            tee.catch_up()
        if self._result is not None:
            self._result.catch_up()
        self._is_lost = status == LOST_STATUS
        self.status = status
        if self._is_lost:  # a function that has returned has done all that was asked of it
            self.status = 0 if self._result is not None and self._result.is_whole else _UNKNOWN

    @property
    def is_returning(self) -> bool:
        """Tell whether a part of what its function returns is here, and the rest is to come."""
        return self._result is not None and self._result.is_partial

    def returned(self) -> object:
        """Return what its function returned; None for a program, and for one that left without returning.

        Raises:
            Exception: Whatever unpickling raises.
        """
        return self._result.value() if self._result is not None and self._result.is_whole else None

    def failure(self, scene: Scene) -> Failure:
        """Say how it ended, once it has, from the evidence it left."""
        from planaria.process.diagnose import Evidence, diagnose

        path = self.streams.error_file
        return diagnose(
            Evidence(
                rank=self.rank,
                local_rank=self.local_rank,
                host=scene.host,
                pid=self.pid,
                status=self.status or 0,
                started_at=self.started_at,
                at=scene.at,
                killed_by_us=self.killed_by_us,
                blame=self.blame,
                lost=self._why_lost(),
                oom_kills=scene.oom_kills,
                black_box=os.pread(self.black_box, blackbox.LIMIT_BYTES, 0),
                error_file=linux.read_file(path) if path and os.path.exists(path) else None,
                error_file_path=path if scene.error_file_is_kept else "",
                stderr_tail=self._stderr_tail(),
                log_files=_log_files((self.streams.stdout, self.streams.stderr)),
            )
        )

    def unreadable(self, problem: BaseException, scene: Scene) -> Failure:
        """Say that what it returned cannot be unpickled here."""
        return replace(
            self.failure(scene),
            status=1,
            kind="exception",
            type="planaria.errors.ResultNotPicklable",
            bases=("planaria.errors.ResultNotPicklable",),
            message=f"the return value of rank {self.rank} cannot be unpickled here: {type(problem).__name__}: {problem}",
        )

    def _why_lost(self) -> str:
        if not self._is_lost:
            return ""
        if self._held_fd is not None:
            return "its exit status was lost with the fork server, which ended"
        return "its exit status was taken by another part of this program (SIGCHLD ignored, or waitpid(-1))"

    @property
    def learned(self) -> blackbox.Learned:
        """Return what its modules teach a standby, so far; nothing where it does not write them down."""
        return blackbox.learned(os.pread(self.black_box, blackbox.LIMIT_BYTES, 0), self.local_rank)

    def _stderr_tail(self) -> bytes:
        stream = self.streams.stderr
        if stream.read_fd is not None:
            return self.tees[-1].tail()
        return tail_of_file(stream.log_path) if stream.log_path else b""

    def close(self) -> None:
        """Show whatever its pipes still hold, and read nothing of it any more."""
        self._ask_no_more()
        for tee in self.tees:
            tee.finish()
        if self._result is not None:
            self._result.close()
        if self._held_fd is not None:
            os.close(self._held_fd)
        os.close(self.black_box)


def signal_group(pid: int, number: int) -> None:
    """Send a signal to a worker's process group, or to the worker alone while it has none yet."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:  # it was forked a moment ago and has no group of its own yet, or is gone
        signal_one(pid, number)
    except PermissionError:  # it has become another user (a setuid program): not ours to end
        return


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signals.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def signal_one(pid: int, number: int) -> None:
    """Send a signal to one process, if there is such a process and it is ours."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def ask_for_stacks(pid: int) -> bool:
    """Ask a process for its stacks, and tell whether it can answer: the signal would end another program."""
    if not linux.catches(pid, blackbox.DUMP_STACKS):
        return False
    signal_one(pid, blackbox.DUMP_STACKS)
    return True


def _log_files(streams: tuple[Stream, ...]) -> tuple[str, ...]:
    return tuple(stream.log_path for stream in streams if stream.log_path)
