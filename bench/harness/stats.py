"""Pure arithmetic: what a list of numbers says, and how it is written."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

NEVER = math.inf
"""Something that had not happened when the time limit was over."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Median and spread of `n` numbers."""

    median: float
    p10: float
    p90: float
    n: int


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the sorted numbers lie, interpolated; `NEVER` swallows its neighbours."""
    place = share * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    if low == high or place == math.floor(place):
        return low
    return low + (high - low) * (place - math.floor(place))


def summarise(numbers: Sequence[float]) -> Summary | None:
    """Return median, p10 and p90; None of nothing."""
    if not numbers:
        return None
    ordered = sorted(numbers)
    return Summary(quantile(ordered, 0.5), quantile(ordered, 0.1), quantile(ordered, 0.9), len(ordered))


def plain(number: float) -> str:
    """Write a number with three significant digits and no exponent: 0.0123, 1.23, 12.3, 1,234."""
    if number == NEVER:
        return "never"
    if number == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(number))))
    return f"{number:,.{min(digits, 4)}f}"


def ratio(number: float, base: float) -> str:
    """Write how many times `base` a number is."""
    if base == NEVER or (base == 0 and number == 0):
        return "-"
    if number == NEVER or base == 0:
        return "∞"
    return f"{plain(number / base)} x"


def counted(facts: Sequence[str]) -> str:
    """Write how often each fact was seen: `143 (11 of 11)`."""
    return "; ".join(f"{fact} ({count} of {len(facts)})" for fact, count in Counter(facts).most_common())
