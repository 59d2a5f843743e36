from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from planaria.worker.data import ElasticSampler, Pick, sample_seed
from planaria.worker.data.seeds import epoch_key


@given(seed=st.integers(), epoch=st.integers(0, 10**6), index=st.integers(0, 2**40))
def test_a_seed_has_64_bits_and_follows_from_seed_epoch_and_index_alone(seed: int, epoch: int, index: int) -> None:
    found = sample_seed(seed, epoch, index)
    assert 0 <= found < 2**64
    assert found == sample_seed(seed, epoch, index)
    others = [
        sample_seed(seed + 1, epoch, index),
        sample_seed(seed, epoch + 1, index),
        sample_seed(seed, epoch, index + 1),
    ]
    assert found not in others


def test_the_seed_of_a_sample_never_changes_from_one_release_to_the_next() -> None:
    assert sample_seed(7, 3, 0) == 8896216005949881044
    assert sample_seed(7, 3, 100_000_000) == 4635880537751210663


def test_no_two_samples_of_an_epoch_have_the_same_seed_and_all_bits_take_part() -> None:
    seeds = [sample_seed(1, 0, index) for index in range(20_000)]
    assert len(set(seeds)) == 20_000
    for bit in range(64):
        assert abs(sum(seed >> bit & 1 for seed in seeds) - 10_000) < 4.5 * 70.8


def test_a_pick_is_the_number_it_is_and_survives_the_way_to_a_worker() -> None:
    pick = pickle.loads(pickle.dumps([Pick(5, 3, epoch_key(7, 3))]))[0]
    assert (pick, ["f", "e", "d", "c", "b", "a"][pick], pick.epoch, pick.seed) == (5, "a", 3, sample_seed(7, 3, 5))


def test_a_sample_that_was_carried_into_the_next_epoch_keeps_the_seed_of_its_own() -> None:
    """Otherwise it would have the seed it gets again later in that epoch."""
    sampler = ElasticSampler(5, 2, tail="drop", seed=7, rank=0, world_size=1)
    sampler.seeded([])
    list(sampler.count())
    sampler.set_epoch(1)
    picks = [index for batch in sampler.count() for index in batch]
    assert [pick.epoch for pick in picks if isinstance(pick, Pick)] == [0, 1, 1, 1, 1, 1]
    assert len({pick.seed for pick in picks if isinstance(pick, Pick)}) == 6
