"""What an optimizer's state belongs to: parameters of certain shapes, in a certain order."""

from __future__ import annotations

import importlib.util
from itertools import pairwise
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("models come with torch", allow_module_level=True)

import torch
from torch import nn

from planaria.errors import StateRefused
from planaria.worker import capture, parts
from planaria.worker.state import ElasticState
from planaria.worker.vault import LocalVault

pytestmark = pytest.mark.torch


def raw(state: ElasticState) -> list[Any]:
    """Return model and optimizer as plain lists."""
    found = [*state.model.state_dict().values()]
    for kept in state.optimizer.state_dict()["state"].values():
        found += kept.values()
    return [_plain(one) for one in found]


def _plain(found: Any) -> Any:
    if isinstance(found, torch.Tensor):
        return found.tolist()
    return [_plain(one) for one in found] if isinstance(found, list) else found


def adam(*sizes: int, backwards: bool = False, vault: LocalVault) -> ElasticState:
    net = nn.Sequential(*(nn.Linear(one, other) for one, other in pairwise(sizes)))
    parameters = [*net.parameters()]
    return ElasticState(
        vault=vault, model=net, optimizer=torch.optim.Adam(parameters[::-1] if backwards else parameters), step=0
    )


def stepped(state: ElasticState) -> ElasticState:
    state.model(torch.ones(1, state.model[0].in_features)).sum().backward()
    state.optimizer.step()
    state.step += 1
    return state


def test_an_optimizer_with_its_parameters_in_another_order_is_refused_and_nothing_is_changed() -> None:
    vault = LocalVault()
    stepped(adam(2, 3, 4, vault=vault)).commit()
    state = adam(2, 3, 4, backwards=True, vault=vault)
    before = [parameter.detach().clone() for parameter in state.model.parameters()]
    says = r"optimizer: its parameter 0 has the shape \(4,\) here, and had \(3, 2\) when the snapshot was made"
    with pytest.raises(StateRefused, match=says):
        state.restore()
    assert (state.step, state.optimizer.state_dict()["state"]) == (0, {})
    assert all(map(torch.equal, before, state.model.parameters()))


def test_before_its_first_step_an_optimizer_has_nothing_that_would_not_fit() -> None:
    vault = LocalVault()
    adam(2, 3, 4, vault=vault).commit()
    assert adam(2, 3, 4, backwards=True, vault=vault).restore()


def test_a_commit_of_before_the_shapes_of_parameters_were_kept_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    vault = LocalVault()
    state = stepped(adam(2, 3, vault=vault))
    with monkeypatch.context() as then:
        content_of = parts.content_of

        def without_shapes(value: Any, *, is_shared: bool = False) -> tuple[str, object, Any]:
            kind, content, known = content_of(value, is_shared=is_shared)
            return kind, content, known["state"] if kind == parts.OPTIMIZER else known  # type: ignore[index]

        then.setattr(parts, "content_of", without_shapes)
        then.setattr(capture, "_VERSION", 3)
        state.commit()
    other = adam(2, 3, vault=vault)
    assert other.restore()
    assert raw(other) == raw(state)


def lbfgs(parameters: Any) -> Any:
    return torch.optim.LBFGS(parameters)


def adafactor(parameters: Any) -> Any:
    return torch.optim.Adafactor(parameters)


@pytest.mark.parametrize("make", [lbfgs, adafactor])
def test_states_of_other_shapes_than_their_parameters_come_back(make: Any) -> None:
    vault = LocalVault()

    def made(seed: int) -> ElasticState:
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
        return ElasticState(vault=vault, model=net, optimizer=make(net.parameters()), step=0)

    def step(state: ElasticState) -> None:
        def loss() -> float:
            state.optimizer.zero_grad()
            found = state.model(torch.ones(4, 3)).square().mean()
            found.backward()
            return float(found.detach())

        state.optimizer.step(loss)

    state = made(1)
    step(state)
    step(state)
    state.commit()
    other = made(2)
    assert other.restore()
    assert raw(other) == raw(state)
    step(state)
    step(other)
    assert raw(other) == raw(state)
