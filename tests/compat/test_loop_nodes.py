"""`train_loop` in a job of two nodes: one joins in mid-epoch and is drained again, and no step is made twice or left out."""

from __future__ import annotations

import itertools
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "real"))

from harness import Room, wait_until
from ports import free_port
from trained import EXAMPLES, LIMIT_S, blocks

if TYPE_CHECKING:
    from harness import Launcher

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
WORDS = ("--epochs=1000", "--batch-size=4", "--samples=96", "--width=4", "--image-size=8", "--print-freq=1")
STEP = re.compile(r"^Epoch: \[(\d+)\]\[ *(\d+)/", re.MULTILINE)


class Node:
    """One launcher of the job, its lines in files of its own."""

    def __init__(self, room: Room, name: str, endpoint: str) -> None:
        self._room, self._name = room, name
        flags = (
            "--nnodes=1:2",
            "--nproc-per-node=1",
            "--rdzv-backend=c10d",
            f"--rdzv-endpoint={endpoint}",
            "--rdzv-id=j",
        )
        command = [*flags, "--max-restarts=0", str(EXAMPLES / "imagenet/main.py"), *WORDS]
        with open(room.path(f"out.{name}"), "wb") as out, open(room.path(f"err.{name}"), "wb") as err:
            self.launcher: Launcher = room.start_command(command, env={"OMP_NUM_THREADS": "1"}, stdout=out, stderr=err)

    def err(self) -> str:
        return self._room.read(f"err.{self._name}").decode()

    def steps(self) -> list[tuple[int, int]]:
        """Return the epoch and the number of each step that was printed, in order."""
        return [
            (int(epoch), int(batch)) for epoch, batch in STEP.findall(self._room.read(f"out.{self._name}").decode())
        ]

    def wait_synced(self, count: int) -> dict[str, str]:
        """Wait for so many lives; return where the last one went on."""
        return wait_until(lambda: len(found := blocks(self.err())) >= count and found, f"life {count}", LIMIT_S)[-1][1]

    def wait_steps(self, more: int) -> None:
        wanted = len(self.steps()) + more
        wait_until(lambda: len(self.steps()) >= wanted, f"{more} more steps", LIMIT_S)


def test_a_node_that_joins_and_one_that_is_drained_cost_no_step() -> None:
    room = Room()
    endpoint = f"127.0.0.1:{free_port()}"
    try:
        first = Node(room, "a", endpoint)
        first.wait_steps(5)
        second = Node(room, "b", endpoint)
        joined, same = first.wait_synced(2), second.wait_synced(1)
        assert joined == same
        assert "committed and stops: the world changes (node" in first.err()
        second.wait_steps(3)
        second.launcher.signal(signal.SIGTERM)
        left = first.wait_synced(3)
        assert second.launcher.process.wait(LIMIT_S) == 128 + signal.SIGTERM
        assert "committed and stops: this node drains (SIGTERM)" in second.err()
        first.wait_steps(2)
        first.launcher.signal(signal.SIGTERM)
        assert first.launcher.process.wait(LIMIT_S) == 128 + signal.SIGTERM
        made = first.steps()
        assert len({*made}) == len(made), "no step was made twice"
        for before, after in itertools.pairwise(made):
            assert after in ((before[0], before[1] + 1), (before[0] + 1, 0)), "none was left out"
        assert int(joined["iteration"]) < int(left["iteration"]) < len(made)
        room.assert_deserted()
    finally:
        room.close()
