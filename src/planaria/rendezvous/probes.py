"""When to look after those who are not here: often at first, then steadily. No clock, no sockets."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

PROBE_S = 0.5  # between two looks at a node whose connection ended
EARLY_PROBES_S = (0.02, 0.05, 0.1, 0.2)  # the first ones: a dying agent's connection may end before its listener does


class Probes:
    """Remembers when each node is due, and how often it was looked at since it was missed."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._tries: dict[str, int] = {}

    def miss(self, node: str, now: float) -> None:
        """Begin anew with a node whose connection has just ended."""
        self._due[node] = now
        self._tries[node] = 0

    def look(self, node: str, now: float) -> tuple[bool, float]:
        """Tell whether it is time to look after a node, which counts as a look, and when it is time again."""
        due = self._due.get(node, now)
        if due > now:
            return False, due
        tries = self._tries.get(node, 0)
        self._tries[node] = tries + 1
        self._due[node] = due = now + (*EARLY_PROBES_S, PROBE_S)[min(tries, len(EARLY_PROBES_S))]
        return True, due

    def keep(self, nodes: Container[str]) -> None:
        """Forget all but these."""
        self._due = {node: at for node, at in self._due.items() if node in nodes}
        self._tries = {node: tries for node, tries in self._tries.items() if node in nodes}
