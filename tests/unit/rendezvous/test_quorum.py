"""How many members are enough, and for how long: small enough to try everything."""

from __future__ import annotations

from itertools import product

import pytest

from planaria.rendezvous.quorum import ALWAYS, NEVER, is_enough, needed, valid_until

SIZES = range(1, 10)


@pytest.mark.parametrize(
    ("size", "with_tie_break", "without"),
    [(0, 0, 0), (1, 1, 1), (2, 1, 2), (3, 2, 2), (4, 2, 3), (5, 3, 3), (6, 3, 4), (7, 4, 4), (8, 4, 5), (9, 5, 5)],
)
def test_half_is_needed_with_the_tie_break_and_more_than_half_without(
    size: int, with_tie_break: int, without: int
) -> None:
    assert needed(size, tie_break=True) == with_tie_break
    assert needed(size, tie_break=False) == without
    for present in range(size + 2):
        assert is_enough(present, size, tie_break=True) == (2 * present >= size)
        assert is_enough(present, size, tie_break=False) == (2 * present > size or size == 0)


@pytest.mark.parametrize("size", SIZES)
def test_two_sides_of_a_split_are_never_both_enough(size: int) -> None:
    for left in range(size + 1):
        for right in range(size - left + 1):
            assert not (is_enough(left, size, tie_break=True) and is_enough(right, size, tie_break=False))
            assert not (is_enough(left, size, tie_break=False) and is_enough(right, size, tie_break=False))


@pytest.mark.parametrize("size", SIZES)
def test_a_split_without_losses_leaves_one_side_that_goes_on_if_the_incumbent_has_half(size: int) -> None:
    for left in range(size + 1):
        goes_on = is_enough(left, size, tie_break=True) or is_enough(size - left, size, tie_break=False)
        assert goes_on, (left, size - left)


@pytest.mark.parametrize("tie_break", [True, False])
@pytest.mark.parametrize("size", range(1, 6))
def test_validity_counts_from_the_newest_moment_at_which_enough_were_heard(size: int, tie_break: bool) -> None:
    for known in product([None, 1.0, 2.0, 5.0], repeat=size):
        heard = [at for at in known if at is not None]
        enough_at = [at for at in heard if sum(one >= at for one in heard) >= needed(size, tie_break=tie_break)]
        expected = max(enough_at) + 4.0 if enough_at else NEVER
        assert valid_until(heard, size, 4.0, tie_break=tie_break) == expected, known


def test_nobody_to_ask_is_no_limit() -> None:
    assert valid_until([], 0, 4.0, tie_break=False) == ALWAYS
    assert valid_until([], 0, 4.0, tie_break=True) == ALWAYS


@pytest.mark.parametrize("size", SIZES)
def test_the_tie_break_never_shortens_validity(size: int) -> None:
    heard = [float(at) for at in range(size)]
    for known in range(size + 1):
        helped = valid_until(heard[:known], size, 4.0, tie_break=True)
        assert helped >= valid_until(heard[:known], size, 4.0, tie_break=False)
