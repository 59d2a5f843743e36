"""Hand a state from one rank to the others over the process group that the training has anyway."""

from __future__ import annotations

import atexit
import sys

from planaria.base.value import Value
from planaria.contract import snapshot as snapshots
from planaria.errors import StateRefused
from planaria.worker import parts
from planaria.worker.capture import Captured
from planaria.worker.last_work import wait_for_gloo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from planaria.contract.commit import Order, Stamp

atexit.register(wait_for_gloo)  # also where no bootstrap has: under other launchers, or with --no-bootstrap
PIECE_BYTES = 64 << 20  # a GPU that holds a model has no room for its whole state once more


class Group(Value):
    """torch's default process group, and the device its messages lie on."""

    rank: int
    world_size: int
    device: str


def group() -> Group | None:
    """Return the process group when there is one with others in it."""
    dist: Any = sys.modules.get("torch.distributed")
    if not dist or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    torch = sys.modules["torch"]
    on_gpu = "nccl" in dist.get_backend() and "gloo" not in dist.get_backend()
    return Group(dist.get_rank(), dist.get_world_size(), f"cuda:{torch.cuda.current_device()}" if on_gpu else "cpu")


def agree(group: Group, stamp: Stamp | None, generation: int) -> tuple[int | None, Order | None, int]:
    """Return the lowest rank with the newest commit and that commit; no rank when all have it already.

    At a first start nobody has one, and rank 0 is the source. Third is the highest `generation` that any rank counts on from.
    """
    found = gathered(group, (*(stamp.order if stamp else (0, 0, 0)), generation))
    orders = [(run, round_, newest_here) for run, round_, newest_here, _ in found]
    highest = max(one[3] for one in found)
    newest = max(orders)
    if not any(newest):
        return 0, None, highest
    if {*orders} == {newest}:
        return None, newest, highest
    return orders.index(newest), newest, highest


def gathered(group: Group, numbers: tuple[int, ...], among: Any = None) -> list[tuple[int, ...]]:
    """Return the numbers of all ranks, by rank; each has as many. `among` is another process group than the default one."""
    torch: Any = sys.modules["torch"]
    mine = torch.tensor(numbers, dtype=torch.int64, device=group.device)
    found = [torch.empty_like(mine) for _ in range(group.world_size)]
    torch.distributed.all_gather(found, mine, group=among)
    return [tuple(one.tolist()) for one in found]


def pack(state: Mapping[str, object], stamp: Stamp) -> memoryview:
    """Return the state as a sealed snapshot, without this rank's random numbers."""
    others = {name: value for name, value in state.items() if parts.kind_of(value) not in parts.GENERATORS}
    captured = Captured(others, random=None)
    memory = memoryview(bytearray(captured.layout.size_bytes))
    captured.copy_into(memory)
    snapshots.seal(memory, captured.layout, stamp)
    return memory


def unpack(memory: memoryview) -> snapshots.Snapshot:
    """Return the snapshot that another rank sent.

    Raises:
        StateRefused: It is not whole.
    """
    try:
        if found := snapshots.read(memory):
            snapshots.verify(memory, found)
            return found
    except ValueError as problem:
        raise StateRefused(f"what another rank sent is no whole snapshot: {problem}") from problem
    raise StateRefused("what another rank sent is no whole snapshot: it is not sealed")


def broadcast(group: Group, source: int, sent: memoryview | None, among: Any = None) -> memoryview:
    """Send bytes from one rank to all; return them. `among` is another process group of all than the default one."""
    torch: Any = sys.modules["torch"]
    size = torch.tensor([len(sent) if sent is not None else 0], dtype=torch.int64, device=group.device)
    torch.distributed.broadcast(size, source, group=among)
    memory = sent if sent is not None else memoryview(bytearray(int(size.item())))
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    for here in whole.split(PIECE_BYTES):
        moved = here.to(group.device)
        torch.distributed.broadcast(moved, source, group=among)
        if moved is not here:
            here.copy_(moved)
    return memory
