from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria.base.text import safe, safe_line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain ä 日本 😀\n\ttext", "plain ä 日本 😀\n\ttext"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("over\rwritten \x08 \x7f \x9b2J", "over\\x0dwritten \\x08 \\x7f \\x9b2J"),
        ("\u202eevil\u2066 \u200b \ufeff \u2028", "\\u202eevil\\u2066 \\u200b \\ufeff \\u2028"),
        ("half \ud800 a pair", "half \\ud800 a pair"),
        ("\0", "\\x00"),
    ],
)
def test_only_what_could_deceive_is_escaped(text: str, expected: str) -> None:
    assert safe(text) == expected


@given(st.text() | st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_whatever_is_left_is_harmless_and_can_be_printed(text: str) -> None:
    left = safe(text)
    assert left.encode().decode() == left
    assert not [letter for letter in left if unicodedata.category(letter) == "Cc" and letter not in "\n\t"]
    assert not set(left) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\u2028\u2029")


@given(st.text(), st.integers(30, 400))
def test_a_line_is_one_line_and_not_too_long(text: str, limit: int) -> None:
    line = safe_line(text, limit)
    assert len(line.splitlines()) <= 1
    assert "\t" not in line
    assert len(line) <= limit + 20


def test_a_long_line_says_how_long_it_was() -> None:
    assert safe_line("x" * 1000) == "x" * 280 + "... (1000 characters)"
    assert safe_line("a\nb\tc") == "a\\nb\\tc"
