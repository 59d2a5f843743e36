"""A commit of a sharded model on its way to the disk: a thread has torch.distributed.checkpoint write it; trouble is told.

torch's own `async_save` copies the tensors and starts the thread in one call. Here ranks agree in between: a thread that has
begun waits for those of all other ranks, and would take whatever they write next for its own commit's.
"""

from __future__ import annotations

import hashlib
import os
from importlib import import_module

from planaria.contract.control import CHECKPOINT
from planaria.errors import StateRefused
from planaria.worker.bundle import Superseded
from planaria.worker.link import LINK
from planaria.worker.phase import PhaseOfWork
from planaria.worker.vault import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor
    from typing import Any

    from planaria.contract.commit import Stamp
    from planaria.worker.storage import Writer

_MOST_CHARACTERS = 200  # of what torch says
SLOW_S = 10.0  # how long a commit waits for the one before until that is worth a line


def number_of(directory: str) -> int:
    """Return what tells the states of a program apart: a number of the folder, the same in every process of a node."""
    return int.from_bytes(hashlib.sha256(os.fsencode(os.path.realpath(directory))).digest()[:7], "big")


def copied(tensors: dict[str, Any]) -> dict[str, Any]:
    """Return the tensors of this rank on the CPU, in memory of their own: of those that are sharded, its own parts.

    Of torch's own stagers the simple one copies twice, and does not copy a sharded tensor without dimensions at all.
    """
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


class Saving:
    """The commit that is being written, one at a time. Trouble is told once, and training goes on.

    `number` is that of the folder, as the agent is told it.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._thread: ThreadPoolExecutor | None = None
        self._future: Future[Any] | None = None
        self._stamp: Stamp | None = None
        self._has_failed = self._has_said_wait = self._is_shared = False

    def start(self, stamp: Stamp, tensors: dict[str, Any], writer: Writer, group: Any) -> None:
        """Have tensors that nobody changes written, by all ranks of the group together; alone without one."""
        dcp = import_module("torch.distributed.checkpoint")

        def save() -> None:
            try:
                dcp.save(tensors, **options)
            except Exception:
                if not writer.is_there():  # ranks may be lost while they tell each other that it is
                    raise
            self.mark(stamp, is_done=True)  # before whoever waits may end the process

        planner = dcp.DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
        options = {"storage_writer": writer, "planner": planner, "process_group": group, "no_dist": group is None}
        if self._thread is None:
            from concurrent.futures import ThreadPoolExecutor

            # A thread, because disks are slow; one for all commits, which are written one after the other.
            self._thread = ThreadPoolExecutor(1, "planaria save")
        self._stamp, self._is_shared = stamp, group is not None
        self._future = self._thread.submit(save)

    def mark(self, stamp: Stamp, *, is_done: bool) -> None:
        """Tell the agent of a commit of this state: that this rank begins it, or that all of it is on disk."""
        LINK.store(self.number, stamp, is_done=is_done)

    def finish(self, timeout_s: float | None) -> bool:
        """Wait for the commit that is being written; tell whether it is on disk.

        Raises:
            StateRefused: Another life uses the directory.
        """
        future = self._future
        if future is None:
            return True
        try:
            trouble = future.exception(timeout_s) if timeout_s is not None else self._trouble_of(future)
        except TimeoutError:  # it goes on: the next commit waits for it
            say(f"{self._stamp} is not on disk after {timeout_s:.0f} s")
            return False
        self._future = None
        if trouble is not None:
            _check_superseded(trouble)
            self._tell_trouble(trouble)
            return False
        if self._has_failed:
            say(f"{self._stamp} is on disk: commits are written again")
            self._has_failed = False
        return True

    def _trouble_of(self, future: Future[Any]) -> BaseException | None:
        """Wait without a limit, since all ranks have to go on from the same commit; a line tells of a long wait."""
        if future.done():
            return future.exception()
        with PhaseOfWork(LINK, CHECKPOINT):
            try:
                return future.exception(SLOW_S)
            except TimeoutError:
                if not self._has_said_wait:
                    say(
                        f"{self._stamp} is still being written after {SLOW_S:.0f} s, and training waits for it: the disk is "
                        "slower than commits come, so commit less often (said once)"
                    )
                self._has_said_wait = True
            return future.exception()

    def _tell_trouble(self, trouble: BaseException) -> None:
        """Tell that a commit is not on disk, or that this rank cannot know: rank 0, which makes it one, may be lost."""
        if _failures(trouble) or not self._is_shared or (self._stamp and self._stamp.rank == 0):
            self.tell(self._stamp, _reason(trouble))
            return
        say(
            f"{self._stamp} may not be on disk: ranks were lost while it was written ({_reason(trouble)[:_MOST_CHARACTERS]})"
        )

    def tell(self, stamp: Stamp | None, reason: str) -> None:
        """Tell that a commit is not on disk, unless that was told of one before and none has been since."""
        if not self._has_failed:
            say(f"{stamp} is not on disk: {reason}; training goes on, and the next commit is tried")
        self._has_failed = True


def _failures(exc: BaseException) -> list[tuple[int, BaseException]]:
    """Return what went wrong on which rank; torch tells of each, with a traceback."""
    failures = getattr(exc, "failures", None) or {}
    return [(rank, first) for rank, (first, *_) in sorted(failures.items())]


def _reason(exc: BaseException) -> str:
    """Say in one line what went wrong."""
    failures = _failures(exc)
    return f"rank {failures[0][0]}: {failures[0][1]}" if failures else str(exc) or repr(exc)


def _check_superseded(exc: BaseException) -> None:
    for found in (exc, *(failure for _, failure in _failures(exc))):
        if isinstance(found, Superseded):
            raise StateRefused(
                f"no commit of this life counts any more: {found}",
                hint="a restart goes on from the newest commit; is there another program that uses the folder?",
            ) from exc
