"""A drain of a job whose ranks write their commits by themselves: the agent is told, and its exit status says what is safe."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "real"))

from harness import Room
from probes import door, needs_curl, planaria, status

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("torch")
LIFE_S = 120.0  # for two ranks to import torch and train three steps, on two cores that others use too
pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]
# Each step is followed by a commit. In the fourth the drain comes, and the folder may be lost; or all ranks die in it, and the
# next life waits before it restores.
SCRIPT = """
if LIFE:
    tell(f"pause {RANK}")
    wait_forever()
import shutil, time, torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from planaria.worker import ShardedState, train_loop
from planaria.worker.link import LINK

torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(1)
model = torch.nn.Linear(4, 4)
fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
state = ShardedState(sys.argv[1], model=model, optimizer=torch.optim.AdamW(model.parameters()), step=0)

def step(state):
    if state.step == 6:
        raise StopIteration
    if state.step == 3:
        state.settle()
        dist.barrier()
        if "again" in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
        tell(f"pause {RANK}")
        while LINK.drain() is None:
            time.sleep(0.01)  # as a step that goes on
        if "lose" in sys.argv and RANK == 0:
            shutil.rmtree(sys.argv[1])
            open(sys.argv[1], "w").close()
        dist.barrier()
    model(torch.ones(1, 4)).sum().backward()
    state.optimizer.step()
    state.optimizer.zero_grad()

try:
    train_loop(state, step)  # which ends the process when the node drains
finally:
    if "two" in sys.argv:
        other = ShardedState(sys.argv[1] + "-other", model=model, step=0)
        tell(f"other {other.commit(wait='disk').reached}")
dist.destroy_process_group()
"""


@pytest.fixture
def room() -> Iterator[Room]:
    found = Room()
    try:
        yield found
    finally:
        found.close()


def drained(room: Room, *words: str) -> tuple[int, str, dict[str, Any]]:
    """Drain a job in its fourth step; return its exit status, what it said, and its newest commits before that."""
    job = room.start(
        ("--nproc-per-node=2", "--max-restarts=1", "--shutdown-timeout=120"), SCRIPT, room.path("commits"), *words
    )
    room.hear_many(["pause 0", "pause 1"], LIFE_S)
    newest = status(door(room))["newest_commit"]
    assert planaria(room, "drain", f"--pid={job.pid}", "--no-wait").returncode == 0
    end = job.wait(200)
    return end.status, end.err, newest


@needs_curl
def test_a_drain_whose_last_commit_is_on_disk_has_the_status_that_says_so(room: Room) -> None:
    code, said, newest = drained(room)
    assert code == 75, said
    assert said.count("this rank has committed and stops: this node drains") == 2, said
    assert (newest["node"], newest["buddy"], newest["disk"]["step"], newest["disk"]["generation"]) == (None, None, 3, 3)
    last = max(name for name in os.listdir(room.path("commits")) if not name.startswith("."))
    with open(os.path.join(room.path("commits"), last, "manifest.json")) as file:
        assert json.loads(file.readline())["step"] in (4, 5), "ranks agree on a step to stop at: this one, or the next"


@needs_curl
@pytest.mark.parametrize("words", [["lose"], ["lose", "two"]], ids=["alone", "beside one that is"])
def test_a_drain_whose_last_commit_could_not_be_written_does_not_say_that_it_was(room: Room, words: list[str]) -> None:
    code, said, newest = drained(room, *words)
    assert code == 143, said
    if "two" in words:
        room.hear_many(["other disk"] * 2)
    assert "is not on disk" in said
    assert newest["disk"]["step"] == 3


@needs_curl
def test_a_drain_of_a_life_that_has_not_restored_yet_loses_nothing_and_says_so(room: Room) -> None:
    code, said, newest = drained(room, "again")
    assert code == 75, said
    assert newest["disk"]["step"] == 3
