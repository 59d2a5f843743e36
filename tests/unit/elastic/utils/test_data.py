from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria.elastic.utils.data import CyclingIterator, ElasticDistributedSampler

RANDPERM_10_SEED_0 = [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]  # torch.randperm(10, generator=torch.Generator().manual_seed(0))


def test_epochs_follow_each_other() -> None:
    assert list(CyclingIterator(2, lambda _epoch: iter([1, 2, 3]))) == [1, 2, 3, 1, 2, 3]


def test_a_generator_is_told_its_epoch_from_the_first_one_asked_for() -> None:
    seen: list[int] = []

    def one(epoch: int) -> Iterator[int]:
        seen.append(epoch)
        return iter([epoch * 10])

    assert list(CyclingIterator(5, one, start_epoch=3)) == [30, 40]
    assert seen == [3, 4]


def test_the_end_stays_the_end() -> None:
    cycle = CyclingIterator(1, lambda _epoch: iter("a"))
    assert list(cycle) == ["a"]
    assert list(cycle) == []


def test_thousands_of_empty_epochs_are_passed_over() -> None:
    last = 5000
    assert list(CyclingIterator(last + 1, lambda epoch: iter([epoch] if epoch == last else []))) == [last]


def test_the_order_is_the_one_torch_has() -> None:
    assert list(ElasticDistributedSampler(range(10), num_replicas=1, rank=0)) == RANDPERM_10_SEED_0


def test_another_epoch_has_another_order_and_the_same_epoch_the_same() -> None:
    sampler: ElasticDistributedSampler[int] = ElasticDistributedSampler(range(100), num_replicas=1, rank=0)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert sorted(sampler) == sorted(first)
    assert list(sampler) != first


@given(st.integers(1, 60), st.integers(1, 70), st.data())
def test_every_index_from_the_start_on_is_dealt_out_and_all_ranks_get_equally_many(
    size: int, ranks: int, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, size - 1))
    samplers = [ElasticDistributedSampler(range(size), ranks, rank, start) for rank in range(ranks)]
    shares = [list(sampler) for sampler in samplers]
    assert {len(share) for share in shares} == {len(samplers[0])}
    dealt = Counter(index for share in shares for index in share)
    assert set(dealt) == set(range(start, size))
    assert max(dealt.values()) - min(dealt.values()) <= 1


def test_rank_and_world_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert list(ElasticDistributedSampler(range(10))) == RANDPERM_10_SEED_0[1::2]


def test_without_a_world_the_missing_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(ValueError, match="Environment variable WORLD_SIZE expected"):
        ElasticDistributedSampler(range(10))


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_outside_of_the_world_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match=rf"Invalid rank {rank}, rank should be in the interval \[0, 1\]"):
        ElasticDistributedSampler(range(10), 2, rank)


def test_a_start_outside_of_the_data_set_is_refused() -> None:
    with pytest.raises(ValueError, match="Start index 10 should be less than dataset size 10"):
        ElasticDistributedSampler(range(10), 1, 0, 10)


def test_a_data_set_without_a_length_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Dataset must be an instance of collections\.abc\.Sized"):
        ElasticDistributedSampler(iter([1]), 1, 0)
