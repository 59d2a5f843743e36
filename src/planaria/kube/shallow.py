"""Read JSON of any depth. Pure.

An API server takes objects that are nested ten thousand deep, where Python's reader gives up at a thousand. Nothing that we
read lies so deep, and one such object must not hide all others of its page.
"""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MOST_DEPTH = 200
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]')


def read(raw: bytes) -> Any:
    """Return what a text says; where it is nested too deep to be read, with null for what lies below MOST_DEPTH.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        return json.loads(raw)
    except RecursionError:
        return json.loads(b"".join(_cut(raw)))


def _cut(raw: bytes) -> Iterator[bytes]:
    depth = taken = 0
    for token in _TOKEN.finditer(raw):
        match token[0]:
            case b"{" | b"[":
                depth += 1
                if depth == MOST_DEPTH + 1:
                    yield raw[taken : token.start()]
                    yield b"null"
            case b"}" | b"]":
                if depth == MOST_DEPTH + 1:
                    taken = token.end()
                depth -= 1
    yield raw[taken:]
