"""Which lines of a log are new, when it is looked at again and again. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Hosts send their lines in batches of seconds, and CloudWatch takes a while: a line may come behind newer ones of others.
LATE_MS = 60_000
_AT_LEAST = 10_000  # lines between two times of forgetting


class Tail:
    """Remembers the lines of the last minute, and nothing older."""

    def __init__(self) -> None:
        self._shown: dict[str, int] = {}
        self._newest_ms = 0
        self._room = _AT_LEAST

    def start(self) -> dict[str, object]:
        """Return what the next request begins at; nothing the first time."""
        return {"startTime": max(self._newest_ms - LATE_MS, 0)} if self._newest_ms else {}

    def is_new(self, event: Mapping[str, object]) -> bool:
        """Tell whether a line was not seen before, and remember it."""
        name, at_ms = str(event["eventId"]), int(str(event["timestamp"]))
        if name in self._shown:
            return False
        self._shown[name] = at_ms
        self._newest_ms = max(self._newest_ms, at_ms)
        if len(self._shown) > self._room:
            self._shown = {old: at for old, at in self._shown.items() if at >= self._newest_ms - LATE_MS}
            self._room = 2 * len(self._shown) + _AT_LEAST
        return True


def is_of_rank(line: str, rank: int) -> bool:
    """Tell whether a line is one that this rank printed: hosts have the launcher put `[ROLE RANK]:` before it."""
    found = re.match(r"\[[^\]]* (\d+)\]:", line)
    return found is not None and int(found[1]) == rank
