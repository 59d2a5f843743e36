"""Commits of tensors on a device, with a device made of the CPU: what is copied when, and what a step has to wait for."""

from __future__ import annotations

import gc
import importlib.util
import threading
import weakref
from types import SimpleNamespace
from typing import Any
from zlib import adler32

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("models come with torch", allow_module_level=True)

import numpy as np
import torch
from fake_device import FakeDevice
from hypothesis import given
from hypothesis import strategies as st
from on_device import copies, equal, make, tensors, train
from torch import nn

from planaria.contract import snapshot as snapshots
from planaria.contract.snapshot import BLOCK_BYTES, BLOCKS
from planaria.errors import StateRefused
from planaria.worker import agent_vault, arrays, runway
from planaria.worker.device import Cuda, block_sums
from planaria.worker.driver import NoMemory
from planaria.worker.runway import Runway
from planaria.worker.state import ElasticState
from planaria.worker.vault import LocalVault

pytestmark = pytest.mark.torch
PATIENCE_S = 30


def test_a_step_has_the_device_wait_for_the_copy_and_the_snapshot_is_of_before(device: FakeDevice) -> None:
    state = make()
    train(state)
    wanted = copies(state)
    device.gate.clear()
    state.commit()
    train(state)  # its forward pass changes BatchNorm's statistics, its step everything else
    assert "the device waits" in device.log
    assert "waited" not in device.log
    device.gate.set()
    state.restore()
    assert equal(tensors(state), wanted)
    assert state.step == 1


def test_a_step_without_the_hook_is_noticed_and_the_commit_is_not_sealed(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Runway, "before_step", lambda *_: None)
    vault = LocalVault()
    state = make(vault)
    train(state)
    state.commit(wait="node")
    train(state)
    device.gate.clear()
    state.commit()
    train(state)
    device.gate.set()
    assert state.restore().step == 1  # type: ignore[union-attr]  # who goes back has nothing to do with it any more
    said = capfd.readouterr().err
    assert "was not sealed: StateRefused" in said
    assert "model['0.weight'] was changed by other means than a step" in said
    assert make(vault).restore().step == 1  # type: ignore[union-attr]  # there is one


def test_a_change_by_hand_before_the_step_is_noticed_by_the_hook(device: FakeDevice) -> None:
    state = make()
    train(state)
    device.gate.clear()
    state.commit()
    with torch.no_grad():
        state.model[2].bias.add_(1)
    train(state)
    device.gate.set()
    with pytest.raises(StateRefused, match=r"model\['2.bias'\] was changed"):
        state.commit(wait="node")
    state.commit(wait="node")
    with torch.no_grad():
        state.model[2].bias.add_(1)  # sealed by now
    train(state)
    state.commit(wait="node")


@pytest.mark.usefixtures("device")
def test_another_form_of_the_same_memory_is_noticed_and_the_next_commit_has_it() -> None:
    state = make()
    for _ in range(3):  # what stayed the same is taken on trust
        train(state)
        state.commit(wait="node")
    weight = state.model[0].weight
    weight.data = weight.data.view(100, 200)
    with pytest.raises(StateRefused, match=r"model\['0.weight'\] was changed"):
        state.commit(wait="node")
    wanted = copies(state)
    state.commit(wait="node")
    weight.data.zero_()
    state.restore()
    assert equal(tensors(state), wanted)


def same_optimizer(state: ElasticState) -> None:
    state.optimizer = torch.optim.AdamW(state.model.parameters(), lr=0.01, foreach=False)


def same_model(state: ElasticState) -> None:
    other = make()
    state.model, state.optimizer = other.model, other.optimizer


def same_model_alone(state: ElasticState) -> None:
    """Of the same form, and trained by an optimizer that the state does not know."""
    state.model = make().model
    state.model.own = [torch.optim.SGD(state.model.parameters(), lr=0.1)]


@pytest.mark.parametrize("change", [same_optimizer, same_model, same_model_alone])
@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_another_model_or_optimizer_of_the_same_form_is_hooked_too(device: FakeDevice, change: Any, kind: str) -> None:
    state = make()
    if kind == "sgd":  # without a state, so that nothing in the table is different
        state.optimizer = torch.optim.SGD(state.model.parameters(), lr=0.1)
    train(state)
    state.commit(wait="node")
    change(state)
    if kind == "sgd" and change is not same_model_alone:
        state.optimizer = torch.optim.SGD(state.model.parameters(), lr=0.1)
    train(state)
    state.commit(wait="node")
    wanted = copies(state)
    device.gate.clear()
    state.commit()
    for optimizer in getattr(state.model, "own", [state.optimizer]):
        state.model(torch.randn(8, 100)).square().mean().backward()
        optimizer.step()
    device.gate.set()
    state.restore()
    assert equal(tensors(state), wanted)


@pytest.mark.usefixtures("device")
def test_a_state_that_goes_leaves_no_hook_and_no_thread() -> None:
    state = make()
    optimizer = state.optimizer
    train(state)
    state.commit()
    state.commit(wait="node")
    sealer = state._sealer
    assert sealer is not None
    (thread,) = sealer._threads
    assert len(optimizer._optimizer_step_pre_hooks) == len(optimizer._optimizer_step_post_hooks) == 1
    del state, sealer
    gc.collect()
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_commit_is_sealed_only_when_the_copy_is_done(device: FakeDevice) -> None:
    vault = LocalVault()
    state = make(vault)
    device.gate.clear()
    state.commit()
    for _ in range(3):  # the sealing thread has had its chance
        threading.Event().wait(0.01)  # nothing can be awaited: it is that nothing happens
        assert snapshots.read(vault._slots[0]) is None
    device.gate.set()
    state.commit(wait="node")
    assert all(snapshots.read(slot) for slot in vault._slots)


def test_the_first_large_tensors_go_ahead_and_small_ones_in_one_piece_before_the_others(device: FakeDevice) -> None:
    state = make()
    train(state)
    state.commit(wait="node")
    del device.log[:]
    train(state)
    state.commit(wait="node")
    asked = [word for word in device.log if word.startswith(("gather", "copy", "wait", "register"))]
    room = len(state._vault._slots[0])  # type: ignore[attr-defined]
    gathered = f"gather {len(tensors(state)) - 3}"
    assert asked[:5] == [f"register {room}", "wait beside", "copy 1", "wait beside", gathered]
    assert asked[5:] == ["wait beside", "copy 2", "waited", "waited"]


def test_memory_that_cannot_be_registered_costs_time_and_nothing_else(device: FakeDevice) -> None:
    device.registers = False
    state = make()
    train(state)
    wanted = copies(state)
    state.commit()
    train(state)
    state.restore()
    assert equal(tensors(state), wanted)
    assert {"copy 1 slowly", "copy 2 slowly"} <= {*device.log}


def test_commit_does_not_wait_for_the_commit_before_it_only_a_step_does_and_for_its_copies_alone(
    device: FakeDevice,
) -> None:
    state = make(average=torch.ones(50_000), table=np.zeros(10))  # which stays on the host
    train(state)
    state.commit(wait="node")
    train(state)
    device.gate.clear()
    state.commit()
    train(state)
    state.table[:] = 3
    wanted, random = copies(state), torch.get_rng_state()
    state.commit()  # the one before is not sealed: there is no memory for this one yet
    torch.manual_seed(5)
    state.table[:] = 4
    assert state.stamp is not None
    assert state.stamp.generation == 3
    later = threading.Thread(target=train, args=(state,))
    later.start()  # its step waits until the copies of the commit are asked for
    device.gate.set()
    later.join(PATIENCE_S)
    assert not later.is_alive()
    assert state.restore() == state.stamp
    assert equal(tensors(state), wanted)
    assert torch.equal(torch.get_rng_state(), random)
    assert state.table.tolist() == [3] * 10


def test_a_refusal_in_the_background_is_raised_by_the_next_commit_and_holds_up_nobody(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = LocalVault()
    state = make(vault)
    train(state)
    state.commit(wait="node")
    wanted = copies(state)

    def refuse(_size: int) -> memoryview:
        raise StateRefused("no memory")

    with monkeypatch.context() as here:
        here.setattr(vault, "open", refuse)
        state.commit()
        train(state)
        with pytest.raises(StateRefused, match="no memory"):
            state.commit(wait="node")
    assert "copy 2" in device.log
    assert state.restore() is not None
    assert equal(tensors(state), wanted)
    train(state)
    state.commit(wait="node")


def test_two_states_may_share_a_vault(device: FakeDevice) -> None:
    vault = LocalVault()
    one = make(vault)
    train(one)
    one.commit(wait="node")
    other = make(vault)
    other.restore()
    assert equal(tensors(one), tensors(other))
    assert "upload" in device.log


def test_a_device_registers_what_a_standby_maps_ahead(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_vault, "_PREPARE", [])
    monkeypatch.setattr(agent_vault, "_AHEAD", {1: memoryview(bytearray(5000))})
    make()
    assert device.log == ["register 5000"]


def test_what_a_hook_does_not_cover_and_is_large_is_copied_at_once_and_said_once(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runway, "STAGED_BYTES", 10_000)
    state = make(average=torch.ones(50_000))
    for _ in range(2):
        device.gate.clear()
        state.commit()
        state.average.zero_()
        device.gate.set()
        state.restore()
        assert state.average.sum() == 50_000
    assert capfd.readouterr().err.count("on a GPU belong to no optimizer of this state") == 1


def test_an_average_of_moderate_size_may_change_right_after_the_commit(device: FakeDevice) -> None:
    state = make(average=torch.ones(50_000))
    device.gate.clear()
    state.commit()
    state.average.zero_()
    state.model[1].running_mean.fill_(7)
    device.gate.set()
    state.restore()
    assert state.average.sum() == 50_000
    assert not state.model[1].running_mean.any()


def test_a_step_in_a_captured_graph_is_not_relied_upon(device: FakeDevice) -> None:
    state = make()
    train(state)
    state.commit(wait="node")
    device.captures = True
    train(state)
    wanted = copies(state)
    device.gate.clear()
    state.commit()
    train(state)
    device.gate.set()
    state.restore()
    assert equal(tensors(state), wanted)


def test_digests_are_the_device_s_and_verified_there(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    vault = LocalVault()
    state = make(vault)
    train(state)
    by_host: list[str] = []
    digest = snapshots._digest
    monkeypatch.setattr(
        snapshots, "_digest", lambda memory, tensor: (by_host.append(tensor.name), digest(memory, tensor))[1]
    )
    state.commit(wait="node")
    found = snapshots.read(vault._slots[0])
    assert found
    large = {tensor.name: tensor.digest_kind for tensor in found.tensors if tensor.length >= BLOCK_BYTES}
    assert len(large) == 3  # the first weight and its two moments
    assert {*large.values()} == {BLOCKS}
    state.restore()
    assert "upload" in device.log
    assert by_host
    assert not large.keys() & {*by_host}
    snapshots.verify(vault._slots[0], found)


@pytest.mark.usefixtures("device")
def test_a_copy_that_was_damaged_is_noticed_behind_the_upload_and_the_one_before_is_used(
    capfd: pytest.CaptureFixture[str],
) -> None:
    vault = LocalVault()
    state = make(vault)
    train(state)
    wanted = copies(state)
    state.commit(wait="node")
    train(state)
    state.commit(wait="node")
    damage(vault._slots[1])
    assert state.restore().step == 1  # type: ignore[union-attr]  # there is one
    assert equal(tensors(state), wanted)
    assert "model['0.weight'] is damaged" in capfd.readouterr().err
    damage(vault._slots[0])
    with pytest.raises(StateRefused, match="the state has been changed in part: the commit was damaged, and there is"):
        state.restore()


def damage(slot: memoryview) -> None:
    found = snapshots.read(slot)
    assert found
    row = next(tensor for tensor in found.tensors if tensor.digest_kind == BLOCKS)
    slot[row.offset + 1000] ^= 4


@pytest.mark.usefixtures("device")
def test_a_fresh_optimizer_gets_its_state_where_its_parameters_are() -> None:
    vault = LocalVault()
    state = make(vault)
    train(state)
    state.commit(wait="node")
    other = make(vault)
    other.restore()
    assert equal(tensors(other), tensors(state))
    train(other)
    other.commit(wait="node")


CHANGES: dict[str, Any] = {
    "nothing": lambda _state: None,
    "a learning rate": lambda state: state.optimizer.param_groups[0].update(lr=0.5),
    "a transposed parameter": lambda state: setattr(state.model.square, "data", state.model.square.data.t()),
    "another form": lambda state: setattr(state.model.shape, "data", state.model.shape.data.view(20, 80)),
    "fewer elements": lambda state: setattr(state.model.shape, "data", state.model.shape.data[:7]),
    "other memory": lambda state: setattr(state.model[0].weight, "data", state.model[0].weight.data.clone()),
    "a new buffer": lambda state: state.model[0].register_buffer("extra", torch.arange(5.0)),
    "a bias": lambda state: setattr(state.model[2], "bias", nn.Parameter(torch.ones(10))),
    "a buffer where there was none": lambda state: setattr(state.model, "late", torch.arange(5.0)),
    "another name": lambda state: state.model.add_module("last", state.model._modules.pop("2")),
    "a new state": lambda state: state.optimizer.load_state_dict(state.optimizer.state_dict()),
    "no state": lambda state: state.optimizer.state.clear(),
    "another group": lambda state: state.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]}),
    "another model": lambda state: setattr(state, "model", nn.Linear(3, 3)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("where", ["cpu", "another"])
@pytest.mark.usefixtures("device")
def test_a_second_walk_sees_every_change(monkeypatch: pytest.MonkeyPatch, change: str, where: str) -> None:
    monkeypatch.setattr(arrays, "DEVICES", (where,))
    state = make()
    state.model.register_parameter("square", nn.Parameter(torch.rand(40, 40)))
    state.optimizer.add_param_group({"params": [state.model.square]})
    state.model.register_buffer("shape", torch.rand(40, 40))
    state.model.register_buffer("late", None)
    train(state)
    state.commit(wait="node")
    CHANGES[change](state)
    model, optimizer = state.model.state_dict(), state.optimizer.state_dict()
    wanted = {key: item.clone() for key, item in model.items()}
    rate, states = optimizer["param_groups"][0]["lr"], len(optimizer["state"])
    state.commit(wait="node")
    with torch.no_grad():
        for part in state.model.state_dict().values():
            part.zero_()
    state.optimizer.param_groups[0]["lr"] = 9.0
    state.restore()
    assert {key: item.tolist() for key, item in state.model.state_dict().items()} == {
        key: item.tolist() for key, item in wanted.items()
    }
    assert state.optimizer.param_groups[0]["lr"] == rate
    assert len(state.optimizer.state_dict()["state"]) == states


@pytest.mark.usefixtures("device")
def test_tensors_that_a_program_has_replaced_are_not_held() -> None:
    state = make()
    train(state)
    state.commit(wait="node")
    first = weakref.ref(state.optimizer.state[state.model[0].weight]["exp_avg"])
    state.optimizer.state.clear()
    assert first() is None


@given(st.binary(max_size=200), st.integers(0, 3), st.integers(0, 2**20))
def test_sums_on_the_device_are_those_of_zlib(pattern: bytes, blocks: int, seed: int) -> None:
    length = blocks * BLOCK_BYTES + len(pattern)
    content = (pattern + seed.to_bytes(4, "little")) * (length // (len(pattern) + 4) + 1)
    content = content[:length]
    tensor = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
    wanted = [adler32(content[at : at + BLOCK_BYTES]) for at in range(0, length, BLOCK_BYTES)]
    assert [found & 0xFFFFFFFF for found in block_sums(tensor).tolist()] == wanted


def test_sums_of_the_largest_bytes_do_not_overflow() -> None:
    content = b"\xff" * (2 * BLOCK_BYTES)
    found = block_sums(torch.frombuffer(bytearray(content), dtype=torch.float32))
    assert [one & 0xFFFFFFFF for one in found.tolist()] == [adler32(content[:BLOCK_BYTES])] * 2


def test_a_gpu_without_a_kernel_has_right_sums_and_says_once_why_they_are_slow(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Refused:
        def launch(self, *_blocks: object) -> None:
            raise OSError("its compiler refused")

    gpu = Cuda.__new__(Cuda)  # without a GPU to make it of
    gpu.device, gpu._said, gpu._kernel = torch.device("cpu"), set(), Refused()  # type: ignore[assignment]  # stands in for it
    gpu._cuda = SimpleNamespace(current_stream=lambda _device: SimpleNamespace(cuda_stream=0))
    content = bytes(range(256)) * 200
    parts = [torch.frombuffer(bytearray(content), dtype=torch.uint8), torch.zeros(10, dtype=torch.uint8)]
    blocks = gpu.blocks(parts)
    for _ in range(2):
        gpu.sum_blocks(blocks, parts)
    wanted = [adler32(content[:BLOCK_BYTES]), adler32(content[BLOCK_BYTES:]), adler32(bytes(10))]
    assert [found & 0xFFFFFFFF for found in blocks.sums.tolist()] == wanted
    told = "planaria: the GPU computes digests with torch's operations, which is slower: its compiler refused (said once)\n"
    assert capfd.readouterr().err == told


def test_a_gpu_that_is_full_for_a_moment_is_not_told_to_be_slow_for_good(capfd: pytest.CaptureFixture[str]) -> None:
    problems: list[OSError] = [NoMemory("it is full"), NoMemory("it is full"), OSError("its compiler refused")]

    class Full:
        def launch(self, *_blocks: object) -> None:
            raise problems.pop(0)

    gpu = Cuda.__new__(Cuda)  # without a GPU to make it of
    gpu.device, gpu._said, gpu._kernel = torch.device("cpu"), set(), Full()  # type: ignore[assignment]  # stands in for it
    gpu._cuda = SimpleNamespace(current_stream=lambda _device: SimpleNamespace(cuda_stream=0))
    parts = [torch.zeros(10, dtype=torch.uint8)]
    blocks = gpu.blocks(parts)
    for _ in range(3):
        gpu.sum_blocks(blocks, parts)
        assert blocks.sums.tolist() == [adler32(bytes(10))]
    first, second = capfd.readouterr().err.splitlines()
    slow = "planaria: the GPU computes digests with torch's operations"
    assert first == f"{slow} until it has memory for their kernel, which is slower: it is full (said once)"
    assert second == f"{slow}, which is slower: its compiler refused (said once)"
