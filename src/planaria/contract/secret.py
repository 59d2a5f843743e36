"""Secrets that do not show themselves: no log, no dry run and no traceback of ours writes one out by accident."""

from __future__ import annotations

HIDDEN = "(hidden)"


class Secret:
    """Bytes that only `reveal` shows. JSON, formatting and `repr` get dots or refuse."""

    __slots__ = ("_content",)

    def __init__(self, content: bytes) -> None:
        self._content = content

    def reveal(self) -> bytes:
        """Return the secret itself, for the one place that needs it."""
        return self._content

    def __eq__(self, other: object) -> bool:
        return self._content == other._content if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash(Secret)  # the same for all: a hash of the content would tell something about it

    def __repr__(self) -> str:
        return "Secret(...)"


class SecretText(str):
    """A string for a foreign library that is not shown by `repr`, and so by no record or mapping that holds it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "SecretText(...)"
