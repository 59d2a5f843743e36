"""The state of a model under `fully_shard`, in real processes on the CPU: other worlds, damage, deaths while saving."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "real"))

from harness import Room

from planaria.worker.bundle import sealed

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
SCRIPT = """
import hashlib, warnings, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from planaria.worker import ShardedState
from planaria.worker.bundle import Bundles

DIRECTORY, UNTIL, DEATHS = sys.argv[1], int(sys.argv[2]), sys.argv[3].split(",")
drafts = []
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3))
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
fully_shard(model[0], mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
torch.manual_seed(10 + RANK)

def die(point):
    drafts.extend([point] if point == "draft" else [])
    if LIFE < len(DEATHS) and DEATHS[LIFE] == f"{RANK}:{point}" and len(drafts) >= 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if LIFE < len(DEATHS) and DEATHS[LIFE] == f"{RANK}:superseded at {point}" and len(drafts) >= 2:
        Bundles(DIRECTORY).begin()  # as the next life does, while this one sleeps here

bundles = Bundles(DIRECTORY, at=die)
state = ShardedState(bundles, model=model, optimizer=optimizer, scheduler=scheduler, step=0, note=["kept", 1])

def digest():
    total = hashlib.sha256()
    for parameter in model.parameters():
        total.update(parameter.full_tensor().detach().numpy().tobytes())
        for value in optimizer.state[parameter].values():
            value = value.full_tensor() if hasattr(value, "full_tensor") else value
            total.update(value.numpy().tobytes())
    total.update(model[1].num_batches_tracked.numpy().tobytes())
    return f"{total.hexdigest()} lr {optimizer.param_groups[0]['lr']} note {state.note}"

state.sync()
tell(f"began {state.step}")
tell(f"state {state.step} {digest() if state.step else ''}")
data = torch.randn(24, 5, generator=torch.Generator().manual_seed(3))
while state.step < UNTIL:
    share = data.chunk(dist.get_world_size())[RANK]
    model(share).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    scheduler.step()
    state.step += 1
    state.note = ["kept", state.step]
    state.commit()
    tell(f"state {state.step} {digest()}")
    with torch.no_grad():  # what is changed after a commit is not in it
        before = [parameter.detach().clone() for parameter in model.parameters()]
        for parameter in model.parameters():
            parameter.mul_(1000)
        for parameter, kept in zip(model.parameters(), before):
            parameter.copy_(kept)
assert state.settle()
dist.destroy_process_group()
"""


@pytest.fixture
def room() -> Iterator[Room]:
    found = Room()
    try:
        yield found
    finally:
        found.close()


def train(
    room: Room, until: int, *flags: str, world_size: int = 2, deaths: str = ""
) -> tuple[list[int], dict[int, set[str]]]:
    """Train up to a step; return where ranks began, life by life, and what the state was at each step."""
    job = room.start((f"--nproc-per-node={world_size}", *flags), SCRIPT, room.path("commits"), str(until), deaths)
    end = job.wait(200)
    assert end.status == 0, end.err
    heard = room.heard()
    room._told = b""
    states: dict[int, set[str]] = {}
    for line in heard:
        kind, step, *rest = line.split(" ", 2)
        if kind == "state" and rest:
            states.setdefault(int(step), set()).add(rest[0])
    return [int(line.split()[1]) for line in heard if line.startswith("began ")], states


def folders(room: Room) -> list[str]:
    """Return the commits; beside them there is the mark of the last life, and no draft in it."""
    found = sorted(os.listdir(room.path("commits")))
    (mark,) = (name for name in found if name.startswith("."))
    assert mark.startswith(".life-")
    assert os.listdir(os.path.join(room.path("commits"), mark)) == []
    return [name for name in found if name != mark]


def test_a_commit_is_read_bit_by_bit_in_worlds_of_other_sizes(room: Room) -> None:
    began, first = train(room, 3)
    assert began == [0, 0]
    assert all(len(found) == 1 for found in first.values()), "all ranks see the same whole"
    assert folders(room) == ["commit-0000000002", "commit-0000000003"]
    began, second = train(room, 4, world_size=1)
    assert began == [3]
    assert second[3] == first[3]
    assert train(room, 4, world_size=3) == ([4] * 3, {4: second[4]})


EARLY = "0:draft,1:rank-00001.tensors piece,1:rank-00001.values done"
LATE = "0:manifest.json piece,0:listed,0:named"


@pytest.mark.parametrize(("deaths", "steps_kept"), [(EARLY, (1, 1, 1)), (LATE, (1, 1, 2))])
def test_a_death_while_a_commit_is_written_costs_that_commit_at_most(
    room: Room, deaths: str, steps_kept: tuple[int, ...]
) -> None:
    """In each life but the last the second commit is the death of a rank: what the first one kept is there."""
    began, states = train(room, 7, "--max-restarts=3", deaths=deaths)
    expected = [sum(steps_kept[:life]) for life in range(4)]
    assert began == [step for step in expected for _ in range(2)]
    assert all(len(found) == 1 for found in states.values()), "each life makes of a step what the one before did"
    assert folders(room) == ["commit-0000000006", "commit-0000000007"], "drafts of the dead are removed"


def test_a_life_that_another_has_superseded_ends_on_all_ranks_and_the_next_goes_on(room: Room) -> None:
    began, states = train(room, 3, "--max-restarts=1", deaths="0:superseded at listed")
    assert began == [0, 0, 1, 1]
    assert all(len(found) == 1 for found in states.values())
    assert folders(room) == ["commit-0000000002", "commit-0000000003"]
    assert room.read("err").decode().count("no commit of this life counts any more: life 2 has begun") >= 2


def test_what_is_damaged_or_not_whole_is_passed_over(room: Room) -> None:
    _, states = train(room, 3)
    commits = Path(room.path("commits"))
    newest = commits / "commit-0000000003"
    for number, damage in enumerate((flip, cut, unlist, lie), start=4):
        copy = commits / f"commit-{number:010d}"
        shutil.copytree(newest, copy)
        manifest = json.loads((copy / "manifest.json").read_text().splitlines()[0])
        (copy / "manifest.json").write_bytes(sealed({**manifest, "generation": number}))
        damage(copy)
    (commits / "commit-0000000009").mkdir()
    (commits / "notes").mkdir()
    began, again = train(room, 3)
    assert began == [3, 3]
    assert again == {3: states[3]}
    assert "passed over commit-0000000009" in room.read("err").decode()
    assert "passed over commit-0000000004: rank-00001.tensors is damaged" in room.read("err").decode()


def flip(commit: Path) -> None:
    file = commit / "rank-00001.tensors"
    content = bytearray(file.read_bytes())
    content[17] ^= 4
    file.write_bytes(content)


def cut(commit: Path) -> None:
    os.truncate(commit / "rank-00000.tensors", 20)


def unlist(commit: Path) -> None:
    (commit / "manifest.json").unlink()


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("kill -9 $PPID",)


def lie(commit: Path) -> None:
    """Put a pickle where something reads: nobody unpickles it."""
    for name in ("manifest.json", ".metadata", "rank-00000.values"):
        (commit / name).write_bytes(pickle.dumps(Bomb()))


REFUSALS = """
import torch, traceback
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, distribute_tensor
from planaria.errors import StateRefused
from planaria.worker import ShardedState, sharded

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 4, bias=False)
mesh = init_device_mesh("cpu", (2,))
fully_shard(model, mesh=mesh)
model.register_buffer("scale", distribute_tensor(torch.tensor(0.0), mesh, [Replicate()]))  # as tensor parallel programs have
state = ShardedState(sys.argv[1], model=model, step=0, extra=None)
copied = sharded.copied

def fail(_tensors):
    raise MemoryError("no room")

def fill(value):
    with torch.no_grad():
        model.weight.to_local().fill_(value)
        model.scale.to_local().fill_(value)

def commit(step, extra=None, copy=copied):
    fill(float(step))
    state.step, state.extra = step, extra
    sharded.copied = copy
    try:
        state.commit()
    except (StateRefused, MemoryError) as problem:
        tell(f"{RANK} step {step}: {str(problem).partition(' (')[0]}")
    fill(-1.0)  # while it is written

commit(1)
commit(2, (lambda: 0) if RANK == 1 else None)
commit(3)
commit(4, copy=fail if RANK == 0 else copied)
commit(5 + RANK)
commit(7)
assert state.settle()
state.step = 0
stamp = state.restore()
weights = {float(one) for one in (*model.weight.full_tensor().flatten(), model.scale.to_local())}
tell(f"{RANK} restored {stamp.step} of {stamp.generation}: step {state.step}, weights {weights}")
dist.destroy_process_group()
"""


def test_a_commit_that_one_rank_cannot_make_is_refused_on_all_and_the_next_is_whole(room: Room) -> None:
    end = room.start(("--nproc-per-node=2",), REFUSALS, room.path("commits")).wait(200)
    assert end.status == 0, end.err
    function = "extra cannot be kept: it is a builtins.function"
    assert sorted(room.heard()) == [
        "0 restored 7 of 3: step 7, weights {7.0}",
        "0 step 2: rank 1 cannot make this commit, so no rank does",
        "0 step 4: no room",
        "0 step 5: rank 0 makes commit 3 of step 5, and rank 1 commit 3 of step 6, so neither is kept",
        "1 restored 7 of 3: step 7, weights {7.0}",
        f"1 step 2: {function}",
        "1 step 4: rank 0 cannot make this commit, so no rank does",
        "1 step 6: rank 1 makes commit 3 of step 6, and rank 0 commit 3 of step 5, so neither is kept",
    ]
