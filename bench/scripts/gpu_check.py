"""See that commits of tensors on this GPU, of every form, are right: where tests run there is none. Prints one line."""

import threading
from zlib import adler32

import torch
from torch import nn

from planaria.contract.snapshot import BLOCK_BYTES
from planaria.worker.device import Cuda, block_sums
from planaria.worker.state import ElasticState
from planaria.worker.vault import LocalVault


def check_sums() -> None:
    device = Cuda(0)
    whole = torch.randint(0, 256, (5 * BLOCK_BYTES + 1000,), dtype=torch.uint8, device="cuda")
    parts = [
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


def check_state(kind: str) -> None:
    vault = LocalVault()
    state = make(vault, kind)
    for turn in range(4):
        train(state)
        wanted = [part.clone() for part in tensors(state)]
        state.commit()
        for _ in range(turn):
            train(state)
        other = make(vault, kind) if turn % 2 else state
        if other is not state:
            for thread in threading.enumerate():
                if thread.name == "planaria seal":
                    thread.join()
        stamp = other.restore()
        assert stamp is not None
        found = tensors(other)
        for place, (one, two) in enumerate(zip(wanted, found, strict=True)):
            assert one.dtype == two.dtype, (kind, turn, place)
            assert torch.equal(one, two.to(one.device)), (kind, turn, place, one.shape)
        state.restore()


check_sums()
for kind in ("adamw, fused", "adamw", "sgd"):
    check_state(kind)
print("gpu check: all is right", flush=True)
