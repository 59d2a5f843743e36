"""What the loss of an uneven batch weighs, so that the gradient is that of the whole global batch."""

from __future__ import annotations

from contextlib import nullcontext

from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any, Protocol

    from planaria.worker.data.portions import Portion

    class Synchronising(Protocol):
        """DistributedDataParallel, as far as it matters here."""

        def no_sync(self) -> AbstractContextManager[object]:
            """Accumulate gradients without letting them meet."""


def weighted(loss: Any, portion: Portion | None) -> Any:
    """Return a portion's mean loss so that averaging gradients over ranks, as DDP does, gives the mean over the global batch.

    Where a step has several turns their gradients add up to the same. A rank without samples gets a zero that `backward()`
    goes through, so that its collectives meet those of the others; the mean over nothing, which is no number, does not spread.

    Raises:
        UsageError: There is no portion: nothing was taken out of a loader that `sampler.count` has made.
    """
    found = _there(portion)
    if found.size:
        return loss * found.weight
    return (loss.nan_to_num(0.0) if hasattr(loss, "nan_to_num") else 0.0) * 0.0


def accumulating(model: Synchronising, portion: Portion | None) -> AbstractContextManager[object]:
    """Return the context for forward and backward: gradients meet in the last turn of a step, and not before.

    Every rank has the same number of turns, so all of them meet.

    Raises:
        UsageError: There is no portion.
    """
    return nullcontext() if _there(portion).closes else model.no_sync()


def _there(portion: Portion | None) -> Portion:
    if portion is None:
        raise UsageError(
            "there is no portion: nothing was taken out of the loader yet",
            hint="iterate over sampler.count(loader), and give the portion of that inside of the loop",
        )
    return portion
