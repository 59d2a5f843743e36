"""Contexts with real workers: small ones, so that all of it stays quick."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import call_targets as targets
import pytest
from waiting import wait_dead, wait_until

from planaria.elastic.multiprocessing import (
    DefaultLogsSpecs,
    MultiprocessContext,
    PContext,
    RunProcsResult,
    SignalException,
    Std,
    SubprocessContext,
    start_processes,
)
from planaria.elastic.multiprocessing.errors import ChildFailedError
from planaria.errors import UsageError

# Python 3.12 warns of fork beside threads; these belong to pytest-xdist and hold no lock that a child here would want.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
every_method = pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


@pytest.fixture(autouse=True)
def handlers() -> Any:
    """Give pytest its signal handlers back: a context takes them, as torch's does."""
    before = {number: signal.getsignal(number) for number in HANDLED}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def started(
    tmp_path: Path, entrypoint: Any, args: list[tuple[Any, ...]], *, method: str = "fork", **changes: Any
) -> PContext:
    specs = changes.pop("logs_specs", None) or DefaultLogsSpecs(str(tmp_path / "logs"))
    envs = changes.pop("envs", None) or {rank: {"LOCAL_RANK": str(rank)} for rank in range(len(args))}
    return start_processes("test", entrypoint, dict(enumerate(args)), envs, specs, start_method=method, **changes)


def finished(context: PContext) -> RunProcsResult:
    result = context.wait(60)
    assert result is not None, "it still runs"
    return result


@every_method
def test_functions_return_their_values_by_rank(tmp_path: Path, method: str) -> None:
    context = started(tmp_path, targets.add, [(1, 2), (3, 4)], method=method)
    assert isinstance(context, MultiprocessContext)
    result = finished(context)
    assert result.return_values == {0: 3, 1: 7}
    assert (result.failures, result.is_failed()) == ({}, False)
    assert finished(context) is result
    assert set(context.pids()) == {0, 1}


@every_method
def test_large_values_come_also_when_one_only_looks_now_and_then(tmp_path: Path, method: str) -> None:
    context = started(tmp_path, targets.large, [(4 << 20,), (1,)], method=method)
    result = wait_until(lambda: context.wait(0), "both values")
    assert {rank: len(value) for rank, value in result.return_values.items()} == {0: 4 << 20, 1: 1}


@every_method
def test_the_first_failure_ends_the_others_and_is_told_with_its_traceback(tmp_path: Path, method: str) -> None:
    context = started(tmp_path, targets.wait_or_fail, [("wait",), ("fail",), ("wait",)], method=method)
    result = finished(context)
    assert set(result.failures) == {1}
    failure = result.failures[1]
    assert (failure.exitcode, failure.local_rank, failure.pid) == (1, 1, context.pids()[1])
    assert failure.message["message"] == "RuntimeError: told to"
    assert "in wait_or_fail" in failure.message["extraInfo"]["py_callstack"]
    assert failure.error_file == context.error_files[1]
    assert all(wait_dead(pid) for pid in context.pids().values())


@every_method
def test_an_unpicklable_value_is_a_failure_that_says_so(tmp_path: Path, method: str) -> None:
    failure = finished(started(tmp_path, targets.unpicklable, [()], method=method)).failures[0]
    assert "the return value of rank 0, a value of type dict, whose part ['lock'][0]" in failure.message["message"]


def test_the_message_is_there_also_where_no_file_can_be(tmp_path: Path) -> None:
    specs = DefaultLogsSpecs(os.devnull)
    failure = finished(started(tmp_path, targets.broken, [("no file",)], logs_specs=specs)).failures[0]
    assert failure.message["message"] == "ValueError: no file"


def test_a_function_that_cannot_be_sent_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    started(tmp_path, targets.add, [(1, 1)], method="spawn").wait()  # the tracker comes once
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(UsageError, match=r"the function of rank 0: the function .*<lambda> cannot be pickled"):
        started(tmp_path, lambda: 1, [()], method="spawn")
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_signal_is_told_in_torch_s_words(tmp_path: Path, number: signal.Signals) -> None:
    context = started(tmp_path, targets.kill_self, [(number,)])
    failure = finished(context).failures[0]
    assert failure.exitcode == -number
    assert failure.message == f"Signal {number} ({number.name}) received by PID {context.pids()[0]}"


def test_programs_run_with_texts_for_arguments(tmp_path: Path) -> None:
    context = started(
        tmp_path, "echo", [(1, [2]), ("x",)], logs_specs=DefaultLogsSpecs(str(tmp_path), redirects={0: Std.OUT})
    )
    assert isinstance(context, SubprocessContext)
    result = finished(context)
    assert result.return_values == {0: None, 1: None}
    assert Path(result.stdouts[0]).read_text() == "1 [2]\n"
    assert result.stdouts[1] == ""


def test_failures_of_programs_are_those_of_all_that_did_not_end_well(tmp_path: Path) -> None:
    context = started(tmp_path, "sh", [("-c", "exit 3"), ("-c", "sleep 600")])
    result = finished(context)
    assert {rank: failure.exitcode for rank, failure in result.failures.items()} == {0: 3, 1: -signal.SIGTERM}
    assert isinstance(context, SubprocessContext)
    assert {rank: handler.proc.poll() for rank, handler in context.subprocess_handlers.items()} == {0: 3, 1: -15}


def test_a_program_that_is_not_there_is_the_caller_s_mistake(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        started(tmp_path, "no-such-program", [()])
    (tmp_path / "text").write_text("no program")
    with pytest.raises(PermissionError):
        started(tmp_path, str(tmp_path / "text"), [()])


def test_the_environment_of_a_worker_is_the_caller_s_and_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_CALLER", "yes")
    envs: Any = {0: {"OWN": 7}}
    found = finished(started(tmp_path, targets.surroundings, [("FROM_CALLER", "OWN")], envs=envs)).return_values[0]
    assert found["env"] == {"FROM_CALLER": "yes", "OWN": "7"}
    assert found["sigterm"], "a worker must not inherit the caller's handlers"
    assert "OWN" not in os.environ


def test_tee_shows_whole_lines_and_copies_those_that_match(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    specs = DefaultLogsSpecs(str(tmp_path), tee={0: Std.ALL}, redirects={1: Std.OUT})
    context = started(
        tmp_path, targets.say, [("a loss", "e"), ("b loss", "f")], logs_specs=specs, duplicate_stdout_filters=["loss"],
        log_line_prefixes={0: "<0> "},
    )  # fmt: skip
    result = finished(context)
    shown = capsys.readouterr()
    assert sorted(shown.out.splitlines()) == ["<0> a loss", "<0> from the descriptor"]
    assert "<0> e" in shown.err.splitlines()
    assert "b loss" in Path(result.stdouts[1]).read_text()
    (copied,) = tmp_path.rglob("filtered_stdout.log")
    assert copied.read_text() == "<0> a loss\n"


@every_method
def test_close_asks_first_and_then_insists(tmp_path: Path, method: str) -> None:
    told = [str(tmp_path / "a"), str(tmp_path / "b")]
    context = started(tmp_path, targets.willing_or_deaf, [(told[0], "willing"), (told[1], "deaf")], method=method)
    pids = [int(targets.read_when_told(path)) for path in told]
    assert list(context.pids().values()) == pids
    context.close(timeout=1)
    assert all(wait_dead(pid) for pid in pids)
    context.close()


def test_who_has_no_patience_leaves_no_zombie_either(tmp_path: Path) -> None:
    context = started(tmp_path, targets.deaf_and_wait, [(str(tmp_path / "told"),)])
    pid = int(targets.read_when_told(str(tmp_path / "told")))
    context.close(timeout=0)
    with pytest.raises(ChildProcessError):  # it was waited for
        os.waitpid(pid, os.WNOHANG)


@every_method
@pytest.mark.parametrize("then", ["fail", "return"])
def test_what_a_worker_leaves_in_its_group_ends_with_the_context(tmp_path: Path, method: str, then: str) -> None:
    told = str(tmp_path / "told")
    finished(started(tmp_path, targets.has_a_child, [(told, then)], method=method))
    assert wait_dead(int(targets.read_when_told(told)))


def test_other_children_of_the_caller_survive_and_keep_their_status(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(7)"], stdin=subprocess.PIPE)
    queue: Any = multiprocessing.get_context("fork").Queue()
    relative = multiprocessing.get_context("fork").Process(target=targets.use_queue, args=(queue, targets.NoLock(), 1))
    relative.start()
    finished(started(tmp_path, targets.wait_or_fail, [("wait",), ("fail",)]))
    assert other.poll() is None
    assert other.stdin is not None
    other.stdin.close()
    assert other.wait(40) == 7
    assert queue.get(timeout=40) == 1
    relative.join(40)
    assert relative.exitcode == 0
    relative.close()
    queue.close()


def test_a_signal_to_the_caller_is_an_exception_where_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, waits = str(tmp_path / "told"), str(tmp_path / "waits")
    context = started(tmp_path, targets.signal_parent_and_wait, [(told, waits, os.getpid())])
    pause = context._pause

    def say_and_pause(at_most_s: float) -> None:
        targets.tell(waits)
        pause(at_most_s)

    monkeypatch.setattr(context, "_pause", say_and_pause)
    with pytest.raises(SignalException, match=f"Process {os.getpid()} got signal") as caught:
        context.wait(60)
    assert caught.value.sigval == signal.SIGTERM
    context.close(caught.value.sigval)
    assert wait_dead(int(targets.read_when_told(told)))


def test_only_the_signals_that_were_asked_for_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGHUP)
    monkeypatch.setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM, SIGUSR9")
    finished(started(tmp_path, "true", [()]))
    assert signal.getsignal(signal.SIGHUP) == before
    assert signal.getsignal(signal.SIGTERM) != signal.SIG_DFL


def test_a_rank_that_is_left_out_is_refused_in_torch_s_words(tmp_path: Path) -> None:
    specs = DefaultLogsSpecs(str(tmp_path))
    with pytest.raises(RuntimeError, match=r"args, local rank mapping mismatch, expected: \{0\}, actual: \{1\}"):
        start_processes("t", "true", {1: ()}, {0: {}}, specs)
    with pytest.raises(RuntimeError, match="envs, local rank mapping mismatch"):
        start_processes("t", "true", {0: ()}, {}, specs)


def test_a_context_is_started_once(tmp_path: Path) -> None:
    context = started(tmp_path, targets.add, [(1, 2)])
    with pytest.raises(ValueError, match="Most likely the start method got called twice"):
        context._start()
    finished(context)


def test_a_context_of_somebody_else_is_asked_every_period(tmp_path: Path) -> None:
    class Asked(PContext):
        answers = 3

        def _start(self) -> None: ...

        def _poll(self) -> RunProcsResult | None:
            self.answers -= 1
            return RunProcsResult() if self.answers == 0 else None

        def pids(self) -> dict[int, int]:
            return {}

        def _close(self, death_sig: signal.Signals, timeout: int = 30) -> None: ...

    context = Asked("mine", "x", {0: ()}, {0: {}}, DefaultLogsSpecs(str(tmp_path)))
    assert context.wait(0) is None
    assert context.wait(period=0.001) == RunProcsResult()
    context.close()


@every_method
def test_rounds_leave_no_descriptor(tmp_path: Path, method: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    finished(started(tmp_path, targets.add, [(1, 2)], method=method))
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        finished(started(tmp_path, targets.add, [(1, 2), (3, 4)], method=method))
        finished(started(tmp_path, targets.broken, [("x",), ("y",)], method=method))
        finished(started(tmp_path, "true", [(), ()]))
    assert set(os.listdir("/proc/self/fd")) == before


def test_thirty_two_workers_all_answer(tmp_path: Path) -> None:
    result = finished(started(tmp_path, targets.same, [(rank,) for rank in range(32)], method="forkserver"))
    assert result.return_values == {rank: rank for rank in range(32)}


def test_who_made_the_numa_options_does_the_binding(tmp_path: Path) -> None:
    options = targets.NumaOptions()
    bound = finished(started(tmp_path, targets.add, [(1, 2), (3, 4)], method="spawn", numa_options=options))
    assert bound.return_values == {0: (0, 3), 1: (1, 7)}
    specs = DefaultLogsSpecs(str(tmp_path), redirects=Std.OUT)
    words = ("-c", "echo $BOUND")
    result = finished(started(tmp_path, "sh", [words, words], logs_specs=specs, numa_options=options))
    assert [Path(path).read_text() for path in result.stdouts.values()] == ["0\n", "1\n"]


def test_the_first_to_fail_is_told_as_the_first_also_within_a_second(tmp_path: Path) -> None:
    context = started(tmp_path, "sh", [("-c", "sleep 600"), ("-c", "exit 1"), ("-c", "sleep 600")])
    rank, failure = ChildFailedError("sh", finished(context).failures).get_first_failure()
    assert (rank, failure.exitcode) == (1, 1)
