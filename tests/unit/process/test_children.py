from __future__ import annotations

import errno
import os
import signal
from typing import TYPE_CHECKING

import pytest

from planaria.base import linux
from planaria.base.loop import Loop
from planaria.process.children import LOST_STATUS, Children, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Python 3.12 warns of fork beside threads; these belong to pytest-xdist and hold no lock that a child here would want.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


class Watched:
    """A loop with children that wait for a word before they end. SIGCHLD is told by hand, as `agent.main` does."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.ended: list[tuple[int, int]] = []
        self.childless = 0
        self.spared: frozenset[int] = frozenset()
        self.children = Children(
            self.loop,
            lambda pid, status: self.ended.append((pid, status)),
            self._none_left,
            lambda: self.spared,
        )
        self.gates: dict[int, int] = {}

    def _none_left(self) -> None:
        self.childless += 1

    def start(self, end: Callable[[], object], *, add: bool = True) -> int:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            linux.set_parent_death_signal(signal.SIGKILL)
            os.read(read, 1)
            end()
            os._exit(99)
        os.close(read)
        self.gates[pid] = write
        if add:
            self.children.add(pid)
        return pid

    def let_end(self, pid: int) -> None:
        """Let a child end and wait until it has, without reaping it."""
        gate = self.gates.pop(pid)
        os.write(gate, b"x")
        os.close(gate)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    def turn_until(self, done: Callable[[], bool]) -> None:
        self.children.on_sigchld()
        for _ in range(50):
            if done():
                return
            self.loop.run_once(0.0)
        assert done(), (self.ended, self.childless)

    def close(self) -> None:
        for pid in list(self.gates):
            self.let_end(pid)
        self.turn_until(lambda: self.childless > 0)
        self.loop.close()


@pytest.fixture
def watched() -> Iterator[Watched]:
    found = Watched()
    yield found
    found.close()


@pytest.fixture(params=["pidfd", "no pidfd"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """The same with kernels that have no pidfd, or sandboxes that refuse it."""
    if request.param == "no pidfd":
        monkeypatch.setattr(os, "pidfd_open", refuse)
    found = Watched()
    yield found
    found.close()


def refuse(_pid: int, _flags: int = 0) -> int:
    raise OSError(errno.ENOSYS, "Function not implemented")


def test_a_status_is_the_exit_code_or_minus_the_signal(either: Watched) -> None:
    pids = [
        either.start(lambda: os._exit(0)),
        either.start(lambda: os._exit(3)),
        either.start(lambda: os.kill(os.getpid(), signal.SIGKILL)),
    ]
    for pid in pids:
        either.let_end(pid)
    either.turn_until(lambda: len(either.ended) == 3)
    assert sorted(either.ended) == sorted(zip(pids, [0, 3, -9], strict=True))
    assert decode(3 << 8) == 3


@pytest.mark.parametrize("backwards", [False, True])
def test_deaths_that_nobody_saw_happen_are_told_in_their_order(watched: Watched, backwards: bool) -> None:
    pids = [watched.start(lambda: os._exit(0)) for _ in range(12)]
    order = [pids[place] for place in (7, 2, 11, 0, 5, 9, 1, 3, 10, 4, 8, 6)]
    order = order[::-1] if backwards else order
    for pid in order:
        watched.let_end(pid)
    watched.turn_until(lambda: len(watched.ended) == 12)
    assert [pid for pid, _ in watched.ended] == order


def test_a_sweep_that_comes_first_does_not_change_the_order(watched: Watched) -> None:
    first, second = watched.start(lambda: os._exit(1)), watched.start(lambda: os._exit(2))
    watched.let_end(second)
    watched.let_end(first)
    watched.children._sweep()
    assert watched.ended == []
    watched.turn_until(lambda: len(watched.ended) == 2)
    assert watched.ended == [(second, 2), (first, 1)]


def test_who_has_only_children_that_do_not_count_is_childless(either: Watched) -> None:
    first, second = either.start(lambda: os._exit(0)), either.start(lambda: os._exit(0))
    counts = either.start(lambda: os._exit(0), add=False)
    either.spared = frozenset({first, second})
    either.let_end(first)
    either.turn_until(lambda: either.ended == [(first, 0)])
    assert either.childless == 0
    either.let_end(counts)
    either.turn_until(lambda: either.childless == 1)
    assert second in either.gates
    either.childless = 0


def test_adopted_orphans_are_reaped_and_not_reported(either: Watched) -> None:
    mine = either.start(lambda: os._exit(5))
    foundlings = [either.start(lambda: os._exit(0), add=False) for _ in range(3)]
    either.let_end(foundlings[0])
    either.let_end(mine)
    either.let_end(foundlings[1])
    either.turn_until(lambda: bool(either.ended))
    assert either.ended == [(mine, 5)]
    assert either.childless == 0
    either.let_end(foundlings[2])
    either.turn_until(lambda: either.childless > 0)
    assert either.ended == [(mine, 5)]


def test_having_no_children_is_told_once_for_each_look(either: Watched) -> None:
    either.turn_until(lambda: either.childless == 1)
    either.turn_until(lambda: either.childless == 2)


def test_no_descriptor_is_left_of_a_child(either: Watched) -> None:
    before = len(os.listdir("/proc/self/fd"))
    pids = [either.start(lambda: os._exit(0)) for _ in range(5)]
    for pid in pids:
        either.let_end(pid)
    either.turn_until(lambda: len(either.ended) == 5)
    assert len(os.listdir("/proc/self/fd")) == before


class Guests:
    """Children of ours in a process that has others."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.ended: list[tuple[int, int]] = []
        self.children = Children(self.loop, lambda pid, status: self.ended.append((pid, status)))

    def start(self, status: int) -> int:
        pid = os.fork()
        if pid == 0:
            os._exit(status)
        return pid

    def turn_until(self, count: int) -> None:
        while len(self.ended) < count:
            self.loop.run_once(40.0)


@pytest.fixture
def guests() -> Iterator[Guests]:
    found = Guests()
    yield found
    found.loop.close()


def test_other_children_are_left_to_whoever_has_started_them(guests: Guests) -> None:
    other, ours = guests.start(3), guests.start(4)
    guests.children.add(ours)
    guests.turn_until(1)
    assert guests.ended == [(ours, 4)]
    guests.children.bury()
    assert os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) == 3


def test_the_dead_keep_their_number_until_they_are_buried(guests: Guests) -> None:
    pid = guests.start(0)
    guests.children.add(pid)
    guests.turn_until(1)
    os.kill(pid, 0)  # still there
    guests.children.bury()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_child_that_somebody_else_reaped_is_reported_without_its_status(guests: Guests) -> None:
    pid = guests.start(0)
    guests.children.add(pid)
    os.waitpid(pid, 0)
    guests.turn_until(1)
    assert guests.ended == [(pid, LOST_STATUS)]
    guests.children.bury()


def test_without_pidfds_each_child_of_ours_is_looked_at_now_and_then(
    guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(pid: int) -> int:
        raise OSError(errno.ENOSYS, "no pidfds")

    monkeypatch.setattr(os, "pidfd_open", refused)
    other, ours = guests.start(3), guests.start(4)
    guests.children.add(ours)
    guests.turn_until(1)
    guests.children.bury()
    assert guests.ended == [(ours, 4)]
    os.waitpid(other, 0)


@pytest.mark.parametrize(("told", "status"), [((-9).to_bytes(8, "little", signed=True), -9), (b"", LOST_STATUS)])
def test_the_status_of_a_fork_server_s_child_comes_through_its_pipe(guests: Guests, told: bytes, status: int) -> None:
    read, write = os.pipe()
    guests.children.add(4711, read)
    os.write(write, told)
    os.close(write)
    guests.turn_until(1)
    assert guests.ended == [(4711, status)]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(read)
