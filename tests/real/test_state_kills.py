"""Real processes that die by SIGKILL while they commit or persist; what they had completed is always there, whole.

`PLANARIA_TEST_STATE_KILLS` says how many deaths in a row: 25 by default, 1,000 in a nightly run.
"""

from __future__ import annotations

import importlib.util
import mmap
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from snapshot_maker import generation_of

from planaria.archive.shelf import Shelf
from planaria.contract import snapshot as snapshots

KILLS = int(os.environ.get("PLANARIA_TEST_STATE_KILLS", "25"))
SEED = int(os.environ.get("PLANARIA_TEST_SEED", "3"))
TIMEOUT_S = 100
SUPPORT = Path(__file__).parents[1] / "support"
needs_numpy = pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="the arrays are NumPy's")
pytestmark = pytest.mark.timeout(TIMEOUT_S + 10 * KILLS)


def ended(*command: object, fds: tuple[int, ...] = ()) -> tuple[int, list[str]]:
    """Run a program of `tests/support` to its end; return its status and what it told."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        pass_fds=fds,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


def newest_on_disk(directory: Path) -> int:
    found = Shelf(str(directory)).newest()
    if found is None:
        return 0
    (generation,) = {generation_of(*one) for one in found.opened.values()}
    return generation


def points(told: list[str]) -> int:
    return int(told[-1].removeprefix("points "))


def test_a_writer_killed_at_any_point_leaves_the_newest_complete_commit(tmp_path: Path) -> None:
    """Every point of a commit that replaces another: before, within and after each file, manifest and removal."""
    script = SUPPORT / "commit_writer.py"
    status, told = ended(script, tmp_path / "whole", 1, 1, 2, 0)
    assert status == 0
    before = points(ended(script, tmp_path / "one", 1, 1, 1, 0)[1])
    assert points(told) - before > 12
    for die_at in range(before + 1, points(told) + 1):
        directory = tmp_path / str(die_at)
        status, told = ended(script, directory, 1, 1, 2, die_at)
        assert status == -signal.SIGKILL
        assert told in (["1"], ["1", "2"])
        found = newest_on_disk(directory)
        assert found >= int(told[-1]), die_at
        status, told = ended(script, directory, 2, found + 1, found + 2, 0)  # and the next life goes on
        assert status == 0, die_at
        assert newest_on_disk(directory) == found + 2
        assert not [*directory.rglob("*.tmp")]


def test_writers_killed_at_random_bytes_one_after_the_other_never_go_back(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    newest = 0
    for life in range(KILLS):
        status, told = ended(SUPPORT / "commit_writer.py", tmp_path, life, newest + 1, newest + 3, rng.randrange(1, 75))
        assert status in (0, -signal.SIGKILL)
        found = newest_on_disk(tmp_path)
        assert found >= max([newest, *(int(line) for line in told if line.isdigit())])
        newest = found
    assert newest > KILLS / 2


class Memory:
    """Two slots of anonymous memory that outlive the processes which write into them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.fds = tuple(os.memfd_create(f"slot{number}") for number in range(2))
        for fd in self.fds:
            os.ftruncate(fd, 3 * size + (1 << 20))
        self.slots = [memoryview(mmap.mmap(fd, 0)) for fd in self.fds]

    def command(self, die_at: int = 0) -> list[str]:
        return [sys.executable, str(SUPPORT / "committer.py"), *map(str, (*self.fds, self.size, die_at))]

    def newest(self) -> int:
        """Return the newest commit after having compared every byte of it."""
        found = snapshots.newest(self.slots)
        if found is None:
            return 0
        number, snapshot = found
        generation = snapshot.stamp.generation
        for tensor in snapshot.tensors:
            if tensor.name.startswith("piece"):
                value = (generation + int(tensor.name[-1])) % 251
                wanted = bytes([value]) * tensor.length
                assert self.slots[number][tensor.offset : tensor.offset + tensor.length] == wanted
        assert snapshot.stamp.step == generation
        return generation

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)


@needs_numpy
@pytest.mark.parametrize("size", [5000, 1 << 20], ids=["sealed at once", "sealed in a thread"])
def test_a_worker_killed_at_any_point_of_a_commit_leaves_the_one_before(size: int) -> None:
    memory = Memory(size)
    status, told = ended(*memory.command()[1:-1], 10**6, fds=memory.fds)
    assert status == 0
    per_commit = points(told) // 4
    memory.close()
    assert per_commit >= 12
    for die_at in range(2 * per_commit + 1, 3 * per_commit + 1, 1 if size == 5000 or KILLS > 25 else 3):
        memory = Memory(size)
        status, told = ended(*memory.command()[1:-1], die_at, fds=memory.fds)
        assert status == -signal.SIGKILL
        assert told == ["restored 0", "1", "2"]
        assert memory.newest() in (2, 3)
        status, told = ended(*memory.command()[1:-1], 10**6, fds=memory.fds)
        assert told[0] in ("restored 2", "restored 3")
        assert memory.newest() == int(told[0][-1]) + 4
        memory.close()


@needs_numpy
def test_workers_killed_at_random_one_after_the_other_never_go_back() -> None:
    rng = random.Random(SEED)
    memory = Memory(1 << 18)
    newest = 0
    for _ in range(KILLS):
        with subprocess.Popen(memory.command(), stdout=subprocess.PIPE, text=True, pass_fds=memory.fds) as process:
            assert process.stdout
            assert process.stdout.readline() == f"restored {newest}\n"
            told = [int(process.stdout.readline()) for _ in range(rng.randrange(1, 5))]
            deadline = time.monotonic() + rng.random() * 0.002
            while time.monotonic() < deadline:
                pass
            process.kill()
            told += [int(line) for line in process.stdout.read().split("\n")[:-1]]
        found = memory.newest()
        assert found >= told[-1]
        assert found <= told[-1] + 1
        newest = found
    memory.close()
