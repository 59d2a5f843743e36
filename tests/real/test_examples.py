from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import NamedTuple

import pytest
from programs import clean_environment, hide_torch

ROOT = Path(__file__).parents[2]
MARK = "PLANARIA_TEST_MARK"


class Ran(NamedTuple):
    status: int
    stdout: str
    stderr: str
    left_files: list[str]
    left_processes: list[int]


def run(tmp_path: Path, *words: str, **variables: str) -> Ran:
    """Run `planaria run` in the repository with a temporary folder of its own, and look what it leaves."""
    temporary = tmp_path / "t"
    temporary.mkdir()
    mark = uuid.uuid4().hex
    ended = subprocess.run(
        [sys.executable, "-m", "planaria", "run", "--standalone", "--nproc-per-node=2", *words],
        cwd=ROOT,
        env=clean_environment(TMPDIR=str(temporary), OMP_NUM_THREADS="1", **{MARK: mark}, **variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    left = [str(path.relative_to(temporary)) for path in temporary.rglob("*")]
    return Ran(ended.returncode, ended.stdout, ended.stderr, left, marked_processes(mark))


def marked_processes(mark: str) -> list[int]:
    """Return every living process that inherited our mark."""
    needle = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                if needle in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:  # gone meanwhile, or somebody else's
                continue
    return found


def assert_left_nothing(ran: Ran) -> None:
    assert ran.left_files == []
    assert ran.left_processes == []


def banner(rank: int) -> str:
    """Return the pattern of one worker's banner, line by line as the first example of torchelastic printed it."""
    return (
        rf"={{54}}\nEnvironment variables set by the agent on PID (?P<pid{rank}>\d+):\n"
        rf"{{'GROUP_RANK': '0',\n 'LOCAL_RANK': '{rank}',\n 'MASTER_ADDR': '[^']+',\n 'MASTER_PORT': '\d+',\n"
        rf" 'RANK': '{rank}',\n 'TORCHELASTIC_MAX_RESTARTS': '0',\n 'TORCHELASTIC_RESTART_COUNT': '0',\n"
        rf" 'WORLD_SIZE': '2'}}\n={{54}}\n\n"
    )


def assert_echoed(ran: Ran, said: str) -> None:
    assert ran.status == 0, ran.stderr
    assert_left_nothing(ran)
    for rank in (0, 1):
        shown = re.search(banner(rank), ran.stdout)
        assert shown, ran.stdout
        assert f"On PID {shown[f'pid{rank}']}, {said}, rank={rank}, world_size = 2\n\n" in ran.stdout


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="forms a real process group")
def test_echo_prints_its_environment_and_forms_a_process_group(tmp_path: Path) -> None:
    assert_echoed(run(tmp_path, "examples/echo.py"), "after init process group")


def test_echo_says_so_when_torch_is_missing(tmp_path: Path) -> None:
    ran = run(tmp_path, "examples/echo.py", PYTHONPATH=hide_torch(tmp_path / "without-torch"))
    assert_echoed(ran, "torch is not installed: no process group")


def test_the_crash_example_recovers_from_its_checkpoint_and_finishes(tmp_path: Path) -> None:
    ran = run(tmp_path, "--max-restarts=3", "examples/crash_and_recover.py")
    assert ran.status == 0, ran.stderr
    assert_left_nothing(ran)
    assert "rank 1: in step 11 I die by SIGKILL" in ran.stdout
    for rank in (0, 1):
        assert f"rank {rank}: life 2 begins because rank 1 failed; step 10 is safe" in ran.stdout
    assert ran.stdout.endswith("rank 0: finished: 20 steps in 2 lives; sum 210, without a crash it is 210\n")
    assert "SIGKILL (Killed), not sent by planaria" in ran.stderr
    assert "starting all workers again (restart 1 of 3)" in ran.stderr


def test_the_crash_example_keeps_a_folder_it_was_given(tmp_path: Path) -> None:
    ran = run(tmp_path, "--max-restarts=1", "examples/crash_and_recover.py", str(tmp_path / "kept"))
    assert ran.status == 0, ran.stderr
    assert_left_nothing(ran)
    assert (tmp_path / "kept" / "checkpoint.json").read_text() == '{"step": 20, "sum": 210}'


@pytest.mark.parametrize("name", ["echo.py", "crash_and_recover.py"])
def test_an_example_started_by_hand_says_how_to_start_it(name: str) -> None:
    clean = {key: value for key, value in os.environ.items() if key != "RANK"}
    ended = subprocess.run(
        [sys.executable, f"examples/{name}"],
        cwd=ROOT,
        env=clean,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("start me with: planaria run --standalone --nproc-per-node=2")
