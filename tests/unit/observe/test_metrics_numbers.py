"""Every number has a line, whatever was set: a scrape never fails of one."""

from __future__ import annotations

import pytest

from planaria.observe.metrics import Registry


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (10**400, "+Inf"),
        (-(10**400), "-Inf"),
        (1 << 63, "9.223372036854776e+18"),
        ((1 << 53) - 1, "9007199254740991"),
        (-3, "-3"),
        (True, "1"),
        (0.5, "0.5"),
        (float("inf"), "+Inf"),
        (float("nan"), "NaN"),
    ],
)
def test_any_number_can_be_shown(number: float, shown: str) -> None:
    registry = Registry()
    registry.gauge("x", "X.").set(number)
    assert registry.expose().splitlines()[-1] == f"x {shown}"
