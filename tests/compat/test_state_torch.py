"""The elastic state with real torch objects on the CPU: after a restore training goes on bit by bit as if nothing had been."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("models come with torch", allow_module_level=True)

import torch
from torch import nn

from planaria.contract.commit import Origin
from planaria.errors import StateRefused
from planaria.worker.state import ElasticState
from planaria.worker.vault import Loaded, LocalVault

pytestmark = pytest.mark.torch
TIMEOUT_S = 100


def model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(8 * 36, 16),
        nn.LayerNorm(16),
    )


SCHEDULERS: dict[str, Any] = {
    "one cycle": lambda opt: torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=100),
    "cosine": lambda opt: torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20),
    "restarts": lambda opt: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 3),
    "milestones": lambda opt: torch.optim.lr_scheduler.MultiStepLR(opt, [2, 7, 7]),
    "lambda": lambda opt: torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 0.9**step),
    "sequence": lambda opt: torch.optim.lr_scheduler.SequentialLR(
        opt,
        [torch.optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=4), torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)],
        [4],
    ),
    "cyclic": lambda opt: torch.optim.lr_scheduler.CyclicLR(opt, 0.01, 0.1, cycle_momentum=False),
}
OPTIMIZERS: dict[str, Any] = {
    "adamw": lambda params: torch.optim.AdamW(params, lr=1e-2, amsgrad=True),
    "fused adamw": lambda params: torch.optim.AdamW(params, lr=1e-2, fused=True),
    "tensor lr": lambda params: torch.optim.AdamW(params, lr=torch.tensor(1e-2)),
    "sgd": lambda params: torch.optim.SGD(params, lr=1e-2, momentum=0.9, nesterov=True),
    "adagrad": lambda params: torch.optim.Adagrad(params, lr=1e-2),
    "rmsprop": lambda params: torch.optim.RMSprop(params, lr=1e-2, centered=True),
}


def make(vault: LocalVault, optimizer: str = "adamw", scheduler: str = "one cycle") -> ElasticState:
    net = model()
    opt = OPTIMIZERS[optimizer](net.parameters())
    sched = SCHEDULERS[scheduler](opt)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    average = {name: parameter.detach().clone() for name, parameter in net.named_parameters()}
    return ElasticState(vault=vault, model=net, optimizer=opt, scheduler=sched, scaler=scaler, average=average, step=0)


def train(state: ElasticState) -> float:
    """One step with everything that has a state: dropout, BatchNorm, scaler, schedule, an average, three sources of chance."""
    inputs = torch.randn(4, 3, 8, 8) + random.random()
    state.optimizer.zero_grad()
    loss = state.model(inputs).square().mean()
    state.scaler.scale(loss).backward()
    state.scaler.step(state.optimizer)
    state.scaler.update()
    state.scheduler.step()
    for name, parameter in state.model.named_parameters():
        state.average[name].lerp_(parameter.detach(), 0.1)
    state.step += 1
    return float(loss.item())


def same(one: Any, other: Any) -> bool:
    """Compare bit by bit: types, and tensors by their bytes."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and raw(one) == raw(other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def raw(tensor: torch.Tensor) -> bytes:
    return (
        bytes(tensor.detach().resolve_conj().contiguous().reshape(-1).view(torch.uint8).tolist())
        if tensor.numel()
        else b""
    )


def everything(state: ElasticState) -> list[Any]:
    stateful = (state.model, state.optimizer, state.scheduler, state.scaler)
    return [
        *(part.state_dict() for part in stateful),
        state.average,
        state.step,
        torch.get_rng_state(),
        random.getstate(),
    ]


@pytest.mark.parametrize(
    ("optimizer", "scheduler"),
    [
        *((name, "cosine") for name in OPTIMIZERS if name != "tensor lr"),
        *(("adamw", name) for name in SCHEDULERS),
        ("tensor lr", "cosine"),
    ],
)
def test_training_goes_on_bit_by_bit_in_a_new_life(optimizer: str, scheduler: str) -> None:
    torch.manual_seed(1)
    vault = LocalVault()
    state = make(vault, optimizer, scheduler)
    for _ in range(5):
        train(state)
    state.commit()
    kept = json.dumps(str(everything(state)))
    losses = [train(state) for _ in range(5)]
    torch.manual_seed(2)
    other = make(vault, optimizer, scheduler)
    train(other)  # a life of its own, so that every state exists already, and is different
    assert other.restore()
    assert json.dumps(str(everything(other))) == kept
    assert [train(other) for _ in range(5)] == losses
    assert same(everything(other), everything(state))


def test_the_comparison_sees_a_single_bit() -> None:
    state = make(LocalVault())
    before = [part.clone() for part in state.model.state_dict().values()]
    assert same(before, [*state.model.state_dict().values()])
    with torch.no_grad():
        state.model[0].weight.view(torch.int32).view(-1)[0] ^= 1
    assert not same(before, [*state.model.state_dict().values()])


def test_a_restore_is_in_place_and_lets_go_of_the_snapshot() -> None:
    vault = LocalVault()
    state = make(vault)
    train(state)
    state.commit(wait="node")
    places = [part.data_ptr() for part in tensors(state)]
    train(state)
    state.restore()
    assert [part.data_ptr() for part in tensors(state)] == places
    fresh = make(vault)
    fresh.restore()
    wanted = [part.clone() for part in tensors(fresh)]
    for slot in vault._slots:
        slot[4096:] = bytes(len(slot) - 4096)
    assert same(wanted, tensors(fresh))


def tensors(state: ElasticState) -> list[torch.Tensor]:
    found = [*state.model.state_dict().values(), *state.average.values()]
    for kept in state.optimizer.state.values():
        found += [part for part in kept.values() if isinstance(part, torch.Tensor)]
    return found


def test_a_commit_from_before_the_first_step_takes_the_optimizer_back_to_nothing() -> None:
    state = make(LocalVault())
    state.commit()
    train(state)
    state.restore()
    assert not state.optimizer.state
    assert state.step == 0


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.int64, torch.bool),
        *(torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16),
    ],
    ids=str,
)
def test_tensors_of_every_dtype_and_form_come_back(dtype: torch.dtype) -> None:
    base = torch.randint(0, 2, (4, 6)).to(dtype)
    forms = [
        base,
        base.t(),
        base[::2, 1:],
        base[0, 0],
        base[:0],
        base.contiguous(),
        base.conj() if dtype.is_complex else base,
    ]
    state = ElasticState(forms=forms, first=base)
    state.commit()
    state.forms = state.first = None
    state.restore()
    assert same([*state.forms, state.first], [*forms, base])


def test_channels_last_stays_channels_last() -> None:
    net = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    state = ElasticState(model=net)
    state.commit()
    wanted = net.weight.detach().clone()
    with torch.no_grad():
        net.weight.zero_()
    state.restore()
    assert torch.equal(net.weight, wanted)
    assert net.weight.is_contiguous(memory_format=torch.channels_last)


def test_tied_weights_are_kept_once() -> None:
    net = nn.Sequential(nn.Linear(300, 300, bias=False), nn.Linear(300, 300, bias=False))
    net[1].weight = net[0].weight
    assert ElasticState(model=net).commit().size_bytes < 2 * 300 * 300 * 4


def test_float32_state_beside_bfloat16_parameters_is_not_rounded() -> None:
    net = nn.Linear(3, 3).bfloat16()
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    opt.state[net.weight]["momentum_buffer"] = torch.rand(3, 3)
    state = ElasticState(model=net, optimizer=opt)
    state.commit()
    wanted = opt.state[net.weight]["momentum_buffer"].clone()
    for clear in (False, True):
        if clear:
            opt.state.clear()
        state.restore()
        assert same(opt.state[net.weight]["momentum_buffer"], wanted)


def test_generators_of_torch_go_on_where_they_were() -> None:
    state = ElasticState(own=torch.Generator().manual_seed(4))
    state.commit()
    wanted = [torch.rand(3), torch.rand(3, generator=state.own)]
    state.restore()
    assert same([torch.rand(3), torch.rand(3, generator=state.own)], wanted)


def test_the_versions_of_layers_are_kept() -> None:
    seen: list[object] = []

    class Versioned(nn.Linear):
        _version = 7

        def _load_from_state_dict(self, state_dict: Any, prefix: Any, local_metadata: Any, *rest: Any) -> None:
            seen.append(local_metadata.get("version"))
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)  # type: ignore[no-untyped-call]

    state = ElasticState(model=Versioned(2, 2))
    state.commit()
    state.restore()
    assert seen == [7]


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (
            lambda: nn.Linear(4, 5),
            r"model: weight is torch.float32 \(5, 4\) here and torch.float32 \(3, 4\) in the snapshot",
        ),
        (lambda: nn.Linear(4, 3).double(), "model: weight is torch.float64 .* here"),
        (lambda: nn.Linear(4, 3, bias=False), "bias is only in the snapshot"),
        (lambda: nn.Sequential(nn.Linear(4, 3)), r"0.bias is only in the program \(4 differ\)"),
    ],
)
def test_another_model_is_refused_with_the_difference_and_nothing_is_changed(other: Any, says: str) -> None:
    vault = LocalVault()
    ElasticState(vault=vault, epoch=5, model=nn.Linear(4, 3)).commit()
    net = other()
    before = [part.clone() for part in net.state_dict().values()]
    state = ElasticState(vault=vault, model=net, epoch=0)
    with pytest.raises(StateRefused, match=says):
        state.restore()
    assert state.epoch == 0
    assert same(before, [*net.state_dict().values()])


def test_another_optimizer_s_groups_are_refused() -> None:
    vault = LocalVault()
    net = nn.Linear(2, 2)
    ElasticState(vault=vault, model=net, optimizer=torch.optim.SGD(net.parameters())).commit()
    groups = [{"params": [net.weight]}, {"params": [net.bias]}]
    state = ElasticState(vault=vault, model=net, optimizer=torch.optim.SGD(groups))
    with pytest.raises(
        StateRefused, match=r"optimizer has parameters in groups of \[1, 1\], and the snapshot has groups of \[2\]"
    ):
        state.restore()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (lambda: torch.eye(3).to_sparse(), r"^x\[0\] cannot be kept: it is a tensor without plain bytes"),
        (lambda: torch.empty(2, device="meta"), r"^x\[0\] cannot be kept: it is a tensor without plain bytes"),
        (lambda: nn.Linear(1, 1), r"^x\[0\] cannot be kept: it is a torch.nn.modules.linear.Linear"),
    ],
)
def test_tensors_without_plain_bytes_are_refused(value: Any, says: str) -> None:
    with pytest.raises(StateRefused, match=says):
        ElasticState(x=[value()]).commit()


def test_compiled_modules_are_the_modules_inside() -> None:
    net = nn.Linear(2, 2)
    vault = LocalVault()
    ElasticState(vault=vault, model=torch.compile(net, backend="eager")).commit()
    other = nn.Linear(2, 2)
    ElasticState(vault=vault, model=other).restore()
    assert torch.equal(net.weight, other.weight)


class Second(LocalVault):
    """Rank 1 of a node on which rank 0 keeps the parameters."""

    def __init__(self, leader: LocalVault) -> None:
        super().__init__(Origin(rank=1, world_size=2, keeps_shared=False))
        self._leader = leader

    def load(self, *, is_damaged: bool = False) -> Loaded:
        own, shared = super().load(is_damaged=is_damaged), self._leader.load()
        assert shared
        return Loaded(own.own if own else None, shared.own)


def test_statistics_of_batchnorm_are_each_rank_s_own_and_parameters_are_kept_once() -> None:
    leader = LocalVault(Origin(world_size=2))
    other = Second(leader)
    first, second = normalising(leader), normalising(other)
    for mean, state in ((3.0, first), (5.0, second)):
        state.model.running_mean.fill_(mean)
        state.model.weight.data.fill_(0.25)  # as DDP would have it, the same on both
        assert state.commit(wait="node")
    assert first.commit().size_bytes > second.commit().size_bytes + 2 * 2000 * 4
    for vault, mean in ((leader, 3.0), (other, 5.0)):
        fresh = normalising(vault)
        assert fresh.restore()
        assert (fresh.model.running_mean == mean).all()
        assert (fresh.model.weight == 0.25).all()
    newcomer = normalising(Second(leader))
    assert newcomer.restore()
    assert (newcomer.model.running_mean == 3.0).all()


def normalising(vault: LocalVault) -> ElasticState:
    net = nn.BatchNorm1d(2000)
    return ElasticState(vault=vault, model=net, optimizer=torch.optim.AdamW(net.parameters()), replicated=True)


WORLD = """
import functools, json, os, random, sys, warnings
import torch, torch.distributed as dist
from torch import nn
from planaria.contract.commit import Origin
from planaria.worker import exchange
from planaria.worker.sharded import ShardedState
from planaria.worker.state import ElasticState
from planaria.worker.vault import LocalVault

rank, what = int(sys.argv[1]), sys.argv[3]
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
torch.manual_seed(rank)
net = nn.Linear(3, 3)
origin = Origin(rank=rank, world_size=2)
if what == "ddp":
    vault = LocalVault(origin)
    wrapped = nn.parallel.DistributedDataParallel(net)
    ElasticState(vault=vault, model=wrapped).commit()
    plain = nn.Linear(3, 3)
    state = ElasticState(vault=vault, model=plain)
    state.restore()
    assert torch.equal(plain.weight, net.weight)
    assert ElasticState(model=wrapped)._replicated and not state._replicated
elif what == "sharded":
    from torch.distributed.fsdp import fully_shard, FullyShardedDataParallel
    from planaria.errors import StateRefused
    try:
        ElasticState(model=fully_shard(nn.Linear(4, 4))).commit()
    except StateRefused as exc:
        assert str(exc).startswith("model['weight'] cannot be kept: it is sharded (a DTensor)"), exc
    else:
        sys.exit("not refused")
    for flags in ({}, {"use_orig_params": True}):
        inner = nn.Linear(4, 4)
        wrapped = FullyShardedDataParallel(inner, device_id=torch.device("cpu"), **flags)
        optimizer = torch.optim.AdamW(wrapped.parameters())
        for given in ({"model": nn.Sequential(wrapped)}, {"model": inner}, {"optimizer": optimizer}, {"critic": wrapped}):
            for make in (ElasticState, functools.partial(ShardedState, sys.argv[2] + ".commits")):
                try:
                    make(**given)
                except StateRefused as exc:
                    name = next(iter(given))
                    assert str(exc).startswith(f"{name} is sharded by FullyShardedDataParallel (FSDP1)"), exc
                else:
                    sys.exit(f"not refused: {make} {given} {flags}")
elif what in ("apart", "apart and behind"):
    from planaria.errors import StateRefused
    state = ElasticState(vault=LocalVault(origin), model=net, step=10 + rank, replicated=False)
    before = net.weight.tolist()
    assert state.sync().stamp is None
    assert (net.weight.tolist(), state.step) == (before, 10 + rank)
    if what == "apart" or rank == 1:
        state.step = 12
        state.commit(wait="node")
    try:
        assert state.sync().from_rank == rank
    except StateRefused as exc:
        assert str(exc).startswith("not all ranks have the newest commit, which rank 1 has"), exc
        assert what == "apart and behind"
    else:
        assert what == "apart"
    assert net.weight.tolist() == before
else:
    vault = LocalVault(origin)
    exchange.PIECE_BYTES = 1000
    own = torch.Generator().manual_seed(rank)
    state = ElasticState(vault=vault, model=net, step=10 + rank, own=own)
    if what == "behind" and rank == 1:
        state.commit()
    random.seed(rank)
    chance = random.getstate()
    synced = state.sync()
    if what == "fresh" or rank == 0:  # rank 1 has gone back to its own commit
        assert random.getstate() == chance
    second = state.sync() if what == "behind" else None
    assert torch.equal(own.get_state(), torch.Generator().manual_seed(rank).get_state())
    told = [synced.from_rank, synced.stamp and synced.stamp.generation, state.step, net.weight.tolist()]
    print(json.dumps([*told, state.commit().stamp.generation]))  # all count on alike, whoever had committed before
dist.destroy_process_group()
"""


def world(tmp_path: Path, what: str) -> list[Any]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORLD, str(rank), str(tmp_path / "meet"), what],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        told = [process.communicate(timeout=TIMEOUT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], told
    return [json.loads(out) if out else None for out, _ in told]


def test_ranks_behind_get_the_state_of_the_newest_and_keep_their_chance(tmp_path: Path) -> None:
    first, second = world(tmp_path, "behind")
    assert first == second
    assert first[:3] == [1, 1, 11]


def test_at_a_first_start_all_get_rank_0_s_state(tmp_path: Path) -> None:
    first, second = world(tmp_path, "fresh")
    assert first == second
    assert first[:3] == [0, None, 10]


@pytest.mark.parametrize("what", ["apart", "apart and behind"])
def test_models_of_each_rank_s_own_are_never_overwritten_by_another_rank_s(tmp_path: Path, what: str) -> None:
    world(tmp_path, what)


def test_a_ddp_module_is_the_module_inside_and_replicated(tmp_path: Path) -> None:
    world(tmp_path, "ddp")


def test_sharded_modules_are_refused_with_a_sentence(tmp_path: Path) -> None:
    world(tmp_path, "sharded")
