from __future__ import annotations

import pytest

from planaria.base.colours import COLOURS, Style, style_for


@pytest.mark.parametrize(
    ("environ", "is_terminal", "expected"),
    [
        ({}, True, COLOURS),
        ({"NO_COLOR": ""}, True, COLOURS),
        ({"NO_COLOR": "1"}, True, Style()),
        ({}, False, Style()),
    ],
)
def test_colours_are_for_terminals_of_those_who_want_them(
    environ: dict[str, str], *, is_terminal: bool, expected: Style
) -> None:
    assert style_for(environ, is_terminal=is_terminal) == expected
