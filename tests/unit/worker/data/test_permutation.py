from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.errors import UsageError
from planaria.worker.data.permutation import MOST_SAMPLES, Permutation

MANY = 100_000_000


@settings(max_examples=60)
@given(size=st.integers(0, 3000), seed=st.integers(), epoch=st.integers(0, 10**6))
def test_every_number_stands_at_exactly_one_position(size: int, seed: int, epoch: int) -> None:
    assert sorted(Permutation(size, seed, epoch).part(0, size)) == list(range(size))


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 256 * 257, 99_991])
def test_sizes_around_a_change_of_rounds_or_a_full_rectangle_are_permutations_too(size: int) -> None:
    assert sorted(Permutation(size, 1).part(0, size)) == list(range(size))


def test_no_number_comes_twice_in_parts_of_a_hundred_million() -> None:
    order = Permutation(MANY, 7, 3)
    found = order.part(0, 30_000) + order.part(MANY // 2, MANY // 2 + 30_000) + order.part(MANY - 30_000, MANY)
    assert len(set(found)) == 90_000
    assert all(0 <= number < MANY for number in found)


def test_parts_and_single_positions_agree() -> None:
    order = Permutation(1000, 5)
    assert [order[position] for position in range(1000)] == order.part(0, 400) + order.part(400, 1000)
    with pytest.raises(IndexError):
        order[1000]


@settings(max_examples=30)
@given(seed=st.integers(), epoch=st.integers(0, 10**6))
def test_another_seed_or_epoch_is_another_order(seed: int, epoch: int) -> None:
    assert Permutation(1000, seed, epoch).part(0, 20) != Permutation(1000, seed, epoch + 1).part(0, 20)
    assert Permutation(1000, seed, epoch).part(0, 20) != Permutation(1000, seed + 1, epoch).part(0, 20)


def test_the_order_of_a_seed_never_changes_from_one_release_to_the_next() -> None:
    """A job that was saved under an older release goes on with the same samples."""
    assert Permutation(10, 1, 2).part(0, 10) == [8, 1, 2, 9, 3, 7, 4, 6, 0, 5]
    assert Permutation(MANY, 7, 3).part(0, 4) == [96144049, 17616456, 64199183, 58993429]
    assert Permutation(MANY, 7, 3).part(MANY - 3, MANY) == [78338017, 12962848, 3195222]


def test_neither_the_process_nor_the_hash_seed_has_a_say() -> None:
    code = "from planaria.worker.data import *; print(Permutation(5000, 1, 2).part(0, 9), sample_seed(1, 2, 3))"
    answers = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "random")
    }
    assert len(answers) == 1
    assert answers.pop().startswith(b"[")


@pytest.mark.parametrize("size", [3, 4, 5])
def test_all_orders_of_a_few_are_equally_frequent(size: int) -> None:
    orders = math.factorial(size)
    found = Counter(tuple(Permutation(size, seed).part(0, size)) for seed in range(100 * orders))
    assert len(found) == orders
    # Chi squared over its degrees of freedom; 6 rounds instead of 12 give 2.5 for three and 5 for five.
    assert sum((count - 100) ** 2 / 100 for count in found.values()) / (orders - 1) < 1.7


@pytest.mark.parametrize("size", [1000, 200_000, MANY])
def test_an_order_looks_random(size: int) -> None:
    """Where a number stands, how far it is from its neighbour and whether it is larger: as chance has it, within 4.5 sigma."""
    many = 1000 if size == 1000 else 50_000
    found = Permutation(size, 11, 0).part(0, many)
    tenths = Counter(number * 10 // size for number in found)
    assert all(abs(tenths[tenth] - many / 10) < 4.5 * math.sqrt(many * 0.09) for tenth in range(10))
    rises = sum(one < other for one, other in pairwise(found))
    assert abs(rises - many / 2) < 4.5 * math.sqrt(many / 12)
    steps = Counter((other - one) % size * 10 // size for one, other in pairwise(found))
    assert all(abs(steps[tenth] - many / 10) < 4.5 * math.sqrt(many * 0.09) for tenth in range(10))
    low_bits = Counter(number % 8 for number in found)
    assert all(abs(low_bits[bits] - many / 8) < 4.5 * math.sqrt(many * 7 / 64) for bits in range(8))


def test_each_number_comes_to_each_position_equally_often() -> None:
    at = Counter(
        (place, number) for seed in range(2000) for place, number in enumerate(Permutation(10, seed).part(0, 10))
    )
    assert all(abs(at[place, number] - 200) < 4.5 * math.sqrt(180) for place in range(10) for number in range(10))


def test_the_tables_are_as_long_as_the_root_of_the_size() -> None:
    held = [table for pair in Permutation(MANY, 1)._pairs for table in pair]
    assert sum(table.itemsize * len(table) for table in held) == 240_000


def test_more_than_anybody_has_is_refused() -> None:
    with pytest.raises(UsageError, match="0 to 2\\^40 samples"):
        Permutation(MOST_SAMPLES + 1)
