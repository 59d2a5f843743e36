"""The one sentence that all bad values share, whoever read them: the name, what is expected, what was got."""

from __future__ import annotations

from planaria.base.text import safe_line
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container

_SHOWN_CHARACTERS = 120  # enough of a long value to recognise it, not enough to flood a terminal
LONGEST_S = 10**9


def quoted(text: str) -> str:
    """Return foreign text for a message: harmless to a terminal, in quotes, cut when long."""
    return f"'{safe_line(text, _SHOWN_CHARACTERS)}'"


def wrong(source: str, expected: str, got: str) -> UsageError:
    """Make that sentence."""
    return UsageError(f"{source} expects {expected}, got {quoted(got)}")


def no_such_flag(command: str, word: str) -> UsageError:
    """Say that a word is none of a command's flags."""
    problem = "has no flag" if word.startswith("-") else "takes nothing but flags, got"
    return UsageError(f"{command} {problem} {quoted(word)}", hint="--help lists them all")


def taken_flag(
    words: list[str], values: Container[str], switches: Container[str], command: str, called: Callable[[str], str] = str
) -> tuple[str, str]:
    """Take a flag of a command from the front of its words, with its value, which stands behind `=` or is the next word.

    `called` returns its usual name.

    Raises:
        UsageError: There is no such flag, or a value is missing or has no meaning.
    """
    typed, equals, value = words.pop(0).partition("=")
    name = called(typed)
    if name not in values and name not in switches:
        raise no_such_flag(command, name)
    if name in switches and equals:
        raise UsageError(f"{name} takes no value, got {quoted(value)}")
    if name in values and not equals:
        if not words:
            raise UsageError(f"{name} expects a value, got nothing")
        value = words.pop(0)
    return name, value


def whole_number(text: str, source: str, expected: str, least: int = 0, most: int = 10**9) -> int:
    """Read a whole number in plain digits. Raises UsageError."""
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and least <= int(text) <= most):
        raise wrong(source, expected, text)
    return int(text)


def seconds_in(text: str, source: str, least: float = 0, most: float = LONGEST_S) -> float:
    """Read a time. Raises UsageError."""
    try:
        number = float(text)
    except ValueError:
        raise wrong(source, "a number of seconds", text) from None
    return seconds(number, source, least, most)


def seconds(number: float, source: str, least: float = 0, most: float = LONGEST_S) -> float:
    """Check a time; a thousand million seconds are for ever."""
    if not least <= number <= most:
        raise wrong(source, f"seconds from {least:g} to {most:.0f}", f"{number:g}")
    return number
