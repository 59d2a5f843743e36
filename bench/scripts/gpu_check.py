"""See that commits of tensors on this GPU, of every form, are right: where tests run there is none. Prints one line."""

import mmap
import sys
import traceback
from collections.abc import Callable
from functools import partial
from unittest import mock
from zlib import adler32

import torch
from torch import nn

from planaria.contract.snapshot import BLOCK_BYTES
from planaria.errors import StateRefused
from planaria.worker import kernel
from planaria.worker.device import Cuda, block_sums
from planaria.worker.kernel import BULK, PLAIN, Form, forms_for
from planaria.worker.state import ElasticState
from planaria.worker.vault import LocalVault


def check_sums(form: Form) -> None:
    with mock.patch.object(kernel, "forms_for", return_value=(form,)):
        device = Cuda(0)
    whole = torch.randint(0, 256, (5 * BLOCK_BYTES + 1000,), dtype=torch.uint8, device="cuda")
    parts = [
        torch.randint(0, 256, (2000 * BLOCK_BYTES + 20_005,), dtype=torch.uint8, device="cuda"),
        whole,
        whole[16:40_000],
        whole[:1],
        torch.full_like(whole, 255),
        torch.zeros_like(whole)[: 2 * BLOCK_BYTES],
    ]
    blocks = device.blocks(parts)
    device._kernel.launch(blocks, torch.cuda.current_stream().cuda_stream)  # noqa: SLF001  without the way around it
    contents = [bytes(part.cpu().numpy()) for part in parts]
    wanted = [adler32(one[at : at + BLOCK_BYTES]) for one in contents for at in range(0, len(one), BLOCK_BYTES)]
    assert [found & 0xFFFFFFFF for found in blocks.sums.tolist()] == wanted, "the kernel's sums are wrong"
    plain = torch.cat([block_sums(part) for part in parts])
    assert torch.equal(plain, blocks.sums), "the sums by torch's operations are wrong"


class Odd(nn.Module):
    """Parameters that are not dense, begin at odd addresses, are of other dtypes, or frozen; buffers that change."""

    def __init__(self) -> None:
        super().__init__()
        self.convolve = nn.Conv2d(16, 64, 3).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(64)
        self.narrow = nn.Linear(64, 64).bfloat16()
        self.frozen = nn.Parameter(torch.rand(100_000), requires_grad=False)
        self.shifted = nn.Parameter(torch.rand(40_001).cuda()[1:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.norm(self.convolve(x)).mean((2, 3))
        return self.narrow(found.bfloat16()).float().square().mean() + (self.shifted * self.frozen[:40_000]).mean()


def make(vault: LocalVault, kind: str) -> ElasticState:
    model = Odd().cuda()
    if kind == "adamw, fused":
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    elif kind == "adamw":
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return ElasticState(vault=vault, model=model, optimizer=optimizer, average=torch.zeros(1000, device="cuda"), step=0)


def train(state: ElasticState) -> None:
    state.optimizer.zero_grad()
    state.model(torch.randn(8, 16, 12, 12, device="cuda")).backward()
    state.optimizer.step()
    state.average.add_(1)
    state.step += 1


def tensors(state: ElasticState) -> list[torch.Tensor]:
    states = [item for kept in state.optimizer.state.values() for item in kept.values() if torch.is_tensor(item)]
    return [*state.model.state_dict().values(), *states, state.average]


def check_state(kind: str, path: str) -> None:
    vault = LocalVault()
    state = make(vault, kind)
    choose(state, path)
    for turn in range(5):
        train(state)
        wanted = [part.clone() for part in tensors(state)]
        state.commit()
        for _ in range(turn):
            train(state)
        other = make(vault, kind) if turn % 2 else state
        choose(other, path)
        state._finish_sealing()  # noqa: SLF001  another state reads the same vault
        stamp = other.restore()
        assert stamp is not None
        found = tensors(other)
        for place, (one, two) in enumerate(zip(wanted, found, strict=True)):
            assert one.dtype == two.dtype, (kind, path, turn, place)
            assert torch.equal(one, two.to(one.device)), (kind, path, turn, place, one.shape)
        state.restore()


def choose(state: ElasticState, path: str) -> None:
    """Have a state use one of the ways that copies can go; the first is what is used where everything works."""
    device = state._runway.device  # noqa: SLF001  each way is seen by itself
    assert device is not None
    if path == "one by one":
        device._copies_many = False  # noqa: SLF001
    elif path == "not registered":
        device._driver = None  # noqa: SLF001
    elif path == "torch's sums":
        device._kernel._problem = "it is not wanted"  # noqa: SLF001


def check_overlap() -> None:
    """Commits as fast as they go, none waited for: each one that is restored is of one moment."""
    vault = LocalVault()
    model = nn.Sequential(*(nn.Linear(1000, 1000) for _ in range(20))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    state = ElasticState(vault=vault, model=model, optimizer=optimizer, step=0)
    with torch.no_grad():
        for part in model.parameters():
            part.zero_()
    for _ in range(5):
        for _ in range(40):
            for part in model.parameters():
                part.grad = torch.full_like(part, -1.0)
            optimizer.step()
            state.step += 1
            state.commit()
        state.restore()
        found = {value for part in model.parameters() for value in part.unique().tolist()}
        assert found == {float(state.step)}, (state.step, found)


def check_changed() -> None:
    """What is changed by hand before its copy is over is noticed, and what a step changes is not."""
    vault = LocalVault()
    model = nn.Sequential(*(nn.Linear(4000, 4000) for _ in range(10))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    state = ElasticState(vault=vault, model=model, optimizer=optimizer, step=0)
    for turn in range(6):
        for part in model.parameters():
            part.grad = torch.full_like(part, -1.0)
        optimizer.step()
        state.commit()
        if turn == 3:
            with torch.no_grad():
                model[9].weight.zero_()
        is_noticed = False
        try:
            state._finish_sealing()  # noqa: SLF001  what went wrong is raised here
        except StateRefused:
            is_noticed = True
        assert is_noticed == (turn == 3), turn


def check_registered() -> None:
    """Memory that is mapped again and again at the same addresses, and what many states share, is registered each time."""
    device = Cuda(0)
    for _ in range(5):
        slots = [memoryview(mmap.mmap(-1, 1 << 24)) for _ in range(3)]
        assert all(device.register(slot) for slot in slots)
        assert all(Cuda(0).register(slot) for slot in slots)
    torch.zeros(3, device="cuda").sum().item()  # nothing is left behind for others to find
    assert device._copies_many  # noqa: SLF001


def check_copies() -> None:
    device, memory = Cuda(0), memoryview(mmap.mmap(-1, 1 << 24))
    assert device.register(memory)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    sizes = [1, 7, 4096, 100_000, 1 << 20]
    sources = [torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda") for size in sizes]
    targets = [whole[sum(sizes[:at]) : sum(sizes[: at + 1])] for at in range(len(sizes))]
    torch.cuda.synchronize()
    with device.beside():
        device.copy_many(targets, sources, is_registered=True)
    torch.cuda.synchronize()
    assert all(torch.equal(one, other.cpu()) for one, other in zip(targets, sources, strict=True))
    assert device._copies_many, "the driver does not take many copies at once"  # noqa: SLF001


PATHS = ("whole", "one by one", "not registered", "torch's sums")
ABOUT = torch.cuda.get_device_properties(0)
HAS_BULK = BULK in forms_for(ABOUT.major, ABOUT.shared_memory_per_block_optin)
CHECKS: dict[str, Callable[[], None]] = {
    "sums": partial(check_sums, PLAIN),
    **({"sums of what is brought": partial(check_sums, BULK)} if HAS_BULK else {}),
    "registered": check_registered,
    "copies": check_copies,
    "overlap": check_overlap,
    "changed": check_changed,
    **{
        f"{kind}, {path}": partial(check_state, kind, path)
        for kind in ("adamw, fused", "adamw", "sgd")
        for path in PATHS
    },
}
failed = 0
for name, check in CHECKS.items():
    try:
        check()
    except Exception:  # noqa: BLE001  the others are worth knowing as well
        failed += 1
        print(f"gpu check: {name} is wrong\n{traceback.format_exc()}", flush=True)
told = f"{failed} of {len(CHECKS)} are wrong" if failed else f"all {len(CHECKS)} are right"
print(f"gpu check: {told}", flush=True)
sys.exit(bool(failed))
