"""Commits at every step on a device: what is made ready behind a step, and when it is not relied upon."""

from __future__ import annotations

import importlib.util
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("models come with torch", allow_module_level=True)

import numpy as np
import torch
from fake_device import FakeDevice
from on_device import OTHER_TENSORS, Watched, check_restored, copies, make, train
from waiting import wait_until

from planaria.contract.commit import next_line
from planaria.errors import StateRefused
from planaria.worker import capture, readiness
from planaria.worker.vault import LocalVault

if TYPE_CHECKING:
    from planaria.worker.state import ElasticState

pytestmark = pytest.mark.torch
PATIENCE_S = 30
CHANGED = "is not kept: tensors were changed between a step of their optimizer and the next"


def step_and_commit(state: ElasticState) -> bool:
    """Tell whether the commit was made ready."""
    train(state)
    return commit(state)


def commit(state: ElasticState) -> bool:
    state.commit()
    state._finish_sealing()
    assert state._captured is not None
    return state._captured.marks is not None


def ready(vault: LocalVault | None = None, **values: Any) -> ElasticState:
    """Return a state whose commits are made ready by now: five of them were made."""
    state = make(vault, **values)
    assert [step_and_commit(state) for _ in range(5)] == [False, False, False, False, True]
    return state


def change(state: ElasticState) -> None:
    with torch.no_grad():
        state.model[2].bias.add_(1)


def test_a_commit_that_was_made_ready_is_of_its_moment(device: FakeDevice) -> None:
    own = torch.nn.Parameter(torch.ones(3))  # an optimizer's, and not the model's
    state = ready(average=torch.ones(50_000), table=np.zeros(10), own=own, other=torch.optim.SGD([own], lr=0.1))
    train(state)
    state.average.fill_(2)
    state.table[:] = 5
    state.model[1].running_mean.fill_(3)  # what is no optimizer's may change behind the step, and behind the commit
    wanted = copies(state)
    device.gate.clear()
    state.commit()
    state.table[:] = 6
    state.average.fill_(4)
    state.model[1].running_mean.fill_(4)
    train(state)
    device.gate.set()
    check_restored(state, wanted)
    assert state.average.sum() == 100_000
    assert (state.table == 5).all()


@pytest.mark.usefixtures("device")
def test_who_changes_parameters_behind_every_step_loses_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    vault = Watched()
    state = make(vault)
    for _ in range(8):
        train(state)
        change(state)
        assert not commit(state)
    assert vault.generations == [1, 2, 3, 4, 5, 6, 7, 8]
    check_restored(state, copies(state))
    assert not capfd.readouterr().err


@pytest.mark.usefixtures("device")
def test_a_change_between_step_and_commit_costs_one_commit_and_the_next_ones_count_for_themselves(
    capfd: pytest.CaptureFixture[str],
) -> None:
    vault = Watched()
    state = ready(vault)
    train(state)
    change(state)
    assert commit(state)
    assert vault.generations == [1, 2, 3, 4, 5]
    assert capfd.readouterr().err.count(CHANGED) == 1
    for _ in range(6):
        train(state)
        change(state)
        assert not commit(state)
    assert vault.generations == [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12]
    check_restored(state, copies(state))
    assert not capfd.readouterr().err


@pytest.mark.usefixtures("device")
def test_a_change_between_step_and_a_commit_that_is_waited_for_is_in_it() -> None:
    state = ready()
    train(state)
    change(state)
    wanted = copies(state)
    assert state.commit(wait="node").reached == "node"
    check_restored(state, wanted)


def test_a_change_behind_the_commit_that_the_thread_finds_is_not_sealed(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    vault = Watched()
    state = ready(vault)
    train(state)
    changed, look = threading.Event(), capture.Captured.lies_as_before

    def late(captured: capture.Captured) -> bool:
        assert changed.wait(PATIENCE_S)
        return look(captured)

    monkeypatch.setattr(capture.Captured, "lies_as_before", late)
    state.commit()
    change(state)
    changed.set()
    train(state)  # is not held up by what was not issued
    state._finish_sealing()
    assert vault.generations == [1, 2, 3, 4, 5]
    assert capfd.readouterr().err.count(CHANGED) == 1
    device.gate.clear()  # else it might have landed before the change
    state.commit()
    change(state)
    train(state)
    device.gate.set()
    with pytest.raises(StateRefused, match=r"model\['2.bias'\] was changed"):
        state._finish_sealing()


def test_a_change_behind_the_commit_is_noticed_by_the_next_step(device: FakeDevice) -> None:
    vault = Watched()
    state = ready(vault)
    train(state)
    del device.log[:]
    device.gate.clear()
    state.commit()
    wait_until(lambda: "copy 2" in device.log, "the copies are asked for")
    change(state)
    train(state)
    device.gate.set()
    with pytest.raises(StateRefused, match=r"model\['2.bias'\] was changed"):
        state._finish_sealing()
    assert vault.generations == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("steps", [1, 3])
def test_tensors_are_counted_behind_the_last_step_before_a_commit_only(
    monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    state = make()
    counted = []
    monkeypatch.setattr(readiness, "marks_of", lambda sources: counted.append(1) or [one._version for one in sources])
    found = []
    for _ in range(7):
        for _ in range(steps):
            train(state)
        found.append(commit(state))
    assert found == [False] * 4 + [True] * 3
    assert len(counted) == 4
    train(state)
    train(state)  # one more, or one less, than usual
    assert not commit(state)
    check_restored(state, copies(state))


@pytest.mark.usefixtures("device")
def test_a_second_optimizer_s_step_comes_before_the_commit_too() -> None:
    state = make(other=None)
    extra = torch.nn.Linear(5, 5)
    state.model.add_module("extra", extra)
    state.other = torch.optim.AdamW(extra.parameters(), lr=0.1)
    found = []
    for _ in range(7):
        state.optimizer.zero_grad()
        state.model[:3](torch.randn(8, 100)).square().mean().backward()
        state.optimizer.step()
        extra(torch.randn(2, 5)).square().mean().backward()
        state.other.step()
        found.append(commit(state))
    assert found == [False] * 4 + [True] * 3
    check_restored(state, copies(state))


@pytest.mark.usefixtures("device")
def test_a_change_of_a_parameter_that_is_a_value_is_noticed(device: FakeDevice) -> None:
    own = torch.nn.Parameter(torch.ones(3))
    state = ready(own=own, other=torch.optim.SGD([own], lr=0.1))
    train(state)
    del device.log[:]
    device.gate.clear()
    state.commit()
    wait_until(lambda: "copy 2" in device.log, "the copies are asked for")
    with torch.no_grad():
        own.add_(1)
    train(state)
    device.gate.set()
    with pytest.raises(StateRefused, match="own was changed"):
        state._finish_sealing()


@pytest.mark.usefixtures("device")
def test_tensors_replaced_between_step_and_commit_cost_one_and_are_not_held(capfd: pytest.CaptureFixture[str]) -> None:
    vault = Watched()
    state = ready(vault)
    train(state)
    kept = state.optimizer.state[state.model[0].weight]
    old = weakref.ref(kept["exp_avg"])
    kept["exp_avg"] = kept["exp_avg"].clone()
    commit(state)
    assert capfd.readouterr().err.count(OTHER_TENSORS) == 1
    train(state)
    assert old() is None
    wanted = copies(state)
    commit(state)
    assert vault.generations == [1, 2, 3, 4, 5, 7]
    check_restored(state, wanted)


@pytest.mark.usefixtures("device")
def test_a_restore_between_step_and_commit_begins_anew() -> None:
    vault = Watched()
    state = ready(vault)
    wanted = copies(state)
    train(state)
    state.restore()
    assert not commit(state)
    assert vault.generations[-1] == next_line(5, (1, 0, 5)) + 1
    check_restored(state, wanted)


@pytest.mark.usefixtures("device")
def test_nothing_is_made_ready_where_other_ranks_commit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "marks_of", pytest.fail)
    state = make(Watched(world_size=2))
    for _ in range(6):
        assert not step_and_commit(state)
