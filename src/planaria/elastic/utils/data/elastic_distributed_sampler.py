"""Deal a data set out to the ranks of a world that may have another size after the next restart."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sized
from typing import Generic, TypeVar

from planaria.elastic.utils.api import get_env_variable_or_raise

T = TypeVar("T")

__all__ = ["ElasticDistributedSampler"]

_STATE_WORDS = 624  # of the Mersenne twister, which torch and Python share


class ElasticDistributedSampler(Generic[T]):
    """Yield this rank's share of the indices from `start_index` on, shuffled by the epoch.

    The order is the one torch's sampler of this name has, without torch: ranks may mix the two. Left out, `num_replicas`
    and `rank` are those in the variables `WORLD_SIZE` and `RANK`, since there is no process group to ask. Ranks get equally
    many indices: the first ones of the order are dealt out again where the data set does not divide.

    Raises:
        TypeError: The data set has no length.
        ValueError: The rank is outside of the world, or the start is outside of the data set.
    """

    def __init__(
        self, dataset: object, num_replicas: int | None = None, rank: int | None = None, start_index: int = 0
    ) -> None:
        self.num_replicas = int(get_env_variable_or_raise("WORLD_SIZE")) if num_replicas is None else num_replicas
        self.rank = int(get_env_variable_or_raise("RANK")) if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"Invalid rank {self.rank}, rank should be in the interval [0, {self.num_replicas - 1}]")
        if not isinstance(dataset, Sized):
            raise TypeError("Dataset must be an instance of collections.abc.Sized")
        if start_index >= len(dataset):
            raise ValueError(f"Start index {start_index} should be less than dataset size {len(dataset)}")
        self.dataset: Sized = dataset
        self.start_index = start_index
        self.epoch = 0
        self.seed = 0
        self.shuffle = True
        self.drop_last = False
        self.num_samples = -(-(len(dataset) - start_index) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        order = _permutation(len(self.dataset) - self.start_index, self.epoch)
        repeated = self.total_size // len(order) + 1
        dealt = (order * repeated)[self.rank : self.total_size : self.num_replicas]
        return iter([index + self.start_index for index in dealt])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next iteration; all ranks must choose the same."""
        self.epoch = epoch


def _permutation(size: int, seed: int) -> list[int]:
    """Return what `torch.randperm(size, generator=Generator().manual_seed(seed))` returns, below 2**32 / 20 numbers."""
    draw = _twister(seed).getrandbits
    order = list(range(size))
    for at in range(size - 1):
        other = at + draw(32) % (size - at)
        order[at], order[other] = order[other], order[at]
    return order


def _twister(seed: int) -> random.Random:
    """Return a generator that was seeded as the authors of the Mersenne twister do; `random.seed` does it otherwise."""
    words = [seed & 0xFFFFFFFF]
    for at in range(1, _STATE_WORDS):
        words.append((1812433253 * (words[-1] ^ words[-1] >> 30) + at) & 0xFFFFFFFF)
    found = random.Random()  # noqa: S311  a shuffle is no secret
    found.setstate((3, (*words, _STATE_WORDS), None))
    return found
