"""A small model in an elastic state, for tests that put it on a device made of the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from planaria.contract.commit import Origin, Stamp
from planaria.worker.state import ElasticState
from planaria.worker.vault import LocalVault

OTHER_TENSORS = "is not kept: model or optimizer have got other tensors"


class Watched(LocalVault):
    """Takes note of what it is told of."""

    def __init__(self, world_size: int = 1) -> None:
        super().__init__(Origin(world_size=world_size))
        self.generations: list[int] = []

    def sealed(self, stamp: Stamp) -> None:
        self.generations.append(stamp.generation)
        super().sealed(stamp)


def make(vault: LocalVault | None = None, **values: Any) -> ElasticState:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(100, 200), nn.BatchNorm1d(200), nn.Linear(200, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
    return ElasticState(vault=vault or LocalVault(), model=model, optimizer=optimizer, step=0, **values)


def train(state: ElasticState) -> None:
    state.optimizer.zero_grad()
    state.model(torch.randn(8, 100)).square().mean().backward()
    state.optimizer.step()
    state.step += 1


def trusted(vault: LocalVault | None = None, **values: Any) -> ElasticState:
    """Return a state whose structure stayed the same for long enough to be taken on trust."""
    state = make(vault, **values)
    for _ in range(3):
        train(state)
        state.commit()
    state._finish_sealing()
    return state


def tensors(state: ElasticState) -> list[torch.Tensor]:
    states = [item for kept in state.optimizer.state.values() for item in kept.values()]
    return [*state.model.state_dict().values(), *states]


def copies(state: ElasticState) -> list[torch.Tensor]:
    return [part.clone() for part in tensors(state)]


def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


def check_restored(state: ElasticState, wanted: list[torch.Tensor]) -> Stamp | None:
    """Forget what is there, restore, and see that it is as wanted. Returns what was restored."""
    with torch.no_grad():
        for part in tensors(state):
            part.zero_()
    stamp = state.restore()
    assert equal(tensors(state), wanted)
    return stamp
