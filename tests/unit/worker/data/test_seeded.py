from __future__ import annotations

import random
import sys
from types import ModuleType
from typing import Any

import pytest

from planaria.errors import UsageError
from planaria.worker.data import ElasticSampler, Pick, sample_seed
from planaria.worker.data.seeds import epoch_key


class Noisy:
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, random.random()


class Batched(Noisy):
    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def __getitems__(self, indices: list[int]) -> list[tuple[int, float]]:
        self.asked.append(list(indices))
        return [self[index] for index in indices]


def sampler() -> ElasticSampler:
    return ElasticSampler(20, 4, seed=7, rank=0, world_size=1)


def loaded(dataset: Any, picks: list[int]) -> dict[int, float]:
    return dict(dataset.__getitems__(picks))


def test_what_is_random_about_a_sample_does_not_depend_on_what_was_loaded_before() -> None:
    one, other = sampler(), sampler()
    forwards, backwards = one.seeded(Noisy()), other.seeded(Noisy())
    picks = [index for batch in one.count() for index in batch]
    random.seed(1)
    there = loaded(forwards, picks)
    random.seed(2)
    assert loaded(backwards, picks[::-1]) == there
    assert len(set(there.values())) == 20


def test_another_epoch_is_another_augmentation() -> None:
    asked = sampler()
    dataset = asked.seeded(Noisy())
    epochs = [loaded(dataset, [index for batch in asked.count() for index in batch]) for _ in asked.epochs(2)]
    assert sorted(epochs[0]) == sorted(epochs[1])
    assert not set(epochs[0].values()) & set(epochs[1].values())


def test_the_loops_own_random_numbers_are_left_alone() -> None:
    asked = sampler()
    dataset = asked.seeded(Noisy())
    random.seed(5)
    undisturbed = [random.random() for _ in range(5)]
    random.seed(5)
    for batch, expected in zip(asked.count(), undisturbed, strict=True):
        loaded(dataset, batch)
        assert random.random() == expected


def test_the_loops_own_random_numbers_are_left_alone_also_when_a_sample_fails() -> None:
    class Failing:
        def __getitem__(self, index: int) -> int:
            raise OSError(random.random())

    random.seed(5)
    before = random.getstate()
    with pytest.raises(OSError, match="0"):
        sampler().seeded(Failing())[Pick(3, 0, 1)]
    assert random.getstate() == before


def test_a_dataset_may_use_the_seed_itself() -> None:
    class Own:
        def __getitem__(self, index: Any) -> tuple[int, int]:
            return index.seed, index.epoch

    assert sampler().seeded(Own())[Pick(3, 2, epoch_key(7, 2))] == (sample_seed(7, 2, 3), 2)


def test_a_transform_is_seeded_and_leaves_reading_to_the_dataset() -> None:
    asked, source = sampler(), Batched()
    dataset = asked.seeded(source, transform=lambda sample: (sample[0], random.random()))
    batch = next(iter(asked.count()))
    whole = loaded(dataset, batch)
    assert source.asked == [batch]
    assert whole == {index: dataset[index][1] for index in batch}
    assert whole == {index: random.Random(sample_seed(7, 0, index)).random() for index in batch}


def test_a_library_that_a_sample_brings_in_is_seeded_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first sample of a process that imports numpy late is as reproducible as the others."""
    seeded: list[Any] = []
    late = ModuleType("numpy")
    late.random = ModuleType("numpy.random")  # type: ignore[attr-defined]
    late.random.seed = seeded.append  # type: ignore[attr-defined]
    late.random.get_state = late.random.set_state = lambda *_: None  # type: ignore[attr-defined]
    monkeypatch.delitem(sys.modules, "numpy", raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)

    class Late:
        def __getitem__(self, index: int) -> list[Any]:
            monkeypatch.setitem(sys.modules, "numpy", late)
            return list(seeded)

    seed = sample_seed(7, 0, 3)
    assert sampler().seeded(Late())[Pick(3, 0, epoch_key(7, 0))] == [[seed & 0xFFFFFFFF, seed >> 32]]


def test_an_index_without_a_seed_is_refused() -> None:
    with pytest.raises(UsageError, match="indexed by its sampler, got 3"):
        sampler().seeded(Noisy())[3]
    assert len(sampler().seeded(Noisy())) == 20


def test_indices_are_plain_numbers_where_nobody_asked_for_seeds() -> None:
    assert {type(index) for batch in sampler().count() for index in batch} == {int}
