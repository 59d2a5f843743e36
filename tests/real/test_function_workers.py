"""Programs that start functions in workers: their main modules, their threads, their death."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import call_targets as targets
from programs import end_marked, hide_torch
from waiting import wait_dead

METHODS = ("spawn", "fork", "forkserver")
HEAD = """
import os, signal, sys, threading
from planaria.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std, start_processes

FOLDER = os.path.dirname(os.path.abspath(__file__))

def begin(function, count, method, **more):
    args = {rank: (rank,) for rank in range(count)}
    envs = {rank: {"MINE": str(rank)} for rank in range(count)}
    specs = DefaultLogsSpecs(FOLDER + "/logs", **more)
    return start_processes("f", function, args, envs, specs, start_method=method)

def tell(name, text):
    with open(f"{FOLDER}/{name}.new", "w") as file:
        file.write(str(text))
    os.rename(f"{FOLDER}/{name}.new", f"{FOLDER}/{name}")
"""

MAIN = (
    HEAD
    + """
SEEN_AT_IMPORT = os.environ.get("MINE")  # a worker's own variables are there before the main module is

class Mine:
    def __init__(self, rank):
        self.rank = rank

def work(rank):
    return Mine(rank), SEEN_AT_IMPORT

if __name__ == "__main__":
    values = begin(work, 2, sys.argv[1]).wait(60).return_values
    print({rank: (value.rank, seen) for rank, (value, seen) in values.items()})
"""
)


def run(folder: Path, program: str, *words: str, as_module: bool = False) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    how = ["-m", "program"] if as_module else ["program.py"]
    return subprocess.run(
        [sys.executable, *how, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=100
    )


@pytest.mark.parametrize("as_module", [False, True], ids=["script", "module"])
@pytest.mark.parametrize("method", METHODS)
def test_functions_and_classes_of_the_main_module_work(tmp_path: Path, method: str, as_module: bool) -> None:
    done = run(tmp_path, MAIN, method, as_module=as_module)
    seen = (None, None) if method == "fork" else ("0", "1")
    assert done.stdout == f"{ {0: (0, seen[0]), 1: (1, seen[1])} }\n", done.stderr


def test_a_main_module_that_fails_in_the_worker_is_told_with_its_traceback(tmp_path: Path) -> None:
    program = HEAD + (
        "if __name__ != '__main__': raise ImportError('not in a worker')\n"
        "def work(rank): pass\n"
        "failure = begin(work, 1, sys.argv[1]).wait(60).failures[0]\n"
        "print(failure.exitcode, failure.message['message'])\n"
        "print('not in a worker' in failure.message['extraInfo']['py_callstack'])\n"
    )
    for method in ("spawn", "forkserver"):
        done = run(tmp_path, program, method)
        assert done.stdout == "1 ImportError: not in a worker\nTrue\n", done.stderr


WAITING = (
    HEAD
    + """
def work(rank):
    tell(f"pid{rank}", os.getpid())
    while True:
        signal.pause()

if __name__ == "__main__":
    method, kind = sys.argv[1:]
    if kind == "thread":
        found = []
        thread = threading.Thread(target=lambda: found.append(begin(work, 2, method)))
        thread.start()
        thread.join()
        context = found[0]
    else:
        context = begin(work, 2, method)
    try:
        tell("begun", "yes")
        context.wait()
    except SignalException as asked:
        tell("asked", asked.sigval.name)
        context.close(asked.sigval)
        sys.exit(3)
"""
)


@contextlib.contextmanager
def waiting_caller(
    folder: Path, method: str, kind: str = "main"
) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """Start a caller and its two workers; give it and their pids, and end what is left of them."""
    (folder / "program.py").write_text(WAITING)
    with (folder / "stderr").open("wb") as stderr:
        caller = subprocess.Popen(
            [sys.executable, "program.py", method, kind],
            cwd=folder,
            env={**os.environ, "FOLDER": str(folder)},  # the workers have it too, and are found by it
            stderr=stderr,
        )
    try:
        targets.read_when_told(str(folder / "begun"))
        yield caller, [int(targets.read_when_told(str(folder / f"pid{rank}"))) for rank in (0, 1)]
    finally:
        caller.kill()
        caller.wait()
        end_marked(str(folder))


@pytest.mark.parametrize("kind", ["main", "thread"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_workers_do_not_outlive_a_caller_that_is_killed(tmp_path: Path, method: str, kind: str) -> None:
    with waiting_caller(tmp_path, method, kind) as (caller, pids):
        caller.kill()
        caller.wait()
        assert [wait_dead(pid) for pid in pids] == [True, True]


@pytest.mark.parametrize("method", METHODS)
def test_a_caller_that_is_asked_to_end_can_end_its_workers(tmp_path: Path, method: str) -> None:
    with waiting_caller(tmp_path, method) as (caller, pids):
        caller.send_signal(signal.SIGTERM)
        assert caller.wait(60) == 3, (tmp_path / "stderr").read_text()
        assert targets.read_when_told(str(tmp_path / "asked")) == "SIGTERM"
        assert [wait_dead(pid) for pid in pids] == [True, True]


def test_a_caller_that_is_busy_still_shows_what_its_workers_say(tmp_path: Path) -> None:
    program = HEAD + (
        "def work(rank):\n"
        "    print('x' * 100_000)\n"
        "    for _ in range(50): print('y' * 100_000)\n"  # far more than a pipe holds, and nobody waits
        "    print('all said')\n"
        "    open(FOLDER + '/said', 'w').close()\n"
        "if __name__ == '__main__':\n"
        "    os.mkfifo(FOLDER + '/said')\n"
        "    context = begin(work, 1, 'spawn', tee=Std.OUT)\n"
        "    open(FOLDER + '/said').close()\n"  # it opens when the worker does
        "    context.wait()\n"
    )
    done = run(tmp_path, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[f0]:all said"
    assert len(done.stdout.splitlines()) == 52


def test_an_interpreter_without_torch_is_enough(tmp_path: Path) -> None:
    hide_torch(tmp_path)
    done = run(tmp_path, MAIN, "spawn")
    assert done.returncode == 0, done.stderr
    assert os.path.exists(tmp_path / "logs")
