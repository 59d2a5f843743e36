"""What lives inside the training process. Imports `contract`, `base` and `errors` only, and works without torch.

    from planaria import worker
    for step, batch in enumerate(batches):
        with worker.expires(after=60, scope="step"):
            train(batch)
        worker.report_progress(step, loss=loss)
        if worker.should_stop():  # all ranks at the same step
            worker.leave(state)

Under `planaria run`, or an agent that a program embeds, the agent hears of it; where there is none all this does nothing.
`ElasticState` keeps the training state (docs/state.md), `train_loop` has all of it together (docs/loop.md).
"""

from __future__ import annotations

import sys

from planaria.contract.control import Drain, Resize
from planaria.worker.link import LINK as _LINK
from planaria.worker.loop import leave, should_stop, train_loop
from planaria.worker.phase import PhaseOfWork
from planaria.worker.scope import Scope, caller
from planaria.worker.state import ElasticState
from planaria.worker.vault import LocalVault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.worker.sharded import ShardedState

__all__ = [
    "Drain",
    "ElasticState",
    "LocalVault",
    "Resize",
    "Scope",
    "ShardedState",
    "drain_notice",
    "end_progress",
    "expires",
    "join",
    "leave",
    "phase",
    "report_progress",
    "resize_notice",
    "should_stop",
    "train_loop",
]


def __getattr__(name: str) -> object:
    """Load what few programs need when they ask for it."""
    if name == "ShardedState":
        from planaria.worker.sharded import ShardedState

        return ShardedState
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def join() -> None:
    """Mark where a worker takes its place: a standby runs the program up to here and waits for its rank and world.

        model = build()              # may take its time: the standby has done it before it is needed
        worker.join()
        torch.distributed.init_process_group()

    In a process that is a worker already it returns at once. In a standby, reading RANK, WORLD_SIZE, MASTER_* and the like
    before it, or starting a process group, is an error. Call it once, in the main program.

    Raises:
        RuntimeError: A process group was started before, or a child that the standby forked has come here.
    """
    wait = getattr(sys, "_planaria_join", None)  # the bootstrap put it there
    if wait is not None:
        wait()


def report_progress(step: int, **values: float) -> None:
    """Tell the agent how far this rank has come. Cheap enough for every step; never raises.

    A tensor with one element will do for a number; reading it from a GPU waits for that GPU.
    """
    _LINK.report(step, values)


def end_progress() -> None:
    """Tell the agent that no more steps come: whatever this rank does until its end, such as saving the model, is no hang.

    `train_loop` says so by itself. A rank that reports progress again is judged again.
    """
    _LINK.finish()


def phase(name: str) -> PhaseOfWork:
    """Mark a part of the training that has a pace of its own, so that nobody takes it for a hang.

        with worker.phase("evaluation"): ...

        @worker.phase("checkpoint")
        def save(): ...

    Every rank marks it, also one that only waits for the others there; in its main thread, others are not heard. Commits that
    wait are marked as `checkpoint` by themselves. It costs what two reports cost and never raises; docs/hangs.md has what is
    made of it.

    Raises:
        ValueError: The name is empty, or `start` or `step`, which every rank has by itself.
    """
    return PhaseOfWork(_LINK, name)


def drain_notice() -> Drain | None:
    """Return the notice that this worker is about to be stopped, with its reason and grace, or None."""
    return _LINK.drain()


def resize_notice() -> Resize | None:
    """Return the notice that nodes join or leave, with its reason and grace, or None.

    A worker that ends by itself within the grace, after its next commit, loses nothing: it is started again in the new world.
    """
    return _LINK.resize()


def expires(after: float, scope: str | None = None) -> Scope:
    """Have the agent end this worker, and restart the group, when a block or function takes longer than `after` seconds.

        with worker.expires(after=60, scope="step"): ...

        @worker.expires(after=600)
        def evaluate(): ...

    Scopes nest and repeat; without a name a scope has that of its place, `file#line`. The failure then shows where every
    thread was, also when the interpreter itself is stuck. A scope costs 0.1 to 0.2 ms and never raises.

    Raises:
        ValueError: `after` is not above 0.
    """
    return Scope(_LINK, after, scope if scope is not None else caller(2))
