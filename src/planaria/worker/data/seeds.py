"""Where every random number about data comes from: seed, epoch and index, and nothing else.

Neither the process, the world's size, Python's hash seed nor the platform has a say, so a sample that is loaded again after a
restart is augmented as it was the first time.
"""

from __future__ import annotations

import hashlib
from array import array
from operator import index as whole
from sys import byteorder

from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

_64_BITS = (1 << 64) - 1
_ODD = 0x9E3779B97F4A7C15  # splitmix64's: 2^64 divided by the golden ratio


def choices(seed: object, shuffle: object) -> tuple[int, bool]:
    """Check what decides an order. A number of NumPy's is made a plain one: it is spelt differently, and would decide another.

    Raises:
        UsageError: They are not a whole number, and true or false.
    """
    if shuffle not in (True, False):
        raise UsageError(f"shuffle expects True or False, got {shuffle!r}")
    try:
        return whole(seed), bool(shuffle)  # type: ignore[arg-type]  # that is the question
    except TypeError as exc:
        raise UsageError(f"seed expects a whole number, got {seed!r}") from exc


def words(count: int, *key: object) -> array[int]:
    """Return `count` random 32-bit words that `key` decides.

    SHAKE makes any number of bytes in one call, 350 MB a second, and is the same everywhere.
    """
    found = array("I")
    found.frombytes(hashlib.shake_128(repr(key).encode()).digest(4 * count))
    if byteorder == "big":
        found.byteswap()
    return found


def epoch_key(seed: int, epoch: int) -> int:
    """Return the 64 bits from which the seeds of an epoch's samples are made."""
    low, high = words(2, "planaria samples", seed, epoch)
    return low | high << 32


def keyed_seed(key: int, index: int) -> int:
    """Return the 64-bit seed of a sample, given the epoch's key. No two samples of an epoch have the same.

    These are splitmix64's steps, each of which can be undone: that is why seeds differ.
    """
    mixed = (key + index * _ODD) & _64_BITS
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _64_BITS
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _64_BITS
    return mixed ^ mixed >> 31


def sample_seed(seed: int, epoch: int, index: int) -> int:
    """Return the 64-bit seed for whatever is random about one sample in one epoch."""
    return keyed_seed(epoch_key(seed, epoch), index)


class Pick(int):
    """An index into a dataset that knows its epoch and its seed; anywhere else it is the number it is."""

    epoch: int
    key: int

    def __new__(cls, index: int, epoch: int, key: int) -> Self:
        """Make a pick out of an epoch's number and its `epoch_key`."""
        pick = super().__new__(cls, index)
        pick.epoch = epoch
        pick.key = key
        return pick

    @property
    def seed(self) -> int:
        """The sample's own seed: `random.Random(index.seed)` in a dataset is all that exact augmentation needs."""
        return keyed_seed(self.key, int(self))

    def __reduce__(self) -> tuple[type[Pick], tuple[int, int, int]]:
        return Pick, (int(self), self.epoch, self.key)
