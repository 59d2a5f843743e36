"""Tensors of the state that share memory here and did not when the commit was made: nobody is written over."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("models come with torch", allow_module_level=True)

import torch
from torch import nn

from planaria.contract.commit import Origin
from planaria.errors import StateRefused
from planaria.worker.arrays import write_into
from planaria.worker.claims import Claims
from planaria.worker.state import ElasticState
from planaria.worker.vault import Loaded, LocalVault

pytestmark = pytest.mark.torch


def linear(value: float) -> nn.Linear:
    made = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        made.weight.fill_(value)
    return made


def values(*found: torch.Tensor) -> list[float]:
    return [float(one.detach().flatten()[0]) for one in found]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_model_is_not_written_over_by_a_copy_that_began_as_its_own_tensors(is_first: bool) -> None:
    vault = LocalVault()

    def made(value: float) -> ElasticState:
        model = linear(value)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        best: dict[str, Any] = model.state_dict()
        if is_first:  # and the module behind it, by another name
            return ElasticState(vault=vault, best=best, policy=model, optimizer=optimizer, step=0)
        return ElasticState(vault=vault, model=model, optimizer=optimizer, best=best, step=0)

    state = made(3.0)
    model = state.policy if is_first else state.model
    state.best = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.no_grad():
        model.weight.fill_(7.0)
    state.commit()
    other = made(0.0)
    again = other.policy if is_first else other.model
    weight = again.weight
    assert other.restore()
    assert again.weight is weight
    assert values(weight, other.best["weight"]) == [7.0, 3.0]
    with torch.no_grad():
        weight.fill_(8.0)
    assert values(other.best["weight"]) == [3.0]


def test_what_was_one_tensor_stays_one() -> None:
    vault = LocalVault()
    model = linear(7.0)
    ElasticState(vault=vault, model=model, now=model.state_dict(), step=0).commit()
    begun = linear(0.0)
    state = ElasticState(vault=vault, model=begun, now=begun.state_dict(), step=0)
    assert state.restore()
    assert state.now["weight"].data_ptr() == begun.weight.data_ptr()
    assert values(begun.weight) == [7.0]


def test_state_of_an_optimizer_is_not_written_over_by_a_value() -> None:
    vault = LocalVault()
    model = linear(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state = ElasticState(vault=vault, average=torch.full((1, 2), 5.0), model=model, optimizer=optimizer)
    state.commit()
    momentum = optimizer.state[model.weight]["momentum_buffer"]
    state.average = momentum
    assert state.restore()
    assert values(optimizer.state[model.weight]["momentum_buffer"], state.average) == [1.0, 5.0]


def test_modules_that_have_become_one_are_refused_and_nothing_is_changed() -> None:
    vault = LocalVault()
    state = ElasticState(vault=vault, model=linear(1.0), target=linear(2.0), step=5)
    state.commit()
    state.target = state.model
    state.step = 6
    with pytest.raises(StateRefused, match="target: weight is one tensor with another of a module here"):
        state.restore()
    assert (state.step, *values(state.model.weight)) == (6, 1.0)


def test_tensors_that_were_tied_in_two_ways_are_still_restored_in_place() -> None:
    """A parameter and its transposed view are two rows of a snapshot that agree."""

    class Tied(nn.Module):
        def __init__(self, value: float) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((2, 3), value))
            self.register_buffer("turned", self.weight.detach().T)
            self.register_buffer("same", self.weight.detach()[:])

    vault = LocalVault()
    ElasticState(vault=vault, model=Tied(4.0)).commit()
    begun = Tied(0.0)
    assert ElasticState(vault=vault, model=begun).restore()
    assert values(begun.weight) == [4.0]
    assert begun.turned.data_ptr() == begun.weight.data_ptr() == begun.same.data_ptr()


class Follower(LocalVault):
    """A second worker of a node, which keeps only what is its own."""

    def __init__(self, leader: LocalVault) -> None:
        super().__init__(Origin(rank=1, world_size=2, keeps_shared=False))
        self._leader = leader

    def load(self, *, is_damaged: bool = False) -> Loaded | None:
        own, shared = super().load(is_damaged=is_damaged), self._leader.load(is_damaged=is_damaged)
        assert own is not None
        assert shared is not None
        return Loaded(own.own, shared.own)


def test_modules_that_were_one_stay_one_where_another_rank_keeps_the_model_and_replicas_differ_in_a_bit() -> None:
    leader = LocalVault(Origin(rank=0, world_size=2))
    follower = Follower(leader)
    for vault, value in ((leader, 1.0), (follower, 1.0 + 2**-23)):
        model = linear(value)
        ElasticState(vault=vault, replicated=True, model=model, head=model, step=5).commit()
    begun = linear(0.0)
    state = ElasticState(vault=follower, replicated=True, model=begun, head=begun, step=0)
    assert state.restore()
    assert (state.step, *values(begun.weight)) == (5, 1.0)


@pytest.mark.parametrize("why", ["claimed", "expanded", "other shape", "other dtype"])
def test_what_gets_a_tensor_of_its_own_gets_it_on_the_device_that_it_was_on(why: str) -> None:
    here = torch.empty(2, 3, device="meta")  # a device that every torch has; nothing is in its memory
    target = {
        "expanded": torch.empty(1, 3, device="meta").expand(2, 3),
        "other shape": torch.empty(5, device="meta"),
        "other dtype": torch.empty(2, 3, dtype=torch.float64, device="meta"),
    }.get(why, here)
    claims, asked = Claims(), []
    if why == "claimed":
        assert claims.take(here, torch.zeros(2, 3))
    source = torch.ones(2, 3)
    made = write_into(target, source, lambda to, found: asked.append((to, found)), claims)
    assert made is not target
    assert (made.device.type, made.shape, made.dtype, made.is_contiguous()) == ("meta", (2, 3), torch.float32, True)
    assert asked == [(made, source)], "it goes there with everything else, and is verified there"
