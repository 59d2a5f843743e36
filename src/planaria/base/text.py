"""Text of foreign origin, made safe for a terminal, and numbers in words."""

from __future__ import annotations

_KEPT = "\n\t"
_CONTROLS = {number: f"\\x{number:02x}" for number in (*range(32), *range(127, 160)) if chr(number) not in _KEPT}
_INVISIBLE = (0x061C, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
_ESCAPES = _CONTROLS | {number: f"\\u{number:04x}" for number in _INVISIBLE}


def safe(text: str) -> str:
    """Escape everything that could move the cursor, change colours or reorder what is read; keep newlines and tabs."""
    return text.translate(_ESCAPES).encode("utf-8", "backslashreplace").decode()


def safe_line(text: str, limit: int = 300) -> str:
    """Return foreign text as one line of at most about `limit` characters."""
    line = safe(text).replace("\n", "\\n").replace("\t", "\\t")
    return line if len(line) <= limit else f"{line[: limit - 20]}... ({len(line)} characters)"


def several(count: int, what: str) -> str:
    """Return `1 node`, `3 nodes`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
