"""Workers that die by SIGKILL at points of a commit that flies, and of a restore onto a device, one after the other.

The device is made of the CPU (`fake_device.py`), the memory outlives the workers. Points are calls and returns of all functions
that such commits go through, as an undisturbed life passes them. With PLANARIA_TEST_STATE_KILLS above 25, as at night, somebody
dies at each of them; by day at every third of what only a device has, and at every 24th of the others.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import mortal
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("torch")
TRIES = 3  # of a point, until somebody dies there
IS_NIGHT = int(os.environ.get("PLANARIA_TEST_STATE_KILLS", "25")) > 25
SUPPORT = Path(__file__).parents[1] / "support"
KINDS = ("begin", "fly")
SLOT_BYTES = 4 << 20
ONLY_OF_A_DEVICE = ("worker/flight.py", "worker/runway.py", "worker/upload.py")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(1800 if IS_NIGHT else 300)]


class Lives:
    """Workers one after the other, and what they told."""

    def __init__(self, place: str) -> None:
        self._place = place
        fds = [os.memfd_create(f"slot{number}") for number in range(2)]
        for fd in fds:
            os.ftruncate(fd, SLOT_BYTES)
        command = [sys.executable, str(SUPPORT / "flying.py"), *map(str, fds), place]
        self._parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=fds)
        for fd in fds:
            os.close(fd)
        self._digests: dict[int, str] = {}
        self._made = 0
        self._kept = 0

    def one(self, order: str = "") -> int:
        """Let one live, and die if it is told to; return its status. What it goes on from is what was promised, and whole."""
        assert self._parent.stdin
        assert self._parent.stdout
        print(order, file=self._parent.stdin, flush=True)
        for line in self._parent.stdout:
            word, number, *digest = line.split()
            if word == "over":
                return int(number)
            if word == "restored":
                assert self._kept <= int(number) <= self._made, f"{order}: {line}"
            if digest:  # the same whenever it is computed, and what was restored is what was computed
                assert self._digests.setdefault(int(number), *digest) == digest[0], f"{order}: {line}"
            if word == "step":
                self._made = int(number)
            if word in ("kept", "restored"):
                self._kept = int(number)
        raise AssertionError("the parent has ended")

    def points(self) -> set[str]:
        """Return what was passed since this was asked for the last time."""
        found = set()
        for kind in KINDS:
            found |= {f"{kind} {point}" for point in mortal.points(f"{self._place}.{kind}")}
            os.unlink(f"{self._place}.{kind}.points")
        return found

    def close(self) -> None:
        self._parent.kill()
        self._parent.communicate()


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    found = Lives(str(tmp_path / "mortal"))
    yield found
    found.close()


def is_chosen(number: int, point: str) -> bool:
    return IS_NIGHT or number % (3 if point.split()[1] in ONLY_OF_A_DEVICE else 24) == 0


def test_a_worker_killed_at_any_point_of_a_flight_or_a_restore_leaves_the_newest_commit(lives: Lives) -> None:
    assert lives.one() == 0
    lives.points()  # the first life has nothing to restore
    passed = []
    for _ in range(2):
        assert lives.one() == 0
        passed.append(lives.points())
    known = sorted(passed[0] & passed[1])
    assert {point.split()[1] for point in known} >= {*ONLY_OF_A_DEVICE, "worker/state.py", "contract/snapshot.py"}
    chosen = [point for number, point in enumerate(known) if is_chosen(number, point)]
    spared = [point for point in chosen if not any(lives.one(point) == -signal.SIGKILL for _ in range(TRIES))]
    # Some points are passed only by a life whose program is ahead of its copies (`Pad.name`): one that is not lives on.
    assert len(spared) <= len(chosen) // 10, spared
    assert lives.one() == 0
