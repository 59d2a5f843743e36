"""What lives inside the training process. Imports `contract`, `base` and `errors` only, and works without torch.

    from planaria import worker
    for step, batch in enumerate(batches):
        train(batch)
        worker.report_progress(step, loss=loss)
        if worker.drain_notice() or worker.resize_notice():
            save_and_leave()

Under `planaria run` the agent hears of it; outside of it all this does nothing.
"""

from __future__ import annotations

import os

from planaria.contract.control import Drain, Resize
from planaria.contract.env import CONTROL
from planaria.worker.link import Link

__all__ = ["Drain", "Resize", "drain_notice", "report_progress", "resize_notice"]

_LINK = Link(os.environ.get(CONTROL))  # noqa: TID251  the one place where the worker reads what its agent told it


def report_progress(step: int, **values: float) -> None:
    """Tell the agent how far this rank has come. Cheap enough for every step; never raises.

    A tensor with one element will do for a number; reading it from a GPU waits for that GPU.
    """
    _LINK.report(step, values)


def drain_notice() -> Drain | None:
    """Return the notice that this worker is about to be stopped, with its reason and grace, or None."""
    return _LINK.drain()


def resize_notice() -> Resize | None:
    """Return the notice that nodes join or leave, with its reason and grace, or None.

    A worker that ends by itself within the grace, after its next commit, loses nothing: it is started again in the new world.
    """
    return _LINK.resize()
