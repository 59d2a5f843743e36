"""A loader whose batches are counted as the loop takes them out."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, nullcontext

from planaria.errors import UsageError
from planaria.worker import here
from planaria.worker.deferral import DEFERRAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from typing import Any

    from planaria.worker.data.ledger import Ledger
    from planaria.worker.data.portions import Portion

_FIELDLESS = (str, bytes, int, float, bool, type(None))


class Counted:
    """Made by `ElasticSampler.count`. Iterates over `batches`, and has its attributes; `loader` is the one inside."""

    def __init__(
        self, sampler: Counting, batches: Iterable[Any] | None, loader: Any, empty: Callable[[Any], Any]
    ) -> None:
        if not getattr(loader, "in_order", True):
            raise UsageError(
                "a loader with in_order=False hands out batches in any order: what was taken cannot be known"
            )
        self._sampler = sampler
        self._batches: Iterable[Any] = sampler if batches is None else batches
        self._loader = loader
        self._stands_in = batches is not None
        self._empty = empty

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._batches, name)

    @property
    def portion(self) -> Portion | None:
        """What the loop took out last."""
        return self._sampler.ledger.taken

    def __iter__(self) -> Iterator[Any]:
        """Yield the loader's batches. One that is handed to the loop has been taken.

        Raises:
            UsageError: They are not those that the sampler counts.
        """
        self._sampler.check_loader(self._loader)
        ledger = self._sampler.ledger
        feed = ledger.open(stands_in=self._stands_in)
        with _set_apart(self._loader), _own_random_numbers(self._loader, self._sampler.base_seed()):
            batches = iter(self._batches)
        for batch in batches:
            portion = ledger.take(feed)
            yield batch if portion.size or not feed.stands_in else self._empty(batch)
        ledger.finish(feed, self._sampler.__len__)


if TYPE_CHECKING:
    from typing import Protocol

    class Counting(Protocol):
        """A sampler, as a counter sees it."""

        ledger: Ledger

        def __len__(self) -> int: ...

        def __iter__(self) -> Iterator[list[int]]: ...

        def base_seed(self) -> int:
            """Return what a loader's own random numbers begin with."""

        def check_loader(self, loader: Any) -> None:
            """See that a loader's batches are those that are counted."""


def emptied(batch: Any) -> Any:
    """Return a batch without samples, made of one that has some: its fields, types and shapes, but for the first dimension."""
    if getattr(batch, "shape", ()):
        return batch[:0]
    if isinstance(batch, dict):
        return {name: emptied(part) for name, part in batch.items()}
    if isinstance(batch, (list, tuple)):
        if all(isinstance(part, _FIELDLESS) for part in batch):  # one of each sample, as collating leaves strings
            return type(batch)()
        parts = [emptied(part) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


class Apart:
    """What a loader's process does first: it leaves the process group of its rank, so that the signal of a drain, which goes
    to the whole group, does not end it while the loop still needs its data. The loop ends it, or the agent after the loop.

    One that was forked has left already; one that was started anew is on its own only now.
    """

    def __init__(self, then: Callable[[int], object] | None) -> None:
        self._then = then

    def __call__(self, worker: int) -> None:
        """Do that, then what the loader was told to do."""
        os.setpgid(0, 0)
        if self._then is not None:
            self._then(worker)


def _set_apart(loader: Any) -> AbstractContextManager[None]:
    """Prepare a DataLoader under an agent: nobody else would end its processes if the loop did not."""
    then = getattr(loader, "worker_init_fn", loader)
    if then is loader or not here.control():
        return nullcontext()
    if not isinstance(then, Apart):
        loader.worker_init_fn = Apart(then)
    return DEFERRAL.setting_apart()


@contextmanager
def _own_random_numbers(loader: Any, seed: int) -> Iterator[None]:
    """Give torch's generator back as it was: a DataLoader draws a seed for its workers from it each time a loop begins.

    The loop after a restart begins in mid-epoch, where an undisturbed one does not: dropout would come out differently.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    if hasattr(loader, "generator"):  # its own, since something around it may begin it only with the first batch
        loader.generator = torch.Generator().manual_seed(seed)
    before = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(before)
