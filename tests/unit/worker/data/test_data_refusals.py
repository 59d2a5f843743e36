"""What is no number, dataset or portion is refused with a sentence that says what is expected."""

from __future__ import annotations

import ast
from itertools import islice
from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from planaria.errors import UsageError
from planaria.worker.data import ElasticSampler, ShardOrder, Shuffled, accumulating, turns_per_step, weighted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def sampler(data: Any = 10, batch_size: Any = 2, **options: Any) -> ElasticSampler:
    return ElasticSampler(data, batch_size, rank=0, world_size=1, **options)


class Stream:
    """A dataset without a length, as torch's IterableDataset."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "a stream": (lambda: sampler(Stream()), "data expects a dataset with a length, .* got a Stream, which has none"),
    "a generator": (lambda: sampler(one for one in "abc"), "got a generator, which has none"),
    "no data": (lambda: sampler(None), "got a NoneType, which has none"),
    "no batch_size": (lambda: sampler(batch_size=None), "batch_size expects a whole number above 0, got None"),
    "no world_size": (lambda: sampler().resize(0, None), "world_size expects a whole number above 0, got None"),  # type: ignore[arg-type]
    "global_batch": (lambda: sampler(global_batch=0), "global_batch expects a whole number above 0, got 0"),
    "seed": (lambda: sampler(seed="a"), "seed expects a whole number, got 'a'"),
    "half a seed": (lambda: Shuffled(3, seed=1.5), "seed expects a whole number, got 1.5"),  # type: ignore[arg-type]
    "seed of shards": (lambda: ShardOrder([3], seed=None), "seed expects a whole number, got None"),  # type: ignore[arg-type]
    "shuffle": (lambda: sampler(shuffle="no"), "shuffle expects True or False, got 'no'"),
    "epochs": (lambda: sampler().epochs("3"), "epochs expects a whole number, or math.inf, got '3'"),  # type: ignore[arg-type]
    "turns": (lambda: turns_per_step(8, 0, 1), "world_size expects a whole number above 0, got 0"),
    "weight": (lambda: weighted(1.0, None), "there is no portion: nothing was taken out of the loader yet"),
    "accumulating": (lambda: accumulating(None, None), "there is no portion"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_makes_no_sense_is_refused_with_what_is_expected(what: str) -> None:
    call, says = REFUSED[what]
    with pytest.raises(UsageError, match=says):
        call()


def test_whoever_has_a_stream_is_told_of_shards() -> None:
    with pytest.raises(UsageError) as said:
        sampler(Stream())
    assert "ShardedData" in said.value.hint


def test_a_number_of_numpys_is_the_seed_that_it_looks_like() -> None:
    numpy = pytest.importorskip("numpy")
    one = sampler(seed=numpy.int64(7), shuffle=numpy.bool_(True))
    assert one.state_dict() == sampler(seed=7).state_dict()
    assert list(one.count()) == list(sampler(seed=7).count())


def test_numbers_of_numpys_are_whole_numbers_and_epochs_may_have_no_end() -> None:
    numpy = pytest.importorskip("numpy")
    assert turns_per_step(numpy.int64(8), 2, numpy.int32(2)) == 2
    assert [*sampler().epochs(numpy.int64(2))] == [0, 1]
    one = sampler(batch_size=numpy.int64(2))
    assert [*islice(one.epochs(inf), 100)] == [*range(100)]
    assert one.epochs_wanted is None
    assert type(one.batch_size) is int
    one.resize(numpy.int64(1), numpy.int64(2))
    one.set_epoch(numpy.int64(101))
    assert one.epoch == 101


@pytest.mark.parametrize("number", ["[3]", "[1, 2]", "2.5", "True"])
def test_an_array_is_no_whole_number(number: str) -> None:
    numpy = pytest.importorskip("numpy")
    for value in (numpy.array(ast.literal_eval(number)), ast.literal_eval(number)):
        with pytest.raises(UsageError, match="batch_size expects a whole number above 0, got"):
            sampler(batch_size=value)
        with pytest.raises(UsageError, match="epochs expects a whole number, or"):
            sampler().epochs(value)


def test_a_batch_sampler_of_the_users_own_around_the_indices_has_to_say_its_size() -> None:
    """Without it nobody knows what a batch moves the cursor by: samples would be trained on again after a restart."""
    one = sampler(9)
    loader = SimpleNamespace(batch_sampler=SimpleNamespace(sampler=one.indices))
    with pytest.raises(UsageError, match="the loader does not say the batch_size of its batches") as said:
        next(iter(one.count(loader)))
    assert "as an attribute" in said.value.hint
