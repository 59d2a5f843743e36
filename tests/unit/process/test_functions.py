"""One worker that calls a function, started in each of the three ways."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import call_targets as targets
import pytest

from planaria.base.loop import Loop
from planaria.errors import UsageError
from planaria.process.children import Children
from planaria.process.logs import Stream, Streams
from planaria.process.model import Call
from planaria.process.running import Running, Scene
from planaria.process.spawn import Start

if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.contract.failure import Failure

# Python 3.12 warns of fork beside threads; these belong to pytest-xdist and hold no lock that a child here would want.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

METHODS = ("spawn", "fork", "forkserver")
every_method = pytest.mark.parametrize("method", METHODS)
RANK = 5


class Ended:
    """What became of one worker."""

    def __init__(self, status: int, failure: Failure | None, value: Any) -> None:
        self.status, self.value = status, value
        self._failure = failure

    @property
    def failure(self) -> Failure:
        assert self._failure is not None
        return self._failure


class OneWorker:
    """A loop with one worker in it."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        method: str,
        streams: Streams | None = None,
        **env: str,
    ) -> None:
        self.loop = Loop()
        self.statuses: list[int] = []
        self.children = Children(self.loop, lambda _pid, status: self.statuses.append(status))
        self.worker = Running(1, RANK, streams or Streams(Stream(), Stream(), ""), self.loop.now())
        start = Start(
            ("f",),
            dict(os.environ) | env,
            self.worker.black_box,
            self.worker.streams.stdout.worker_fd,
            self.worker.streams.stderr.worker_fd,
        )
        try:
            self.worker.call(self.loop, start, Call(function, args, method))
        except BaseException:
            self.loop.close()
            raise
        self.children.add(self.worker.pid, self.worker.status_fd)

    def wait(self) -> Ended:
        while not self.statuses:
            self.loop.run_once(40.0)
        (status,) = self.statuses
        self.worker.ended(status)
        scene = Scene("here", self.loop.now())
        failure, value = None, None
        if status != 0:
            failure = self.worker.failure(scene)
        else:
            try:
                value = self.worker.returned()
            except ValueError as problem:
                failure = self.worker.unreadable(problem, scene)
        self.worker.kill_leftovers()
        self.children.bury()
        self.worker.close()
        self.loop.close()
        return Ended(status, failure, value)


def called(function: Callable[..., Any], *args: Any, method: str, **env: str) -> Ended:
    return OneWorker(function, args, method, **env).wait()


@every_method
def test_what_a_function_returns_comes_back(method: str) -> None:
    assert called(targets.add, 2, 3, method=method).value == 5
    assert called(targets.same, targets.Point(4), method=method).value == targets.Point(4)
    assert called(targets.same, None, method=method).value is None


@pytest.mark.parametrize(("method", "size_bytes"), [("spawn", 64 << 20), ("fork", 4 << 20), ("forkserver", 4 << 20)])
def test_a_value_far_larger_than_a_pipe_comes_back_while_the_worker_still_writes_it(
    method: str, size_bytes: int
) -> None:
    value = called(targets.large, size_bytes, method=method).value
    assert len(value) == size_bytes
    assert value.count(0xA5) == len(value)


@every_method
def test_arguments_far_larger_than_a_pipe_do_not_make_the_caller_wait(method: str) -> None:
    assert called(len, b"x" * (4 << 20), method=method).value == 4 << 20


@every_method
def test_an_exception_comes_back_with_its_traceback_and_place(method: str) -> None:
    failure = called(targets.broken, "no luck", method=method).failure
    assert (failure.status, failure.kind, failure.type) == (1, "exception", "ValueError")
    assert (failure.rank, failure.local_rank) == (RANK, 1)
    assert failure.message == "ValueError: no luck"
    assert failure.where.startswith(targets.__file__)
    assert "raise ValueError(text)" in failure.traceback
    assert "function_main" not in failure.traceback


@every_method
def test_a_value_that_cannot_be_pickled_is_reported_as_exactly_that(method: str) -> None:
    failure = called(targets.unpicklable, method=method).failure
    assert (failure.status, failure.kind, failure.type) == (1, "exception", "planaria.errors.ResultNotPicklable")
    assert f"the return value of rank {RANK}, a value of type dict, whose part ['lock'][0]" in failure.message
    assert "a value of type lock" in failure.message


@every_method
def test_a_value_that_cannot_be_unpickled_here_is_reported_as_exactly_that(method: str) -> None:
    failure = called(targets.one_way, method=method).failure
    assert failure.type == "planaria.errors.ResultNotPicklable"
    assert failure.message.endswith("cannot be unpickled here: ValueError: this cannot be made here")


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_what_cannot_be_sent_is_named_before_anything_is_started(method: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(UsageError, match=rf"the function of rank {RANK}: the function .*<lambda> cannot be pickled"):
        called(lambda: 1, method=method)
    with pytest.raises(
        UsageError, match=rf"argument 1 of rank {RANK}: a value of type list, whose part \[0\] is a value"
    ):
        called(targets.add, 1, [threading.Lock()], method=method)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_fork_sends_nothing_and_so_takes_anything() -> None:
    lock = threading.Lock()
    assert called(lambda one: one is lock, lock, method="fork").value is True


def test_an_unknown_way_to_start_is_refused() -> None:
    with pytest.raises(UsageError, match="start_method expects one of spawn, fork, forkserver, got 'vfork'"):
        called(targets.add, 1, 2, method="vfork")


@every_method
@pytest.mark.parametrize(("code", "status", "said"), [(3, 3, "exit status 3"), ("bye", 1, "exit: bye")])
def test_leaving_with_a_status_is_a_failure_with_that_status(method: str, code: Any, status: int, said: str) -> None:
    ended = called(targets.leave, code, method=method)
    assert (ended.status, ended.failure.kind, ended.failure.message) == (status, "exit", said)


@every_method
@pytest.mark.parametrize("code", [0, None])
def test_leaving_well_returns_nothing(method: str, code: int | None) -> None:
    ended = called(targets.leave, code, method=method)
    assert (ended.status, ended.value) == (0, None)


@every_method
def test_one_that_vanishes_without_a_word_is_judged_by_its_status(method: str) -> None:
    assert called(targets.vanish, 0, method=method).value is None
    assert called(targets.vanish, 9, method=method).failure.message == "exit status 9"


@every_method
def test_a_deadly_signal_is_told_with_the_stacks(method: str) -> None:
    failure = called(targets.kill_self, signal.SIGSEGV, method=method).failure
    assert (failure.status, failure.kind) == (-signal.SIGSEGV, "signal")
    assert "in kill_self" in failure.traceback
    assert called(targets.kill_self, signal.SIGKILL, method=method).failure.killer == "other"


@every_method
def test_a_worker_has_a_session_an_environment_and_a_parent_of_its_own(method: str) -> None:
    found = called(targets.surroundings, "PLANARIA_TEST", "PATH", method=method, PLANARIA_TEST="yes").value
    assert found["leads_session"]
    assert found["env"] == {"PLANARIA_TEST": "yes", "PATH": os.environ["PATH"]}
    assert found["parent"] == (os.getpid(), True)
    assert "PLANARIA_TEST" not in os.environ


@every_method
def test_output_goes_where_it_was_told_as_a_program_s_would(method: str) -> None:
    told, complained = os.memfd_create("told"), os.memfd_create("complained")
    streams = Streams(Stream("file", worker_fd=os.dup(told)), Stream("file", worker_fd=os.dup(complained)), "")
    assert OneWorker(targets.say, ("out", "err"), method, streams).wait().status == 0
    assert sorted(os.pread(told, 100, 0).splitlines()) == [b"from the descriptor", b"out"]
    assert os.pread(complained, 100, 0) == b"err\n"
    os.close(told)
    os.close(complained)


@every_method
def test_queues_locks_connections_and_shared_numbers_are_arguments_as_with_multiprocessing(method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    queue, lock = context.Queue(), context.Lock()
    assert called(targets.use_queue, queue, lock, 7, method=method).status == 0
    assert queue.get(timeout=40) == 7
    queue.close()
    queue.join_thread()
    ours, theirs = context.Pipe()
    number = context.Value("i", 41)
    assert called(targets.use_parts, theirs, number, method=method).status == 0
    assert (ours.recv(), number.value) == ("hello", 42)
    ours.close()
    theirs.close()


@every_method
def test_a_worker_is_asked_for_its_stacks_while_it_runs(method: str) -> None:
    read, write = os.pipe()
    streams = Streams(Stream("file", worker_fd=write), Stream(), "")
    one = OneWorker(targets.chatter, (), method, streams)
    assert os.read(read, 2) == b"go"
    one.worker.dump_stacks(one.loop)
    while b"chatter" not in os.pread(one.worker.black_box, 1 << 16, 0):
        one.loop.run_once(0.01)
    one.worker.signal(signal.SIGKILL)
    failure = one.wait().failure
    os.close(read)
    assert (failure.killer, failure.status) == ("us", -signal.SIGKILL)
    assert "in chatter" in failure.traceback


@every_method
def test_ten_rounds_leave_no_descriptor_and_no_child(method: str) -> None:
    called(targets.add, 1, 1, method=method)  # the server, the tracker and the leash come once
    before = set(os.listdir("/proc/self/fd")), children()
    for _ in range(10):
        assert called(targets.add, 1, 1, method=method).value == 2
    assert (set(os.listdir("/proc/self/fd")), children()) == before


def children() -> set[str]:
    """Return the pids of our children, the dead ones that nobody waited for included."""
    tasks = [Path(f"/proc/self/task/{task}/children").read_text() for task in os.listdir("/proc/self/task")]
    return set("".join(tasks).split())
