"""Of two that share memory only one is written there."""

from __future__ import annotations

from typing import Any

import pytest

from planaria.worker import arrays
from planaria.worker.claims import Claims


def numpy() -> Any:
    return pytest.importorskip("numpy")


def sources(*shapes: int | tuple[int, ...]) -> list[Any]:
    return [numpy().full(shape, number) for number, shape in enumerate(shapes)]


def test_memory_of_its_own_may_be_written_and_is_claimed_then() -> None:
    one, other = numpy().zeros(4), numpy().zeros(4)
    claims, (first, second) = Claims(), sources(4, 4)
    assert claims.take(one, first)
    assert claims.take(other, second)
    assert not claims.take(one, second)
    assert not claims.take(one[:], second), "another view of the same"


def test_the_same_is_written_twice_from_the_same() -> None:
    target = numpy().zeros((2, 2))
    claims, (source,) = Claims(), sources((2, 2))
    assert claims.take(target, source)
    assert claims.take(target[:], source)
    assert not claims.take(target.T, source), "it would be read in another way"
    assert not claims.take(target[:1], source[:1])


@pytest.mark.parametrize(("start", "stop"), [(0, 3), (2, 5), (3, 7), (6, 9), (0, 9)])
def test_a_part_in_common_is_enough(start: int, stop: int) -> None:
    whole = numpy().zeros(9)
    claims, (first, second) = Claims(), sources(4, stop - start)
    assert claims.take(whole[2:7], first)
    assert not claims.take(whole[start:stop], second)
    assert claims.take(whole[0:2], second)
    assert claims.take(whole[7:9], second)


def test_arrays_that_run_backwards_or_lie_scattered_are_where_they_are() -> None:
    whole = numpy().zeros(10)
    claims, (first, second) = Claims(), sources(3, 3)
    assert claims.take(whole[4:1:-1], first)
    assert not claims.take(whole[2:5], second)
    assert claims.take(whole[5::2], second)
    assert not claims.take(whole[9:], second[:1])
    where, start, stop = arrays.span(whole[4:1:-1])
    assert (where, stop - start) == ("cpu", 3 * whole.itemsize)


def test_nothing_can_be_shared_of_what_has_no_bytes() -> None:
    target = numpy().zeros((3, 0))
    claims, (first, second) = Claims(), sources((3, 0), (3, 0))
    assert claims.take(target, first)
    assert claims.take(target, second)


def test_what_is_reserved_is_taken_by_nobody_and_who_had_the_very_same_is_told() -> None:
    whole = numpy().zeros(9)
    claims, (first, second, third) = Claims(), sources(3, 3, 5)
    assert claims.reserve(whole[0:3], first) is None
    assert claims.reserve(whole[0:3], second) is first
    assert claims.reserve(whole[2:7], third) is None, "it is not the same tensor, and reserved all the same"
    assert not claims.take(whole[6:9], second)
    assert not claims.take(whole[0:3], first), "nobody knows any more what is there"
    assert claims.take(whole[7:9], second[:2])
