"""One iterator over several epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

__all__ = ["CyclingIterator"]


class CyclingIterator(Iterator[T]):
    """Iterate over `generator_fn(epoch)` for every epoch from `start_epoch` to `n - 1`, as if it were one.

    The first epoch's iterator is made at once, and it is run through even when `start_epoch` is not below `n`.
    """

    def __init__(self, n: int, generator_fn: Callable[[int], Iterator[T]], start_epoch: int = 0) -> None:
        self._n = n
        self._epoch = start_epoch
        self._generator_fn = generator_fn
        self._iter = generator_fn(start_epoch)

    def __iter__(self) -> CyclingIterator[T]:
        return self

    def __next__(self) -> T:
        while True:  # an epoch may be empty, and thousands of them must not be thousands of nested calls
            try:
                return next(self._iter)
            except StopIteration:
                if self._epoch >= self._n - 1:
                    raise
            self._epoch += 1
            self._iter = self._generator_fn(self._epoch)
