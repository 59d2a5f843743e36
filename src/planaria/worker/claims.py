"""Whose memory is whose while a snapshot is put back: of two that share it now, and did not then, only one is written there.

A program may have made one of another since, `state.best = state.weights`, or begin with both being one tensor. Whoever came
last would be in both.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from planaria.worker import arrays

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Claim = tuple[int, Any, Any]
    """Up to where memory is written, the tensor there, and what from; None twice for what several have claimed."""


class Claims:
    """The memory that one restore has written to. Targets are held, so that nobody else gets their addresses meanwhile."""

    def __init__(self) -> None:
        self._starts: dict[str, list[int]] = {}
        self._found: dict[str, list[Claim]] = {}  # side by side with the starts; no two of them overlap

    def take(self, target: Any, source: Any) -> bool:
        """Tell whether `target` may be written from `source`: no byte of it is another's, or the same is written again."""
        where, start, stop = arrays.span(target)
        if start == stop:
            return True
        first, last = self._range(where, start, stop)
        if first == last:
            self._put(where, first, last, (start, (stop, target, source)))
            return True
        _, there, origin = self._found[where][first]
        return last - first == 1 and _is_one(there, target) and _is_one(origin, source)

    def reserve(self, target: Any, source: Any) -> Any:
        """Claim memory that will be written from `source` in any case; return what it was to be written from otherwise.

        That is None unless another has claimed the very same tensor.
        """
        if self.take(target, source):
            return None
        where, start, stop = arrays.span(target)
        first, last = self._range(where, start, stop)
        starts, found = self._starts[where], self._found[where]
        other = next((origin for _, there, origin in found[first:last] if _is_one(there, target)), None)
        if other is None:
            whole = max(stop, found[last - 1][0]), None, None
            self._put(where, first, last, (min(start, starts[first]), whole))
        return other

    def _range(self, where: str, start: int, stop: int) -> tuple[int, int]:
        """Return which claims have bytes in common with this memory: from which one, up to which."""
        starts, found = self._starts.setdefault(where, []), self._found.setdefault(where, [])
        first = bisect_right(starts, start)
        if first and found[first - 1][0] > start:
            first -= 1
        return first, bisect_left(starts, stop, first)

    def _put(self, where: str, first: int, last: int, claim: tuple[int, Claim]) -> None:
        self._starts[where][first:last] = [claim[0]]
        self._found[where][first:last] = [claim[1]]


def _is_one(one: Any, other: Any) -> bool:
    """Tell whether two are the same tensor: the same bytes, read in the same way."""
    return one is not None and other is not None and arrays.identity(one) == arrays.identity(other)
