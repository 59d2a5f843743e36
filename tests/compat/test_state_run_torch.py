"""A model under DDP, trained by `planaria run`, whose workers are killed: it ends as if nobody had been."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "real"))

from harness import Room

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]
PATIENCE_S = 200  # three lives of torch with two workers, on a machine that has other things to do
STEPS = 10
TRAIN = """
import hashlib, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from planaria.worker import ElasticState
from planaria.worker.data import ElasticSampler

STEPS, NAME = int(sys.argv[1]), sys.argv[3]
DEATHS = [death.split(":") for death in sys.argv[2].split(",") if death]
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(64, 700), nn.BatchNorm1d(700), nn.ReLU(), nn.Dropout(0.3), nn.Linear(700, 8))
model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
torch.manual_seed(10 + RANK)
data = torch.randn(STEPS * 16, 64, generator=torch.Generator().manual_seed(3))
sampler = ElasticSampler(len(data), 8, seed=5)
state = ElasticState(model=model, optimizer=optimizer, scheduler=scheduler, sampler=sampler, order=[], step=0)
state.sync()
tell(f"began {LIFE} {state.step}")
for batch in sampler.count():
    found = model(data[batch])
    nn.functional.mse_loss(found, data[batch][:, :8]).backward()
    if LIFE < len(DEATHS) and DEATHS[LIFE][0] in ("all", str(RANK)) and int(DEATHS[LIFE][1]) == state.step:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.step()
    optimizer.zero_grad()
    scheduler.step()
    state.order.extend(batch)
    state.step += 1
    state.commit()
total = hashlib.sha256()
for value in (*model.state_dict().values(), *(part for one in optimizer.state.values() for part in one.values())):
    total.update(value.numpy().tobytes())
with open(ROOM + f"/end.{RANK}.{NAME}", "w") as file:
    file.write(f"{total.hexdigest()} {state.order} {torch.rand(1).item()} {optimizer.param_groups[0]['lr']}")
dist.destroy_process_group()
"""


def trained(room: Room, deaths: str, name: str, *flags: str) -> list[bytes]:
    command = "--nproc-per-node=2", "--always-restart", *flags
    end = room.start(command, TRAIN, str(STEPS), deaths, name).wait(PATIENCE_S)
    room.assert_deserted(timeout_s=0)
    assert end.status == 0, end.err
    assert "Warning" not in end.err
    return [room.read(f"end.{rank}.{name}") for rank in range(2)]


def test_a_model_whose_workers_are_killed_ends_bit_by_bit_as_one_whose_are_not() -> None:
    room = Room()
    try:
        plain = trained(room, "", "plain")
        killed = trained(room, "1:3,0:5,all:8", "killed", "--max-restarts=3")
        assert killed == plain
        began = [line.split()[1:] for line in room.heard() if line.startswith("began ")]
        assert {(int(life), int(step)) for life, step in began} >= {(0, 0)}
        assert {int(step) for life, step in began if life == "3"} <= {7, 8}
        room.assert_deserted()
    finally:
        room.close()
        assert not os.path.exists(room.root)
