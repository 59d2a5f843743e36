"""What another class of optimizer or scheduler has kept is refused; what another torch, or another flag, has kept is not."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("models come with torch", allow_module_level=True)

import torch
from torch import nn, optim
from torch.optim import lr_scheduler

from planaria.errors import StateRefused
from planaria.worker.state import ElasticState
from planaria.worker.vault import LocalVault

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.torch


def trained(optimizer: Callable[[Any], Any], vault: LocalVault) -> ElasticState:
    net = nn.Linear(2, 3)
    state = ElasticState(vault=vault, model=net, optimizer=optimizer(net.parameters()), step=0)
    net(torch.ones(1, 2)).sum().backward()
    state.optimizer.step()
    return state


OTHERS = {
    "SGD to AdamW": (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), optim.AdamW, "AdamW has amsgrad, betas, eps, which"),
    "AdamW to SGD": (optim.AdamW, lambda p: optim.SGD(p, lr=0.1), "snapshot has amsgrad, betas, eps"),
    "Adam to NAdam": (optim.Adam, optim.NAdam, "NAdam has momentum_decay, which the snapshot lacks"),
}


@pytest.mark.parametrize("way", OTHERS)
def test_the_state_of_another_class_of_optimizer_is_refused_and_nothing_is_changed(way: str) -> None:
    then, now, says = OTHERS[way]
    vault = LocalVault()
    trained(then, vault).commit()
    state = trained(now, vault)
    before = state.model.weight.detach().clone()
    with pytest.raises(StateRefused, match=says) as said:
        state.restore()
    assert "needs another name in the state" in said.value.hint
    assert torch.equal(state.model.weight, before)


class Older(optim.SGD):
    """One of a torch that had fewer options."""

    def __init__(self, params: Any, *lacking: str, **more: float) -> None:
        super().__init__(params, lr=0.1)
        for group in self.param_groups:
            group.update(more)
            for name in lacking:
                del group[name]

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Do nothing: torch of today could not."""


ALIKE = {
    "other flags": (lambda p: optim.AdamW(p, foreach=True), lambda p: optim.AdamW(p, capturable=False, fused=True)),
    "a schedule and a flag": (
        lambda p: Older(p, "fused", initial_lr=0.1, max_lr=0.2),
        lambda p: optim.SGD(p, lr=0.1),
    ),
    "a schedule and a newer torch": (
        lambda p: Older(p, "nesterov", initial_lr=0.1, max_momentum=0.9),
        lambda p: optim.SGD(p, lr=0.1),
    ),
    "an own option and a newer torch": (
        lambda p: Older([{"params": p, "share": 2}], "nesterov"),
        lambda p: optim.SGD([{"params": p, "share": 3, "depth": 1}], lr=0.1),
    ),
    "a newer torch": (lambda p: Older(p, "nesterov"), lambda p: optim.SGD(p, lr=0.1)),
    "an own option": (lambda p: optim.SGD([{"params": p, "share": 2}], lr=0.1), lambda p: optim.SGD(p, lr=0.1)),
    "a close relative": (optim.Adam, optim.AdamW),
}


@pytest.mark.parametrize("way", ALIKE)
def test_flags_schedules_and_versions_make_no_other_class(way: str) -> None:
    then, now = ALIKE[way]
    vault = LocalVault()
    trained(then, vault).commit()
    state = trained(now, vault)
    assert state.restore()
    state.optimizer.step()


def scheduled(scheduler: Callable[[Any], Any], vault: LocalVault) -> ElasticState:
    return ElasticState(vault=vault, scheduler=scheduler(optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)), step=0)


def test_the_state_of_another_class_of_scheduler_is_refused() -> None:
    vault = LocalVault()
    scheduled(lambda one: lr_scheduler.StepLR(one, 3), vault).commit()
    state = scheduled(lambda one: lr_scheduler.CosineAnnealingLR(one, 3), vault)
    says = "CosineAnnealingLR has T_max, eta_min, which the snapshot lacks, and the snapshot has gamma, step_size"
    with pytest.raises(StateRefused, match=says):
        state.restore()
    assert not hasattr(state.scheduler, "step_size")


def test_what_another_torch_keeps_of_a_scheduler_of_the_same_class_is_taken() -> None:
    vault = LocalVault()
    state = scheduled(lambda one: lr_scheduler.StepLR(one, 3), vault)
    state.scheduler.verbose = state.scheduler._old = False
    del state.scheduler._is_initial
    state.scheduler.last_epoch = 7
    state.commit()
    again = scheduled(lambda one: lr_scheduler.StepLR(one, 5), vault)
    again.scheduler._new = again.scheduler.new = True
    assert again.restore()
    assert again.scheduler.last_epoch == 7


class Several(lr_scheduler.LRScheduler):
    """Schedulers of a user's in one, whose state has numbers for names."""

    def __init__(self, optimizer: Any) -> None:
        self.all = [lr_scheduler.LinearLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)]

    def step(self, epoch: int | None = None) -> None:
        for one in self.all:
            one.step(epoch)

    def state_dict(self) -> dict[Any, Any]:
        return dict(enumerate(one.state_dict() for one in self.all))

    def load_state_dict(self, state_dict: dict[Any, Any]) -> None:
        for number, one in enumerate(self.all):
            one.load_state_dict(state_dict[number])


class Listed(Several):
    """One whose state is no mapping."""

    def state_dict(self) -> Any:
        return [one.state_dict() for one in self.all]


class Phased(lr_scheduler.LRScheduler):
    """A user's own, whose attributes come and go."""

    def __init__(self, optimizer: Any) -> None:
        self.warming = True
        super().__init__(optimizer)

    def get_lr(self) -> list[Any]:
        if self.last_epoch == 2:
            del self.warming
            self.cooling = True
        return [group["lr"] * 0.9 for group in self.optimizer.param_groups]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        del self.warming
        super().load_state_dict(state_dict)


@pytest.mark.parametrize("own", [Several, Listed, Phased])
def test_a_scheduler_of_the_users_own_takes_what_it_has_kept(own: Callable[[Any], Any]) -> None:
    vault = LocalVault()
    state = scheduled(own, vault)
    optimizer = getattr(state.scheduler, "optimizer", None) or state.scheduler.all[0].optimizer
    optimizer.step()
    for _ in range(3):
        state.scheduler.step()
    state.commit()
    again = scheduled(own, vault)
    assert again.restore()
    assert again.scheduler.state_dict() == state.scheduler.state_dict()


class Renaming(optim.SGD):
    """A user's own optimizer, which keeps options under other names, and its groups as one."""

    def __init__(self, params: Any) -> None:
        super().__init__([{"params": [one]} for one in params], lr=0.1)

    def state_dict(self) -> dict[str, Any]:
        kept = super().state_dict()
        numbers = [number for group in kept["param_groups"] for number in group["params"]]
        return {**kept, "param_groups": [{"speed": kept["param_groups"][0]["lr"], "params": numbers}]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        (kept,) = state_dict["param_groups"]
        for group in self.param_groups:
            group["lr"] = kept["speed"]


def test_an_optimizer_of_the_users_own_takes_what_it_has_kept() -> None:
    vault = LocalVault()
    state = trained(Renaming, vault)
    state.optimizer.param_groups[0]["lr"] = 0.7
    state.commit()
    again = trained(Renaming, vault)
    assert again.restore()
    assert again.optimizer.param_groups[1]["lr"] == 0.7


class Counts:
    """A part of the user's own, with whatever names it has at the moment."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts

    def state_dict(self) -> dict[str, int]:
        return self.counts

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.counts = state


def test_names_in_the_state_of_other_parts_may_change() -> None:
    vault = LocalVault()
    ElasticState(vault=vault, seen=Counts(a=1), step=0).commit()
    state = ElasticState(vault=vault, seen=Counts(b=2), step=0)
    assert state.restore()
    assert state.seen.counts == {"a": 1}
