"""Commits at every step on a device: what is taken on trust, what is seen late, and what becomes of a commit then."""

from __future__ import annotations

import copy
import importlib.util
import random
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("models come with torch", allow_module_level=True)

import numpy as np
import torch
from fake_device import FakeDevice
from on_device import OTHER_TENSORS, Watched, check_restored, copies, equal, make, tensors, train, trusted
from torch import nn
from waiting import wait_until

from planaria.errors import StateRefused
from planaria.worker import arrays, capture
from planaria.worker.flight import Pad
from planaria.worker.trace import Known

if TYPE_CHECKING:
    from planaria.worker.state import ElasticState

pytestmark = pytest.mark.torch
PATIENCE_S = 30


def add_a_buffer(state: ElasticState) -> None:
    state.model[0].register_buffer("more", torch.ones(3))


def replace_a_state(state: ElasticState) -> None:
    kept = state.optimizer.state[state.model[0].weight]
    kept["exp_avg"] = kept["exp_avg"].clone()


def rename_a_parameter(state: ElasticState) -> None:
    state.model[2]._parameters["other"] = state.model[2]._parameters.pop("bias")


@pytest.mark.parametrize("change", [add_a_buffer, replace_a_state, rename_a_parameter])
def test_a_commit_in_haste_of_another_structure_is_not_kept_and_the_next_one_is_whole(
    device: FakeDevice, change: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    state = trusted()
    change(state)
    state.commit()
    state._finish_sealing()
    newest = state.commit().stamp
    assert state.restore() == newest
    said = capfd.readouterr().err
    # Where a tensor has gone, that is seen at once, and no commit is lost.
    assert said.count(OTHER_TENSORS) == (change is not replace_a_state)


@pytest.mark.parametrize("change", [add_a_buffer, replace_a_state, rename_a_parameter])
def test_a_commit_that_is_waited_for_has_the_structure_of_now(device: FakeDevice, change: Any) -> None:
    state = trusted()
    change(state)
    wanted = copies(state)
    stamp = state.commit(wait="node").stamp
    assert check_restored(state, wanted) == stamp


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("change", [add_a_buffer, rename_a_parameter])
def test_a_last_commit_that_is_not_kept_is_made_again_when_it_is_waited_for(change: Any) -> None:
    state = trusted()
    change(state)
    wanted = copies(state)
    stamp = state.commit().stamp
    assert state.settle()
    found = check_restored(state, wanted)
    assert found.generation == stamp.generation + 1


def test_a_commit_that_is_not_kept_is_not_told_as_sealed_when_the_next_one_has_begun(
    device: FakeDevice, capfd: pytest.CaptureFixture[str]
) -> None:
    vault = Watched()
    state = trusted(vault)
    add_a_buffer(state)
    device.gate.clear()
    state.commit()
    wait_until(lambda: state._is_other, "that the structure is another is seen")
    later = threading.Thread(target=state.commit, daemon=True)
    later.start()  # a whole walk, which then waits for memory
    wait_until(lambda: not state._is_other, "the next commit begins")
    device.gate.set()
    later.join(PATIENCE_S)
    state._finish_sealing()
    assert vault.generations == [1, 2, 3, 5]
    assert capfd.readouterr().err.count(OTHER_TENSORS) == 1


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("change", [add_a_buffer, replace_a_state, rename_a_parameter])
def test_a_commit_that_other_ranks_keep_is_never_taken_on_trust(change: Any) -> None:
    vault = Watched(world_size=2)
    state = trusted(vault)
    change(state)
    state.commit()
    state.commit()
    state._finish_sealing()
    assert vault.generations == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("device")
def test_a_commit_before_the_first_step_costs_none_behind_it() -> None:
    vault = Watched()
    state = make(vault)
    for _ in range(4):
        state.commit()
        train(state)
    state._finish_sealing()
    assert vault.generations == [1, 2, 3, 4]


@pytest.mark.usefixtures("device")
def test_an_optimizer_that_makes_its_state_anew_at_every_step_loses_no_commit() -> None:
    vault = Watched()
    state = make(vault)
    held = []
    for _ in range(6):
        train(state)
        held.append(tensors(state))  # as a copy that is under way holds them: so nothing goes that could be missed
        replace_a_state(state)
        state.commit()
    state._finish_sealing()
    assert vault.generations == [1, 2, 3, 4, 5, 6]


def load_a_state(state: ElasticState) -> None:
    state.optimizer.load_state_dict(copy.deepcopy(state.optimizer.state_dict()))


def replace_a_layer(state: ElasticState) -> None:
    state.model[0] = nn.Linear(100, 200)
    state.optimizer.param_groups[0]["params"][:2] = state.model[0].parameters()
    state.optimizer.state.clear()


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("change", [load_a_state, replace_a_layer])
def test_what_a_program_has_let_go_of_is_not_held_and_seen_at_once(change: Any) -> None:
    vault = Watched()
    state = trusted(vault)
    old = [weakref.ref(state.optimizer.state[state.model[0].weight]["exp_avg"])]
    if change is replace_a_layer:
        old.append(weakref.ref(state.model[0].weight))
    change(state)
    assert [one() for one in old] == [None] * len(old)
    wanted = copies(state)
    state.commit()
    state._finish_sealing()
    assert vault.generations == [1, 2, 3, 4]
    check_restored(state, wanted)


def test_a_tensor_that_goes_while_it_is_looked_for_has_gone() -> None:
    """The thread that seals may let go of one between two words of the program's thread."""
    tensor = torch.ones(3)
    known = Known([tensor], [0])
    del tensor
    known._gone.clear()
    assert known.tensors() is None


@pytest.mark.parametrize("for_all", [7, {"count": 7}, {"count": torch.ones(2)}])
@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.usefixtures("device")
def test_an_optimizer_may_keep_what_concerns_all_parameters_by_a_name(for_all: Any, is_late: bool) -> None:
    state = trusted() if is_late else make()
    train(state)
    state.optimizer.state["all"] = for_all
    state.commit(wait="node")
    del state.optimizer.state["all"]
    state.restore()
    assert str(state.optimizer.state["all"]) == str(for_all)
    assert state.commit(wait="node").reached == "node"


@pytest.mark.usefixtures("device")
def test_a_commit_that_fails_behind_its_departure_holds_up_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    state = trusted(table=np.zeros(10))  # which stays on the host

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    with monkeypatch.context() as here:
        here.setattr(arrays.Arrays, "taken", fail)
        with pytest.raises(MemoryError):
            state.commit()
    later = threading.Thread(target=train, args=(state,), daemon=True)
    later.start()
    later.join(PATIENCE_S)
    assert not later.is_alive()
    assert state.commit(wait="node").reached == "node"


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("rows", [7, 1])  # one row would fit into as many as there were
def test_a_buffer_that_became_shorter_is_seen_at_once_also_where_structure_is_taken_on_trust(rows: int) -> None:
    vault = Watched()
    state = make(vault)
    state.model.register_buffer("queue", torch.rand(40, 40))
    for _ in range(3):
        train(state)
        state.commit()
    state.model.queue.data = state.model.queue.data[:rows]
    wanted = copies(state)
    state.commit()
    state._finish_sealing()
    assert vault.generations == [1, 2, 3, 4]
    state.model.queue.zero_()
    state.restore()
    assert equal(tensors(state), wanted)


def move(state: ElasticState) -> None:
    state.model[0].weight.data = state.model[0].weight.data.clone()


def grow(state: ElasticState) -> None:
    kept = state.optimizer.state[state.model[2].weight]
    kept["exp_avg"].resize_(100, 200).fill_(2)


@pytest.mark.parametrize("change", [move, grow])
@pytest.mark.parametrize("waits", [True, False])
def test_tensors_that_lie_elsewhere_cost_a_commit_in_haste_and_the_next_one_has_them(
    device: FakeDevice, change: Any, waits: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    vault = Watched()
    state = trusted(vault)
    change(state)
    wanted = copies(state)
    del device.log[:]
    state.commit(wait="node" if waits else None)
    state._finish_sealing()
    if not waits:
        assert not [word for word in device.log if word.startswith(("copy", "gather"))]
        state.commit()
        state._finish_sealing()
    assert vault.generations == [1, 2, 3, 5]
    assert capfd.readouterr().err.count(OTHER_TENSORS) == 1
    check_restored(state, wanted)


@pytest.mark.usefixtures("device")
def test_a_commit_that_finds_tensors_elsewhere_holds_none_of_them() -> None:
    state = trusted()
    moment = weakref.ref(state.optimizer.state[state.model[0].weight]["exp_avg"])
    move(state)
    state.commit()
    state._finish_sealing()
    state.optimizer.state.clear()
    assert moment() is None


@pytest.mark.usefixtures("device")
def test_values_are_those_of_the_commit_however_late_they_are_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    state = trusted(table=np.zeros(10), words=["a"])
    begun, go_on = threading.Event(), threading.Event()
    finish = capture.Captured.finish

    def late(captured: capture.Captured) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)
        finish(captured)

    monkeypatch.setattr(capture.Captured, "finish", late)
    state.optimizer.param_groups[0]["lr"] = 0.25
    wanted = [random.getstate(), np.random.get_state()[2], torch.get_rng_state()]
    state.commit()
    assert begun.wait(PATIENCE_S)
    state.optimizer.param_groups[0]["lr"] = 0.5
    state.step, state.table[0] = 100, 1
    state.words.append("b")
    random.random()
    np.random.rand()
    torch.rand(1)
    go_on.set()
    state.restore()
    assert state.optimizer.param_groups[0]["lr"] == 0.25
    assert (state.step, state.words, state.table[0]) == (3, ["a"], 0)
    assert [random.getstate(), np.random.get_state()[2]] == wanted[:2]
    assert torch.equal(torch.get_rng_state(), wanted[2])


@pytest.mark.usefixtures("device")
def test_values_that_grow_and_states_of_other_lengths_are_kept_whole() -> None:
    state = trusted(words=["a"])
    for words, gauss in ((["a"], 1.5), (["a"] * 5000, None), ([], 2.5), (["b"], None)):
        state.words = words
        random.setstate((*random.getstate()[:2], gauss))
        state.optimizer.param_groups[0]["lr"] = torch.tensor(0.5) if gauss is None else 7
        size_bytes = state.commit(wait="node").size_bytes
        wanted = random.getstate()
        random.seed(3)
        state.words, state.optimizer.param_groups[0]["lr"] = None, 0.0
        state.restore()
        assert (state.words, random.getstate()) == (words, wanted)
        assert state.optimizer.param_groups[0]["lr"] == (0.5 if gauss is None else 7)
        assert size_bytes == state.commit(wait="node").size_bytes


@pytest.mark.usefixtures("device")
def test_a_change_that_a_step_finds_while_the_copy_is_looked_at_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = trusted()

    def meanwhile(*_: object) -> str:
        with torch.no_grad():
            state.model[2].bias.add_(1)
        state._runway._hold()
        return ""

    monkeypatch.setattr(Pad, "find_other", meanwhile)
    state.commit()
    with pytest.raises(StateRefused, match=r"model\['2.bias'\] was changed"):
        state._finish_sealing()


@pytest.mark.usefixtures("device")
def test_the_random_numbers_of_a_gpu_are_those_of_the_state_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a thread that restores, while another one starts the process group, the first GPU is the current one."""
    asked: list[object] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda gpu: asked.append(gpu) or torch.ones(16, dtype=torch.uint8))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda found, gpu: asked.append((found.tolist(), gpu)))
    state = make()
    state.commit(wait="node")
    state.restore()
    gpu = torch.device("cpu")  # the one that is made of it
    assert asked == [gpu, ([1] * 16, gpu)]
