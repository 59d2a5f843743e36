"""Shards as a dataset: rows are asked for by number and read from front to back."""

from __future__ import annotations

import os
from bisect import bisect_right
from itertools import accumulate, islice

from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any


class ShardedData:
    """A map-style dataset over shards, for any DataLoader; `ShardOrder(lengths)` asks for its rows in an order that suits it.

    `open_shard(shard, row)` returns an iterable of a shard's samples from a row on; `islice(samples, row, None)` will do where
    there is nothing better. How many rows a shard has must be known: a position in data of unknown size is none. Up to
    `keep` shards stay open; a row up to `skip` further on in one is reached by reading, any other by opening.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        open_shard: Callable[[int, int], Iterable[Any]],
        *,
        keep: int = 16,
        skip: int = 256,
    ) -> None:
        self._bases = list(accumulate(lengths, initial=0))
        self._open_shard = open_shard
        self._keep = keep
        self._skip = skip
        self._forget()

    def __len__(self) -> int:
        return self._bases[-1]

    def __getitem__(self, index: int) -> Any:
        """Read one row.

        Raises:
            UsageError: The shard has fewer rows than was said.
        """
        if not 0 <= index < len(self):
            raise IndexError(index)
        shard = bisect_right(self._bases, index) - 1
        row = index - self._bases[shard]
        rows = self._at(shard, row)
        for sample in rows:
            self._readers[shard] = rows, row + 1
            return sample
        raise UsageError(
            f"shard {shard} ended at row {row}, and {self._bases[shard + 1] - self._bases[shard]} were said to be in it"
        )

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Read a batch, as DataLoaders ask for it."""
        return [self[index] for index in indices]

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_readers": {}}

    def close(self) -> None:
        """Close the shards that are open."""
        for rows, _ in self._readers.values():
            _close(rows)
        self._readers.clear()

    def _at(self, shard: int, row: int) -> Iterator[Any]:
        """Return a reader whose next sample is that row's, and take it out of those that are kept."""
        if self._pid != os.getpid():  # a forked child's parent reads from the same descriptors
            self._forget()
        rows, at = self._readers.pop(shard, (None, 0))
        if rows is not None and 0 <= row - at <= self._skip:
            next(islice(rows, row - at, row - at), None)
            return rows
        if rows is not None:
            _close(rows)
        while len(self._readers) >= self._keep:  # the one that was used longest ago
            _close(self._readers.pop(next(iter(self._readers)))[0])
        return iter(self._open_shard(shard, row))

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._readers: dict[int, tuple[Iterator[Any], int]] = {}


def _close(rows: object) -> None:
    if callable(close := getattr(rows, "close", None)):
        close()
