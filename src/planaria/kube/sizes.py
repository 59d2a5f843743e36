"""Which sizes a policy allows, and which comes next. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from planaria.kube.scaling_model import Policy


def sizes_of(policy: Policy) -> Sequence[int]:
    """Return the sizes that are allowed, in order; never none."""
    allowed = policy.allowed and sorted({size for size in policy.allowed if policy.min <= size <= policy.max})
    return allowed or range(policy.min, max(policy.min, policy.max) + 1)


def fit(sizes: Sequence[int], wanted: int) -> int:
    """Return the largest size up to `wanted`, or the smallest of all."""
    return sizes[max(0, bisect_right(sizes, wanted) - 1)]


def above(sizes: Sequence[int], size: int) -> int | None:
    """Return the size to try after `size`: twice as many, or the nearest to that which is allowed. None at the top."""
    if size >= sizes[-1]:
        return None
    doubled = fit(sizes, 2 * size)
    return doubled if doubled > size else sizes[bisect_right(sizes, size)]


def between(sizes: Sequence[int], low: int, high: int) -> int:
    """Return a size half way between one that works and one that does not; `high` itself where there is none."""
    half = fit(sizes, (low + high) // 2)
    if half > low:
        return half
    return min(high, sizes[bisect_right(sizes, low)])
