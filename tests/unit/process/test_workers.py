"""A whole life of workers that call functions, as an embedded agent has them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import call_targets as targets
import pytest

from planaria.base.loop import Loop
from planaria.contract.env import Round
from planaria.process import running
from planaria.process.children import Children
from planaria.process.logs import RunLogs
from planaria.process.model import STDERR, STDOUT, Call, Command, LogSettings, StreamMask
from planaria.process.sink import ConsoleSink
from planaria.process.workers import Console, WorkerEnd, Workers, WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

# Python 3.12 warns of fork beside threads; these belong to pytest-xdist and hold no lock that a child here would want.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
every_method = pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
TEE = StreamMask(STDOUT | STDERR)


class Group:
    """A loop, workers on it, and a console that is a file."""

    def __init__(self, folder: Path, command: Call | Command) -> None:
        (folder / "scratch").mkdir()
        self.loop = Loop()
        self.console = os.memfd_create("console")
        sink = ConsoleSink(self.loop, self.console)
        logs = RunLogs(LogSettings(str(folder / "logs"), tee=TEE), "run", str(folder / "scratch"))
        settings = WorkerSettings(command, dict(os.environ), control="", host="here", embedded=True)
        self.workers = Workers(self.loop, settings, logs, Console(sink, sink, lambda _text: None))
        self.children = Children(self.loop, self._on_exit)
        self.ends: dict[int, WorkerEnd] = {}

    def _on_exit(self, pid: int, status: int) -> None:
        end = self.workers.exited(pid, status)
        assert end is not None
        self.ends[end.local_rank] = end

    def begin(self, size: int = 2, attempt: int = 0) -> None:
        self.ends = {}
        life = Round(attempt, "run", "trainer", 0, 1, 10, size, 10, size, size, "localhost", 1, attempt, 3)
        self.workers.begin(life, self.children.add)

    def end(self, count: int = 2) -> None:
        while len(self.ends) < count:
            self.loop.run_once(40.0)
        self.children.bury()
        self.workers.end()
        self.loop.run_once(0.0)

    def shown(self) -> list[bytes]:
        return sorted(os.pread(self.console, 1 << 16, 0).splitlines())


@pytest.fixture
def groups() -> Iterator[list[Group]]:
    found: list[Group] = []
    yield found
    for group in found:
        group.loop.close()
        os.close(group.console)


@every_method
def test_a_life_of_functions_has_ranks_output_and_values(tmp_path: Path, groups: list[Group], method: str) -> None:
    group = Group(tmp_path, Call(targets.rank_and, ("local ${local_rank}", 3), method))
    groups.append(group)
    group.begin()
    assert sorted(group.workers.by_pid.values()) == [0, 1]
    group.end()
    assert group.workers.return_values == {0: (10, "local 0", 3), 1: (11, "local 1", 3)}
    assert group.shown() == [b"[trainer0]:rank 10", b"[trainer1]:rank 11"]
    assert [end.failure for end in group.ends.values()] == [None, None]


@every_method
def test_the_values_of_a_failed_life_are_forgotten_in_the_next(
    tmp_path: Path, groups: list[Group], method: str
) -> None:
    marker = tmp_path / "marker"
    group = Group(tmp_path, Call(targets.fail_once, (str(marker),), method))
    groups.append(group)
    group.begin()
    group.end()
    failures = [end.failure for end in group.ends.values() if end.failure is not None]
    assert failures
    assert {failure.message for failure in failures} == {"RuntimeError: the first time"}
    assert all(failure.error_file == "" and failure.log_files for failure in failures)
    marker.touch()
    group.begin(attempt=1)
    assert group.workers.return_values == {}
    group.end()
    assert group.workers.return_values == {0: 10, 1: 11}


def test_a_signal_reaches_all_and_a_program_returns_nothing(tmp_path: Path, groups: list[Group]) -> None:
    group = Group(tmp_path, Command("program", "sleep", ("600",), bootstrap=False))
    groups.append(group)
    group.begin()
    group.workers.signal(signal.SIGTERM)
    group.end()
    assert [end.failure.status for end in group.ends.values() if end.failure] == [-15, -15]
    assert group.workers.return_values == {}


@pytest.mark.parametrize("worker_first", [True, False])
def test_a_worker_and_its_child_are_asked_for_stacks_one_after_the_other_whoever_is_first(
    tmp_path: Path, groups: list[Group], monkeypatch: pytest.MonkeyPatch, *, worker_first: bool
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(running, "ask_for_stacks", lambda pid: asked.append(pid) or True)
    group = Group(tmp_path, Command("program", "sleep", ("600",), bootstrap=False))
    groups.append(group)
    group.begin(size=1)
    (worker,), child = group.workers.by_pid, os.getpid()  # whose number is nobody's here
    ((_, box),) = group.workers.black_boxes

    def blame() -> None:
        group.workers.blame(group.workers.suspect(0, "hangs", 1.0, signal.SIGTERM), child)

    for order in (group.workers.dump_stacks, blame) if worker_first else (blame, group.workers.dump_stacks):
        order()
    wanted = [worker, child] if worker_first else [child, worker]
    assert asked == wanted[:1], "both would write into one black box"
    os.write(box, b"stacks")
    while asked != wanted:
        group.loop.run_once(40.0)
    group.workers.signal(signal.SIGKILL)
    group.end(count=1)


def test_large_values_of_many_workers_flow_side_by_side(tmp_path: Path, groups: list[Group]) -> None:
    group = Group(tmp_path, Call(targets.large, (8 << 20,), "fork"))
    groups.append(group)
    group.begin(size=6)
    group.end(count=6)
    values: dict[int, Any] = group.workers.return_values
    assert {rank: len(value) for rank, value in values.items()} == dict.fromkeys(range(6), 8 << 20)


def test_a_function_whose_exit_status_somebody_else_took_has_succeeded_if_it_returned(
    tmp_path: Path, groups: list[Group]
) -> None:
    group = Group(tmp_path, Call(targets.add, (1, 2), "fork"))
    groups.append(group)
    group.begin()
    for pid in group.workers.by_pid:
        os.waitpid(pid, 0)
    group.end()
    assert [end.failure for end in group.ends.values()] == [None, None]
    assert group.workers.return_values == {0: 3, 1: 3}


def test_an_end_of_which_nothing_is_known_says_why(tmp_path: Path, groups: list[Group]) -> None:
    group = Group(tmp_path, Command("program", "/bin/true"))
    groups.append(group)
    group.begin()
    for pid in group.workers.by_pid:
        os.waitpid(pid, 0)
    group.end()
    failure = group.ends[0].failure
    assert failure is not None
    assert (failure.status, failure.kind) == (255, "exit")
    why = "its exit status was taken by another part of this program (SIGCHLD ignored, or waitpid(-1))"
    assert failure.message == why
