"""Which workers have slept in the kernel (state D) for too long to be waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planaria.elastic.utils.process_state import is_uninterruptible_state, read_proc_state

if TYPE_CHECKING:
    from collections.abc import Iterable


class StuckWorkers:
    """Remembers since when each worker was met in that state at every look. `timeout_s` of 0: nobody ever is stuck."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._since: dict[int, float] = {}

    def among(self, pids: Iterable[int], now: float) -> list[int]:
        """Return those of these workers that are stuck at `now`, monotonic seconds."""
        if self.timeout_s <= 0:
            return []
        asleep = [pid for pid in pids if is_uninterruptible_state(read_proc_state(pid))]
        self._since = {pid: self._since.get(pid, now) for pid in asleep}
        return [pid for pid in asleep if now - self._since[pid] >= self.timeout_s]
