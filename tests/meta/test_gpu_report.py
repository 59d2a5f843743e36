"""What bench/gpu.py tells of a machine with a GPU, seen without one: no kill and no check is left out."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import bench_modules
import pytest
from bench_modules import BENCH


class Program(NamedTuple):
    gpu: Any
    lives: Any
    rows: Any
    compare: Any


@pytest.fixture(scope="module")
def program() -> Program:
    return Program(*bench_modules.load("gpu", "harness.gpu_lives", "rows.gpu", "compare"))


# A launcher whose worker is a process that waits. It comes back from as many kills as it is told, and then gives up.
LAUNCHER = """
import subprocess, sys, time

def tell(word, worker, number):
    print("@", word, worker.pid, time.monotonic_ns(), number, flush=True)

for life in range(int(sys.argv[1]) + 1):
    worker = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    for word in ("begin", "restored", "stepped") if life else ():
        tell(word, worker, 3)
    for step in (1, 2, 3):
        tell("kept", worker, step)
    worker.wait()
worker = subprocess.Popen([sys.executable, "-c", ""])
tell("begin", worker, 0)
worker.wait()
"""


@pytest.fixture(autouse=True)
def _no_torch(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for its version takes seconds."""
    monkeypatch.setattr(program.gpu, "VERSIONS", "print('none')")


@pytest.fixture
def argv(program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    monkeypatch.setattr(program.lives, "PAUSE_S", 0.0)
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    return [sys.executable, str(tmp_path / "launcher.py")]


def test_a_kill_that_no_step_follows_is_among_the_kills_as_far_as_it_came(program: Program, argv: list[str]) -> None:
    found = program.lives.lives([*argv, "2"], 5)
    assert [program.lives.has_stepped(one) for one in found] == [True, True, False]
    assert found[-1].keys() == {"begin", "stood by"}


def test_kills_end_when_there_were_enough(program: Program, argv: list[str]) -> None:
    assert [*map(program.lives.has_stepped, program.lives.lives([*argv, "9"], 2))] == [True, True]


def test_a_row_with_a_kill_that_no_step_follows_is_a_failed_round_that_says_so(
    program: Program, argv: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(program.rows, "lives", lambda _argv, kills: program.lives.lives([*argv, "1"], kills))
    settings = SimpleNamespace(tiny=True, scratch=str(tmp_path), kills_per_launch=3, scripts=BENCH / "scripts")
    monkeypatch.setattr(program.rows, "script", lambda _settings, name: name)
    launcher = SimpleNamespace(name="torchrun", command=("torchrun",))
    with pytest.raises(program.rows.MeasurementError, match=r"^1 of 3 kills came to a step, 1 did not$"):
        program.rows._kill("join", launcher, settings)


def test_the_table_of_kills_counts_all_and_tells_how_many_no_step_followed(program: Program) -> None:
    kills = [{"begin": 0.1, "stepped": 0.5}, {"begin": 0.3}, {"begin": 0.2, "stepped": 0.7}]
    text = program.gpu.recovery_text({"torchrun, checkpoint on disk": kills, "planaria, standbys, join()": kills[:1]})
    header, line, *rows = text.splitlines()[-4:]
    assert header.startswith("| way | n | no step | begin |")
    assert header.count("|") == line.count("|") == rows[0].count("|")
    assert rows[0].startswith("| torchrun, checkpoint on disk | 3 | 1 | 0.200 (0.100 - 0.300) |")
    assert "| 0.600 (0.500 - 0.700) |" in rows[0]
    assert rows[1].startswith("| planaria, standbys, join() | 1 | 0 |")


def test_a_turn_whose_kill_no_step_follows_is_a_turn_that_counts(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    turns: list[int] = []

    def one_turn(_way: Any, _size: str, _device: list[str], kills: int, _until: float) -> list[dict[str, float]]:
        turns.append(kills)
        return [{"begin": 0.1}]

    monkeypatch.setattr(program.gpu, "_turn_of", one_turn)
    found = [SimpleNamespace(name="torchrun", command=("torchrun",))]
    program.gpu.recovery(tmp_path, Namespace(tiny=True, minutes=0.0, only=None, rounds=4, at_a_time=3, found=found))
    assert turns == [3, 3, 2, 1]
    assert "| torchrun, checkpoint on disk | 4 | 4 |" in (tmp_path / "gpu-recovery.md").read_text()


def test_the_page_of_comparisons_tells_of_kills_without_a_step(program: Program) -> None:
    assert program.compare._kills([{"stepped": 0.5}, {"begin": 0.1}]) == "0.500, n=1; no step after 1 of 2 kills"
    assert program.compare._kills([{"stepped": 0.5}]) == "0.500, n=1"


@pytest.mark.parametrize(
    ("said", "status", "lines"),
    [
        ("gpu check: all 18 are right\n", 0, ["all 18 are right"]),
        (
            "gpu check: sums is wrong\nTraceback\ngpu check: 1 of 18 are wrong\n",
            1,
            ["sums is wrong", "1 of 18 are wrong"],
        ),
        ("ImportError: torch\n", 1, ["ended with status 1 before its last word"]),
        (
            "gpu check: sums is wrong\nKilled\n",
            -9,
            ["sums is wrong", "ended with status -9 before its last word"],
        ),
        (
            "gpu check: all 18 are right\n",
            -11,
            ["all 18 are right", "ended with status -11 before its last word"],
        ),
    ],
)
def test_a_check_is_told_by_its_own_words_and_one_without_a_last_word_has_failed(
    program: Program, said: str, status: int, lines: list[str]
) -> None:
    assert program.gpu.check_lines(said, status) == lines


def test_the_check_is_a_part_of_the_report_and_of_its_numbers(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(program.gpu, "checked", lambda: ["sums is wrong", "1 of 18 are wrong"])
    ours = SimpleNamespace(name=program.gpu.OURS, command=(sys.executable, "-c", ""))
    program.gpu.commits(tmp_path, Namespace(tiny=False, only=["1.6GB"], found=[ours]))
    assert (
        "(`bench/scripts/gpu_check.py`): sums is wrong; 1 of 18 are wrong.\n"
        in (tmp_path / "gpu-commits.md").read_text()
    )
    assert json.loads((tmp_path / "gpu-commits.json").read_text())["checks"] == ["sums is wrong", "1 of 18 are wrong"]
