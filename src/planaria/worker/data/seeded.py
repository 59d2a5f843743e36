"""Augmentation that does not depend on which process loads a sample, when, or after what.

A DataLoader seeds its workers when they start, and each goes on from there: what comes out for a sample depends on how many
that worker loaded before, so a restart changes it. Here every sample begins with its own seed.
"""

from __future__ import annotations

import random  # noqa: TID251  the user's transforms draw from it
import sys

from planaria.errors import UsageError
from planaria.worker.data.seeds import Pick

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_LIBRARIES = ("numpy", "torch")


class Seeded:
    """Made by `ElasticSampler.seeded`. A map-style dataset whose samples come out the same in whatever process."""

    def __init__(self, dataset: Any, transform: Callable[[Any], Any] | None = None) -> None:
        self.dataset = dataset
        self.transform = transform

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        """Load a sample under its seed.

        Raises:
            UsageError: The index knows no seed: it is not from the sampler that made this dataset.
        """
        if self.transform is None:
            return under_seed(_pick(index), lambda: self.dataset[index])
        return self._transformed(_pick(index), self.dataset[index])

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Load a batch, as DataLoaders do where they can; only a transform leaves the reading of it to the dataset."""
        many = getattr(self.dataset, "__getitems__", None)
        if self.transform is None or many is None:
            return [self[index] for index in indices]
        return [self._transformed(_pick(index), sample) for index, sample in zip(indices, many(indices), strict=True)]

    def _transformed(self, pick: Pick, sample: Any) -> Any:
        transform = self.transform
        assert transform is not None
        return under_seed(pick, lambda: transform(sample))


def under_seed(pick: Pick, load: Callable[[], Any]) -> Any:
    """Call `load` with Python's, numpy's and torch's generators seeded for a sample.

    Outside of a DataLoader's worker the generators are the training loop's own, and get back what they were.
    """
    before = None if _in_loader_worker() else _states()
    try:
        while True:
            known = _present()
            _seed(pick.seed)
            sample = load()
            if known == _present():
                return sample
            # It brought a library in, whose generator was not seeded: once more.
    finally:
        if before is not None:
            _restore(before)


def _pick(index: int) -> Pick:
    if not isinstance(index, Pick):
        raise UsageError(
            f"a seeded dataset is indexed by its sampler, got {index!r} from somewhere else",
            hint="index `.dataset` for samples that need no seed",
        )
    return index


def _present() -> list[bool]:
    return [name in sys.modules for name in _LIBRARIES]


def _in_loader_worker() -> bool:
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def _seed(seed: int) -> None:
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed([seed & 0xFFFFFFFF, seed >> 32])  # it takes 32 bits at a time
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.manual_seed(seed)  # `torch.manual_seed` would reach for every device


def _states() -> tuple[Any, Any, Any]:
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    return (
        random.getstate(),
        numpy.random.get_state() if numpy is not None else None,
        torch.default_generator.get_state() if torch is not None else None,
    )


def _restore(before: tuple[Any, Any, Any]) -> None:
    random.setstate(before[0])
    if before[1] is not None:
        sys.modules["numpy"].random.set_state(before[1])
    if before[2] is not None:
        sys.modules["torch"].default_generator.set_state(before[2])
