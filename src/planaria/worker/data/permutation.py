"""A seeded permutation of any size that is computed and not stored.

A shuffled list of 100 million numbers takes seconds to make and gigabytes to keep, once for every rank. This is a Feistel
network instead: a position is written as two digits (l, r) in a rectangle of a by b cells, a*b barely more than the size, and
each round adds a random function of one digit to the other. Every round can be undone, so the whole is a permutation of the
cells whatever the functions are; a position that lands outside of the size walks on until it is inside (once in sqrt(size)
times). The digits are as small as the root of the size, so the functions are tables: 240 kB and 10 ms for 100 million.
"""

from __future__ import annotations

from array import array
from math import isqrt

from planaria.errors import UsageError
from planaria.worker.data.seeds import words

MOST_SAMPLES = 1 << 40  # the tables then take 25 MB
_FEW = 1 << 16
_ROUNDS, _ROUNDS_OF_FEW = 6, 12  # 4 pass for random where there are many; with 12 all orders of 6 are equally frequent


class Permutation:
    """The numbers below `size` in an order that `key` decides."""

    def __init__(self, size: int, *key: object) -> None:
        if not 0 <= size <= MOST_SAMPLES:
            raise UsageError(f"a permutation has 0 to 2^40 samples, got {size!r}")
        self.size = size
        self._rows = isqrt(max(size - 1, 0)) + 1
        self._columns = -(-size // self._rows) or 1
        rounds = _ROUNDS if size >= _FEW else _ROUNDS_OF_FEW
        tables = _tables(rounds, (self._rows, self._columns), "planaria permutation", size, *key)
        self._pairs = list(zip(tables[::2], tables[1::2], strict=True))

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, position: int) -> int:
        if not 0 <= position < self.size:
            raise IndexError(position)
        return self.part(position, position + 1)[0]

    def part(self, start: int, stop: int) -> list[int]:
        """Return what stands at the positions from `start` up to `stop`, both within the size: below 1 us each."""
        rows, columns, pairs, size = self._rows, self._columns, self._pairs, self.size
        found = []
        for position in range(start, stop):
            at = size
            row, column = divmod(position, columns)
            while at >= size:
                for to_row, to_column in pairs:
                    row = (row + to_row[column]) % rows
                    column = (column + to_column[row]) % columns
                at = row * columns + column
            found.append(at)
        return found


def _tables(rounds: int, sides: tuple[int, int], *key: object) -> list[array[int]]:
    """Make the rounds' functions: by turns column -> what to add to the row, row -> what to add to the column."""
    rows, columns = sides
    random, at, found = words(rounds // 2 * (rows + columns), *key), 0, []
    for length, side in ((columns, rows), (rows, columns)) * (rounds // 2):
        found.append(array("I", [word % side for word in random[at : at + length]]))
        at += length
    return found
