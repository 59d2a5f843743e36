"""The one sentence that all bad values share, whoever read them: the name, what is expected, what was got."""

from __future__ import annotations

from planaria.base.text import safe_line
from planaria.errors import UsageError

_SHOWN_CHARACTERS = 120  # enough of a long value to recognise it, not enough to flood a terminal
LONGEST_S = 10**9


def quoted(text: str) -> str:
    """Return foreign text for a message: harmless to a terminal, in quotes, cut when long."""
    return f"'{safe_line(text, _SHOWN_CHARACTERS)}'"


def wrong(source: str, expected: str, got: str) -> UsageError:
    """Make that sentence."""
    return UsageError(f"{source} expects {expected}, got {quoted(got)}")


def seconds(number: float, source: str, least: float = 0) -> float:
    """Check a time; a thousand million seconds are for ever."""
    if not least <= number <= LONGEST_S:
        raise wrong(source, f"seconds from {least:g} to {LONGEST_S}", f"{number:g}")
    return number
