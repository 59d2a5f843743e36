"""An order for data in shards, that are read from front to back: files of records, archives, streams.

An epoch shuffles whole shards, or blocks of rows within them, and lays them end to end. That line is cut into `lanes` of equal
length, and the stream goes round them, `chunk` rows from each. The order knows no world; but where W ranks with D loader
workers take batches of B, `lanes=W*D, chunk=B` makes each of these workers read its own lane from front to back. Any other
world costs skipped rows, never samples.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from itertools import accumulate

from planaria.errors import UsageError
from planaria.worker.data.permutation import Permutation
from planaria.worker.data.seeds import choices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class ShardOrder:
    """Which row stands where in an epoch; rows are numbered through all shards as `ShardedData` numbers them.

    Raises:
        UsageError: A number is not what it has to be.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        *,
        seed: int = 0,
        shuffle: bool = True,
        lanes: int = 1,
        chunk: int = 1,
        block: int | None = None,
    ) -> None:
        for name, value in (("lanes", lanes), ("chunk", chunk), ("block", block)):
            if value is not None and (type(value) is not int or value < 1):
                raise UsageError(f"{name} expects a whole number above 0, got {value!r}")
        if any(type(length) is not int or length < 0 for length in lengths):
            raise UsageError("lengths expects the number of rows of each shard, whole and not below 0")
        self.samples = sum(lengths)
        self.seed, self.shuffle = choices(seed, shuffle)
        self._lanes, self._chunk, self._block = lanes, chunk, block
        self._digest = hashlib.shake_128(repr(list(lengths)).encode()).hexdigest(8)
        self._starts, self._sizes = _units(lengths, block)
        self._kept: tuple[int, array[int], array[int]] | None = None

    def describe(self) -> dict[str, object]:
        """Return all that decides the order, the lengths as a digest."""
        sizes: dict[str, object] = {"lanes": self._lanes, "chunk": self._chunk, "block": self._block}
        return {"samples": self.samples, "seed": self.seed, "shuffle": self.shuffle, "shards": self._digest, **sizes}

    def part(self, epoch: int, start: int, stop: int) -> list[int]:
        """Return rows, chunk by chunk."""
        found: list[int] = []
        while start < stop:
            at, many = self._on_the_line(start)
            many = min(many, stop - start)
            for first, last in self._rows(epoch, at, at + many):
                found += range(first, last)
            start += many
        return found

    def _on_the_line(self, position: int) -> tuple[int, int]:
        """Return where a position of the stream lies on the line, and how many from there on follow each other."""
        least, more = divmod(self.samples, self._lanes)
        laps, short = divmod(least, self._chunk)
        whole = laps * self._lanes * self._chunk
        if position < whole:
            visit, offset = divmod(position, self._chunk)
            done, lane = divmod(visit, self._lanes)
            length, before = self._chunk, done * self._chunk
        else:  # the last lap: what is left of each lane, one more in the first lanes
            longer = more * (short + 1)
            position -= whole
            skipped, length = (0, short + 1) if position < longer else (more, short)
            lane, offset = divmod(position - (longer if skipped else 0), length)
            lane, before = lane + skipped, laps * self._chunk
        return lane * least + min(lane, more) + before + offset, length - offset

    def _rows(self, epoch: int, at: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the rows at a part of the line, as ranges."""
        order, line = self._laid_out(epoch)
        number = bisect_right(line, at) - 1
        while at < stop:
            unit = order[number]
            offset = at - line[number]
            many = min(self._sizes[unit] - offset, stop - at)
            yield self._starts[unit] + offset, self._starts[unit] + offset + many
            at += many
            number += 1

    def _laid_out(self, epoch: int) -> tuple[array[int], array[int]]:
        """Return an epoch's units in their order, and where on the line each begins."""
        if self._kept is None or self._kept[0] != epoch:
            count = len(self._sizes)
            numbers = Permutation(count, "shards", self.seed, epoch).part(0, count) if self.shuffle else range(count)
            order = array("Q", numbers)
            line = array("Q", accumulate((self._sizes[unit] for unit in order), initial=0))
            self._kept = epoch, order, line
        return self._kept[1], self._kept[2]


def _units(lengths: Sequence[int], block: int | None) -> tuple[array[int], array[int]]:
    """Cut shards into what is shuffled: return first row and number of rows of each unit; empty shards have none."""
    starts, sizes, base = array("Q"), array("Q"), 0
    for length in lengths:
        for first in range(0, length, block or length or 1):
            starts.append(base + first)
            sizes.append(min(block or length, length - first))
        base += length
    return starts, sizes
