from __future__ import annotations

from itertools import pairwise
from math import isclose
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria.errors import UsageError
from planaria.worker.data.portions import (
    TAILS,
    Portion,
    Shape,
    even_part,
    leaves_ranks_empty,
    portions,
    samples_left,
    shape,
    steps_left,
    turns_left,
    turns_per_step,
)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    world_size, batch_size = draw(st.integers(1, 7)), draw(st.integers(1, 5))
    whole = draw(st.none() | st.integers(1, 60))
    return shape(draw(st.integers(0, world_size - 1)), world_size, batch_size, whole, draw(st.sampled_from(TAILS)))  # type: ignore[arg-type]


def of_rank(given: Shape, rank: int) -> Shape:
    return Shape(rank, given.world_size, given.batch_size, given.global_batch, given.tail)


def of_all_ranks(given: Shape, start: int, end: int) -> list[tuple[Portion, ...]]:
    """Return the turns, each with every rank's portion; all ranks have equally many."""
    ranks = [portions(of_rank(given, rank), start, end) for rank in range(given.world_size)]
    return list(zip(*ranks, strict=True))


starts, lengths = st.integers(0, 1000), st.integers(0, 200)


@given(given=shapes(), start=starts, length=lengths)
def test_a_turn_is_a_slice_of_the_stream_and_a_rank_has_its_contiguous_part(
    given: Shape, start: int, length: int
) -> None:
    at = start
    for turn in of_all_ranks(given, start, start + length):
        for portion in turn:
            assert portion.start == at
            at += portion.size
        sizes = [portion.size for portion in turn]
        assert max(sizes) <= given.batch_size
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)
        assert {portion.reach for portion in turn} == {min(at, start + length)}


@given(given=shapes(), start=starts, length=lengths)
def test_the_tail_is_split_filled_or_left(given: Shape, start: int, length: int) -> None:
    turns = of_all_ranks(given, start, start + length)
    taken = sum(portion.size for turn in turns for portion in turn)
    repeats = sum(portion.repeats for turn in turns for portion in turn)
    over = length % given.global_batch
    assert taken - repeats == (length - over if given.tail == "drop" else length)
    assert repeats == (given.global_batch - over if given.tail == "pad" and over else 0)
    for turn in turns:
        for portion in turn:
            assert portion.repeats == sum(
                at >= start + length for at in range(portion.start, portion.start + portion.size)
            )


@given(given=shapes(), start=starts, length=lengths)
def test_the_weights_of_a_step_make_the_mean_over_its_samples(given: Shape, start: int, length: int) -> None:
    """With the mean of what each rank got, averaged over ranks and added over turns."""
    sums = weights = 0.0
    size = 0
    for turn in of_all_ranks(given, start, start + length):
        for portion in turn:
            values = range(portion.start, portion.start + portion.size)
            mean = sum(values) / portion.size if portion.size else 0.0
            sums += portion.weight * mean / given.world_size
            weights += portion.share
            size += portion.size
            assert portion.weight == 0 or portion.size
        if turn[0].closes:
            assert isclose(weights, 1.0)
            first = turn[-1].start + turn[-1].size - size
            assert isclose(sums, sum(range(first, first + size)) / size)
            assert size == turn[0].of
            sums, weights, size = 0.0, 0.0, 0
    assert size == 0


@given(given=shapes(), start=starts, length=lengths)
def test_what_is_left_is_counted_without_walking(given: Shape, start: int, length: int) -> None:
    ahead = list(portions(given, start, start + length))
    assert turns_left(given, start, start + length) == len(ahead)
    assert samples_left(given, start, start + length) == sum(portion.size for portion in ahead)
    assert steps_left(given, start, start + length) == sum(portion.closes for portion in ahead)
    everybody = of_all_ranks(given, start, start + length)
    empty = any(portion.size == 0 for turn in everybody for portion in turn)
    assert leaves_ranks_empty(given, start, start + length) == empty


@given(size=st.integers(0, 1000), world_size=st.integers(1, 50))
def test_an_even_split_leaves_nothing_and_nobody_has_two_more(size: int, world_size: int) -> None:
    parts = [even_part(size, world_size, rank) for rank in range(world_size)]
    assert all(first + length == following for (first, length), (following, _) in pairwise(parts))
    assert sum(length for _, length in parts) == size
    assert {length - size // world_size for _, length in parts} <= {0, 1}


@pytest.mark.parametrize(("world_size", "turns"), [(1, 16), (2, 8), (3, 6), (4, 4), (6, 3), (8, 2), (16, 1), (32, 1)])
def test_the_global_batch_is_kept_in_every_world(world_size: int, turns: int) -> None:
    assert turns_per_step(128, world_size, 8) == turns
    found = of_all_ranks(shape(0, world_size, 8, 128, "exact"), 0, 1280)
    assert len(found) == 10 * turns
    assert [
        sum(portion.size for turn in found[step : step + turns] for portion in turn)
        for step in range(0, 10 * turns, turns)
    ] == [128] * 10
    assert [turn[0].closes for turn in found] == ([False] * (turns - 1) + [True]) * 10


def test_a_full_turn_weighs_one_and_an_accumulated_one_its_part() -> None:
    assert {portion.weight for portion in portions(shape(0, 4, 8, None, "exact"), 0, 320)} == {1.0}
    assert {portion.weight for portion in portions(shape(0, 4, 8, 128, "exact"), 0, 1280)} == {0.25}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"rank": 2}, "rank expects a whole number from 0 to 1, got 2"),
        ({"rank": -1}, "rank expects a whole number from 0 to 1, got -1"),
        ({"world_size": 0}, "world_size expects a whole number above 0, got 0"),
        ({"batch_size": 1.5}, "batch_size expects a whole number above 0, got 1.5"),
        ({"global_batch": 0}, "global_batch expects a whole number above 0, got 0"),
        ({"tail": "keep"}, "tail expects one of exact, pad, drop, got 'keep'"),
    ],
)
def test_a_wrong_number_is_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as error:
        shape(**{"rank": 0, "world_size": 2, "batch_size": 4, "global_batch": None, "tail": "exact"} | wrong)
    assert str(error.value) == said
