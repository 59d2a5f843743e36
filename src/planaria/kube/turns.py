"""Who of those that wait is next: namespaces take turns, and within one of them whoever came first. Pure.

So a namespace with a thousand jobs keeps another one's only job waiting for one of them, not for a thousand.
"""

from __future__ import annotations

from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.kube.watching import Key


class Turns:
    """Keys that wait, each at most once."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Key]] = {}  # by namespace, the one whose turn it is first
        self._keys: set[Key] = set()

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: Key) -> None:
        """Let a key wait behind those of its namespace; one that waits keeps its place."""
        if key not in self._keys:
            self._keys.add(key)
            self._lines.setdefault(key[0], deque()).append(key)

    def take(self) -> Key:
        """Return whose turn it is, who then waits no more; there has to be one."""
        namespace, line = next(iter(self._lines.items()))
        key = line.popleft()
        self._keys.discard(key)
        del self._lines[namespace]
        if line:
            self._lines[namespace] = line  # behind the others
        return key
