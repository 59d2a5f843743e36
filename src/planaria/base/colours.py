"""Escape sequences for terminals, and who gets them."""

from __future__ import annotations

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Style(Value):
    """Escape sequences, all empty where the screen is no terminal."""

    bold: str = ""
    dim: str = ""
    red: str = ""
    green: str = ""
    yellow: str = ""
    plain: str = ""


COLOURS = Style("\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m")


def style_for(environ: Mapping[str, str], *, is_terminal: bool) -> Style:
    """Return colours for a terminal, unless NO_COLOR is set."""
    return COLOURS if is_terminal and not environ.get("NO_COLOR") else Style()
