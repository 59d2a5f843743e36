"""The order of all samples of all epochs: one endless stream, in which a position is a single number.

Epoch e is the stream from e*n up to (e+1)*n, n the size of the dataset. An order says which sample stands at a position, and
nothing about who loads it: it is the same for every world.
"""

from __future__ import annotations

from planaria.worker.data.permutation import Permutation
from planaria.worker.data.seeds import Pick, choices, epoch_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    class Order(Protocol):
        """Which sample stands where in an epoch."""

        @property
        def samples(self) -> int:
            """The size of the dataset."""

        @property
        def seed(self) -> int:
            """What decides the order, and the samples' own seeds."""

        def describe(self) -> dict[str, object]:
            """Return as safe data all that decides the order: a position means the same only where this is equal."""

        def part(self, epoch: int, start: int, stop: int) -> list[int]:
            """Return the samples at the positions from `start` up to `stop` of an epoch, each a number below `samples`."""


class Shuffled:
    """A fresh permutation for every epoch, or none at all."""

    def __init__(self, samples: int, *, seed: int = 0, shuffle: bool = True) -> None:
        self.samples = samples
        self.seed, self.shuffle = choices(seed, shuffle)
        self._kept: tuple[int, Permutation] | None = None

    def describe(self) -> dict[str, object]:
        """Return size, seed and whether to shuffle."""
        return {"samples": self.samples, "seed": self.seed, "shuffle": self.shuffle}

    def part(self, epoch: int, start: int, stop: int) -> list[int]:
        """Return a part of an epoch's permutation."""
        if not self.shuffle:
            return list(range(start, stop))
        if self._kept is None or self._kept[0] != epoch:
            self._kept = epoch, Permutation(self.samples, self.seed, epoch)
        return self._kept[1].part(start, stop)


def pieces(samples: int, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Cut a part of the stream where epochs meet: yield (epoch, first position, last position + 1) within each."""
    while start < stop:
        epoch, first = divmod(start, samples)
        last = min(samples, first + stop - start)
        yield epoch, first, last
        start += last - first


def indices(order: Order, start: int, stop: int) -> list[int]:
    """Return a part of the stream as plain indices."""
    return [
        index for epoch, first, last in pieces(order.samples, start, stop) for index in order.part(epoch, first, last)
    ]


def picks(order: Order, start: int, stop: int) -> list[int]:
    """Return a part of the stream as indices that know their epoch and seed."""
    found: list[int] = []
    for epoch, first, last in pieces(order.samples, start, stop):
        key = epoch_key(order.seed, epoch)
        found += [Pick(index, epoch, key) for index in order.part(epoch, first, last)]
    return found
