"""Write JSON values as YAML that people like to read: block style, several documents, a comment above each. Pure.

Only what manifests need is here, so that nobody has to install a library to print one. A string stands without quotes where no
reader of YAML 1.1 or 1.2 can take it for anything else; all others are quoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
Document: TypeAlias = tuple[str, Mapping[str, Json]]
"""A comment, which may be empty, and what stands below it."""

LONGEST_KEY = 1000  # as it is written; readers look for the colon of a key within 1024 characters
# Letters first, or dashes and a letter as in a flag. A colon is one only before a space, a hash only after one.
_PLAIN = re.compile(r"(?:-{0,2}[A-Za-z]|[/_])[\w./=+%@,<>()-]*(?:[ :][\w./=+%@,<>()-]+)*", re.ASCII)
_QUANTITY = re.compile(r"[1-9][0-9]*(?:[KMGTPE]i|m)")
_WORDS = frozenset({"y", "n", "yes", "no", "true", "false", "on", "off", "null"})  # of YAML 1.1, in any case
_BREAKS = "\r\x85\u2028\u2029"
_SHOWN = ((0x20, 0x7F), (0xA0, 0xD800), (0xE000, 0xFEFF), (0xFF00, 0xFFFE), (0x10000, 0x110000))
_NAMED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}


def documents(several: Iterable[Document]) -> str:
    """Return one text with all of them.

    Raises:
        ValueError: A value is no JSON, or a string is no Unicode text, or a key is too long.
    """
    return "---\n".join(_comment(above) + _block(value, "") for above, value in several)


def _comment(text: str) -> str:
    lines = text.split("\n") if text else ()
    shown = ("".join(letter if _stands(letter) else ascii(letter)[1:-1] for letter in line) for line in lines)
    return "".join(f"# {line}".rstrip() + "\n" for line in shown)


def _block(value: Json, indent: str) -> str:
    """Return a value that begins a line of its own."""
    match value:
        case dict() if value:
            return "".join(f"{indent}{_key(key)}:{_after_key(item, indent)}" for key, item in value.items())
        case list() | tuple() if value:
            return "".join(f"{indent}-{_after_dash(item, indent)}" for item in value)
        case _:
            return f"{indent}{_scalar(value, indent)}\n"


def _after_key(value: Json, indent: str) -> str:
    if _is_filled(value):  # a list may stand as far left as its key
        return "\n" + _block(value, indent + "  " if isinstance(value, dict) else indent)
    return f" {_scalar(value, indent + '  ')}\n"


def _after_dash(value: Json, indent: str) -> str:
    if _is_filled(value):  # its first line stands behind the dash
        return " " + _block(value, indent + "  ")[len(indent) + 2 :]
    return f" {_scalar(value, indent + '  ')}\n"


def _is_filled(value: Json) -> bool:
    return isinstance(value, (dict, list, tuple)) and len(value) > 0


def _key(key: str) -> str:
    if not isinstance(key, str):
        raise ValueError(f"a key expects text, got {type(key).__name__}")
    written = key if _is_plain(key) else _quoted(key)
    if len(written) > LONGEST_KEY:
        raise ValueError(f"a key expects text of at most {LONGEST_KEY} characters")
    return written


def _scalar(value: Json, indent: str) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _number(value)
        case str():
            return _text(value, indent)
        case dict():
            return "{}"
        case list() | tuple():
            return "[]"
    raise ValueError(f"a value expects JSON, got {type(value).__name__}")


def _number(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124  only NaN is not itself
        raise ValueError("JSON has no such number")
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e")


def _text(text: str, indent: str) -> str:
    if _is_plain(text):
        return text
    if not _is_block(text):
        return _quoted(text)
    head = "|" if text.endswith("\n") else "|-"
    indent = indent or "  "
    return "\n".join([head, *(f"{indent}{line}" if line else "" for line in text.removesuffix("\n").split("\n"))])


def _is_plain(text: str) -> bool:
    if _QUANTITY.fullmatch(text):
        return True
    return _PLAIN.fullmatch(text) is not None and text.lower() not in _WORDS


def _is_block(text: str) -> bool:
    """Tell whether several lines can stand as they are: the first says how far they are indented, the last ends the text."""
    return (
        "\n" in text
        and text[0] not in " \t\n"
        and not text.endswith("\n\n")
        and all(letter in "\n\t" or _stands(letter) for letter in text)
    )


def _stands(letter: str) -> bool:
    """Tell whether a character may stand unescaped in a file, and ends no line there."""
    number = ord(letter)
    return letter not in _BREAKS and any(first <= number < end for first, end in _SHOWN)


def _quoted(text: str) -> str:
    return f'"{"".join(_escaped(letter) for letter in text)}"'


def _escaped(letter: str) -> str:
    number = ord(letter)
    if letter in _NAMED:
        return _NAMED[letter]
    if 0xD800 <= number < 0xE000:
        raise ValueError("text expects Unicode, got half of a surrogate pair")
    if _stands(letter):
        return letter
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
