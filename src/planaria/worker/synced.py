"""What the log says once a rank has its state: from which rank it came, and where training goes on.

[INFO] 2026-11-15 23:09:25,385 planaria: Rank 1: Model state synced from rank: 0
        batch_size=32
        num_data_workers=0
        data_start_index=0
        iteration=0
        epoch=0/10
"""

from __future__ import annotations

import time

from planaria.worker.console import show
from planaria.worker.vault import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from planaria.contract.commit import Origin, Stamp

_has_been_told = False


def log_synced(state: object, rank: int, from_rank: int) -> None:
    """Write the block to stderr, at once and once in the life of this process: a state may be synced more often."""
    global _has_been_told  # noqa: PLW0603  a process is a life
    if _has_been_told:
        return
    _has_been_told = True
    show(_head(time.time_ns()) + block(state, rank, from_rank))


def tell_other_world(then: Stamp, here: Origin) -> None:
    """Tell what becomes of models that were each rank's own, where there are fewer or more ranks now. Rank 0 does, for all."""
    was, now = then.world_size, here.world_size
    if here.rank or was == now:
        return
    ranks = _ranks(min(was, now), max(was, now))
    lost = f"what {ranks} had is not used" if now < was else f"for {ranks} there is what rank 0 had"
    say(
        f"the snapshot is of {was} ranks, each with a model of its own (replicated=False), and this world has {now}: {lost}"
    )


def _ranks(first: int, stop: int) -> str:
    return f"rank {first}" if stop - first == 1 else f"ranks {first} to {stop - 1}"


def block(state: object, rank: int, from_rank: int) -> str:
    """Return the block. What is not known, as the place in the data of a state without a sampler, has no line."""
    sampler = getattr(state, "sampler", None)
    known = {
        "batch_size": getattr(sampler, "batch_size", None),
        "num_data_workers": getattr(sampler, "num_data_workers", None),
        "data_start_index": getattr(sampler, "data_start_index", None),
        "iteration": getattr(state, "step", None),
        "epoch": _epoch(state, sampler),
    }
    lines = [f"\t{name}={value}\n" for name, value in known.items() if value is not None]
    return f"Rank {rank}: Model state synced from rank: {from_rank}\n" + "".join(lines)


def _epoch(state: object, sampler: Any) -> str | None:
    epoch = getattr(sampler, "epoch", getattr(state, "epoch", None))
    wanted = getattr(sampler, "epochs_wanted", None)
    return f"{epoch}/{wanted}" if epoch is not None and wanted is not None else epoch


def _head(now_ns: int) -> str:
    seconds, rest = divmod(now_ns, 10**9)
    return time.strftime("[INFO] %Y-%m-%d %H:%M:%S", time.localtime(seconds)) + f",{rest // 10**6:03d} planaria: "
