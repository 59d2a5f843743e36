"""The watchdog of an agent that is asked: torch's pipe, heard for this agent's workers alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planaria.base import linux
from planaria.elastic.timer import FileTimerRequest, FileTimerServer
from planaria.elastic.utils.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from planaria.elastic.multiprocessing.errors import ProcessFailure

__all__ = ["WorkersTimerServer"]

logger = get_logger(__name__)


class WorkersTimerServer(FileTimerServer):
    """Ends only workers, and what comes from them: any process of this user could write the pid of any other.

    `pids` returns the workers' own at any moment.
    """

    def __init__(self, pids: Callable[[], Collection[int]], **settings: Any) -> None:
        super().__init__(**settings)
        self._pids = pids
        self._scopes: dict[int, str] = {}  # by worker: the first one that it was ended for

    def name_scopes(self, failures: Iterable[ProcessFailure]) -> None:
        """Say in the failures of those that were ended here which scope they were ended for."""
        for failure in failures:
            if failure.pid in self._scopes and isinstance(failure.message, str):
                failure.message = f"watchdog: scope {self._scopes[failure.pid]!r} expired; {failure.message}"

    def _reap_expired(self, pid: int, timers: list[FileTimerRequest]) -> None:
        worker = self._worker_of(pid)
        if worker is None:
            logger.warning("ignored a timer of pid %s, which is no worker of this agent and comes from none", pid)
            return
        scope = next((one.scope_id for one in timers if one.signal > 0), None)
        if scope is not None:
            self._scopes.setdefault(worker, scope)
        super()._reap_expired(pid, timers)

    def _worker_of(self, pid: int) -> int | None:
        workers = set(self._pids())
        while pid > 1:
            if pid in workers:
                return pid
            pid = linux.parent_of(pid) or 0
        return None
