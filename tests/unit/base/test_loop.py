from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from clocks import Clock

from planaria.base.loop import Loop, Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def pipes() -> Iterator[list[tuple[int, int]]]:
    pipes = [os.pipe() for _ in range(40)]
    yield pipes
    for fd in [fd for pipe in pipes for fd in pipe]:
        with contextlib.suppress(OSError):
            os.close(fd)


def each(*calls: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        for call in calls:
            call()

    return run


def timers(loop: Loop) -> int:
    return len(loop._timers)


def test_descriptors_are_handled_in_the_order_in_which_they_became_ready(
    loop: Loop, pipes: list[tuple[int, int]]
) -> None:
    order: list[int] = []
    for number, (read, _) in enumerate(pipes):
        loop.on_readable(read, partial(order.append, number))
    ready = list(range(len(pipes)))
    random.Random(7).shuffle(ready)
    for number in ready:
        os.write(pipes[number][1], b"x")
    loop.run_once(0)
    assert order == ready


def test_the_order_of_deaths_is_the_order_of_their_pidfds(loop: Loop) -> None:
    workers = [subprocess.Popen([sys.executable, "-ISc", "input()"], stdin=subprocess.PIPE) for _ in range(4)]
    order: list[int] = []
    pidfds = [os.pidfd_open(worker.pid) for worker in workers]
    for number, pidfd in enumerate(pidfds):
        loop.on_readable(pidfd, partial(order.append, number))
    for number in (2, 0, 3, 1):
        workers[number].kill()
        os.waitid(os.P_PIDFD, pidfds[number], os.WEXITED | os.WNOWAIT)
    loop.run_once(10)
    assert order == [2, 0, 3, 1]
    for number, worker in enumerate(workers):
        loop.forget(pidfds[number])
        os.close(pidfds[number])
        worker.communicate()


def test_a_descriptor_forgotten_by_an_earlier_callback_of_the_batch_is_not_called(
    loop: Loop, pipes: list[tuple[int, int]]
) -> None:
    (first, first_end), (second, second_end) = pipes[:2]
    called: list[str] = []

    def forget_second() -> None:
        called.append("first")
        loop.forget(second)

    loop.on_readable(first, forget_second)
    loop.on_readable(second, lambda: called.append("second"))
    os.write(first_end, b"x")
    os.write(second_end, b"x")
    loop.run_once(0)
    assert called == ["first"]


def test_a_number_that_was_reused_within_the_batch_does_not_get_the_old_event(
    loop: Loop, pipes: list[tuple[int, int]]
) -> None:
    (first, first_end), (second, second_end), (quiet, _) = pipes[:3]
    called: list[str] = []

    def reuse() -> None:
        loop.forget(second)
        os.dup2(quiet, second)
        loop.on_readable(second, lambda: called.append("wrong"))

    loop.on_readable(first, reuse)
    loop.on_readable(second, lambda: called.append("old"))
    os.write(first_end, b"x")
    os.write(second_end, b"x")
    loop.run_once(0)
    assert called == []


def test_readiness_is_level_triggered(loop: Loop, pipes: list[tuple[int, int]]) -> None:
    read, write = pipes[0]
    called: list[bytes] = []
    loop.on_readable(read, lambda: called.append(os.read(read, 1)))
    os.write(write, b"ab")
    loop.run_once(0)
    loop.run_once(0)
    loop.run_once(0)
    assert called == [b"a", b"b"]


def test_one_descriptor_may_be_watched_for_both_and_each_side_forgotten_alone(loop: Loop) -> None:
    ours, theirs = os.openpty()
    called: list[str] = []
    loop.on_readable(ours, lambda: called.append("read"))
    loop.on_writable(ours, lambda: called.append("write"))
    os.write(theirs, b"x\n")
    loop.run_once(5)
    assert called == ["read", "write"]
    loop.forget_readable(ours)
    loop.run_once(0)
    assert called == ["read", "write", "write"]
    loop.forget_writable(ours)
    loop.run_once(0)
    assert called == ["read", "write", "write"]
    os.close(ours)
    os.close(theirs)


def test_a_hang_up_wakes_the_reader(loop: Loop, pipes: list[tuple[int, int]]) -> None:
    read, write = pipes[0]
    called: list[str] = []
    loop.on_readable(read, lambda: called.append("read"))
    os.close(write)
    loop.run_once(5)
    assert called == ["read"]


def test_a_broken_pipe_wakes_the_writer_when_nobody_reads(loop: Loop, pipes: list[tuple[int, int]]) -> None:
    read, write = pipes[0]
    while True:  # full, so that only the break can wake it
        os.set_blocking(write, False)
        try:
            os.write(write, bytes(65536))
        except BlockingIOError:
            break
    called: list[str] = []
    loop.on_writable(write, lambda: called.append("write"))
    loop.run_once(0)
    assert called == []
    os.close(read)
    loop.run_once(5)
    assert called == ["write"]


def test_what_is_always_ready_cannot_be_watched(loop: Loop, tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file, open("/dev/null", "wb") as null:
        assert loop.on_writable(file.fileno(), lambda: None) is False
        assert loop.on_readable(null.fileno(), lambda: None) is False
        loop.forget(file.fileno())


def test_a_closed_descriptor_is_an_error(loop: Loop) -> None:
    read, write = os.pipe()
    os.close(read)
    os.close(write)
    with pytest.raises(OSError, match="Bad file descriptor"):
        loop.on_readable(read, lambda: None)


def test_forgetting_what_nobody_watches_is_harmless(loop: Loop) -> None:
    loop.forget(12345)
    loop.forget_readable(12345)
    loop.forget_writable(12345)


def test_call_soon_runs_after_all_ready_descriptors(loop: Loop, pipes: list[tuple[int, int]]) -> None:
    order: list[str] = []
    for read, write in pipes:
        loop.on_readable(
            read, each(partial(order.append, "read"), partial(loop.call_soon, partial(order.append, "soon")))
        )
        os.write(write, b"x")
    loop.run_once(0)
    assert order == ["read"] * len(pipes) + ["soon"] * len(pipes)


def test_call_soon_from_call_soon_waits_for_the_next_turn_without_sleeping(loop: Loop) -> None:
    order: list[str] = []
    loop.call_soon(lambda: loop.call_soon(lambda: order.append("later")))
    loop.run_once(0)
    assert order == []
    loop.run_once(None)
    assert order == ["later"]


def test_timers_run_in_order_of_time_then_of_asking() -> None:
    clock = Clock()
    loop = Loop(clock)
    order: list[str] = []
    loop.call_at(102, lambda: order.append("b1"))
    loop.call_at(101, lambda: order.append("a"))
    loop.call_later(2, lambda: order.append("b2"))
    loop.call_at(103, lambda: order.append("c"))
    clock.now = 102
    loop.run_once(0)
    assert order == ["a", "b1", "b2"]
    clock.now = 103
    loop.run_once(0)
    assert order == ["a", "b1", "b2", "c"]
    loop.close()


def test_descriptors_come_before_what_they_queued_and_that_before_timers(
    pipes: list[tuple[int, int]],
) -> None:
    clock = Clock()
    loop = Loop(clock)
    order: list[str] = []
    read, write = pipes[0]
    loop.call_at(99, lambda: order.append("timer"))
    loop.on_readable(read, each(partial(order.append, "read"), partial(loop.call_soon, partial(order.append, "soon"))))
    os.write(write, b"x")
    loop.run_once(0)
    assert order == ["read", "soon", "timer"]
    loop.close()


class Stopped:
    """An epoll whose waits end without a look at the descriptors, as after SIGSTOP and SIGCONT: CPython only sees the time."""

    def __init__(self, epoll: Any, meanwhile: Callable[[], object]) -> None:
        self._epoll = epoll
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)

    def poll(self, timeout: float, maxevents: int) -> Any:
        if timeout:
            self._meanwhile()
            return []
        return self._epoll.poll(timeout, maxevents)


def test_facts_come_before_deadlines_also_when_the_process_was_stopped_while_it_waited(
    pipes: list[tuple[int, int]],
) -> None:
    clock = Clock()
    loop = Loop(clock)
    order: list[str] = []
    read, write = pipes[0]

    def stop_for_long() -> None:
        os.write(write, b"x")
        clock.now += 1000

    loop.call_later(5, lambda: order.append("timer"))
    loop.on_readable(read, lambda: order.append("read"))
    loop._epoll = Stopped(loop._epoll, stop_for_long)
    loop.run_once()
    assert order == ["read", "timer"]
    loop.close()


def test_a_cancelled_timer_is_not_called_and_does_not_wake_the_loop() -> None:
    clock = Clock()
    loop = Loop(clock)
    called: list[int] = []
    timer = loop.call_at(101, lambda: called.append(1))
    pending = [timer.is_pending]
    timer.cancel()
    timer.cancel()
    pending.append(timer.is_pending)
    assert pending == [True, False]
    clock.now = 200
    assert loop._wait_s(7) == 7
    loop.run_once(0)
    assert called == []
    loop.close()


def test_a_timer_may_cancel_another_that_is_due_too() -> None:
    clock = Clock()
    loop = Loop(clock)
    called: list[str] = []
    due: list[Timer] = []

    def cancel_second() -> None:
        due[0].cancel()

    loop.call_at(101, cancel_second)
    due.append(loop.call_at(101, lambda: called.append("second")))
    clock.now = 102
    loop.run_once(0)
    assert called == []
    loop.close()


def test_many_cancelled_timers_do_not_pile_up() -> None:
    loop = Loop(Clock())
    kept = loop.call_at(500, lambda: None)
    for _ in range(10_000):
        loop.call_later(60, lambda: None).cancel()
    assert timers(loop) < 200
    assert kept.is_pending
    loop.close()


def test_a_timer_that_asks_for_another_at_once_does_not_hang_the_turn() -> None:
    loop = Loop(Clock())
    called: list[int] = []

    def again() -> None:
        called.append(1)
        loop.call_later(0, again)

    loop.call_later(0, again)
    loop.run_once(0)
    assert called == [1]
    loop.run_once(None)
    assert called == [1, 1]
    loop.close()


def test_run_turns_until_stop(loop: Loop) -> None:
    called: list[int] = []

    def count() -> None:
        called.append(1)
        if len(called) == 3:
            loop.stop()
        loop.call_later(0.001, count)

    count()
    loop.run()
    assert called == [1, 1, 1]


def test_a_stop_before_run_is_not_lost(loop: Loop) -> None:
    loop.stop()
    loop.run()


def test_the_turn_in_which_stop_was_called_is_completed(loop: Loop, pipes: list[tuple[int, int]]) -> None:
    order: list[int] = []
    for number, (read, write) in enumerate(pipes[:3]):
        loop.on_readable(read, each(partial(order.append, number), loop.stop))
        os.write(write, b"x")
    loop.run()
    assert order == [0, 1, 2]


def test_an_exception_leaves_the_loop_and_loses_nothing(loop: Loop, pipes: list[tuple[int, int]]) -> None:
    order: list[str] = []

    def fail() -> None:
        loop.forget(pipes[0][0])
        raise ZeroDivisionError

    loop.on_readable(pipes[0][0], fail)
    loop.on_readable(pipes[1][0], each(partial(order.append, "read"), loop.stop))
    loop.call_soon(lambda: order.append("soon"))
    os.write(pipes[0][1], b"x")
    os.write(pipes[1][1], b"x")
    with pytest.raises(ZeroDivisionError):
        loop.run()
    loop.run()
    assert order == ["read", "soon"]


def test_a_far_deadline_is_no_overflow(loop: Loop) -> None:
    loop.call_later(1e12, lambda: None)
    loop.run_once(0)
    loop.call_soon(lambda: None)
    loop.run_once(float("inf"))
