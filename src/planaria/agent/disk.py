"""The agent's hold on its snapshot directory: written and searched in threads, heard of on the loop."""

from __future__ import annotations

import os
import threading
import time

from planaria.archive.plan import Failed, Written
from planaria.archive.shelf import Shelf
from planaria.archive.writer import Pinned, Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planaria.archive.plan import Outcome
    from planaria.contract.commit import Order, Stamp

    Post = Callable[[Callable[[], object]], None]
    Part = tuple[Stamp, int, int, Callable[[], None]]

NICE = 10  # digests and writes yield to training on the same cores


class Disk:
    """Writes the newest complete commit of a node, and finds the newest whole one of an earlier run.

    `pin` returns the parts of the newest complete commit: stamp, descriptor, size, and how to let go. It is called in the
    writer's thread; `say` and `on_written` are called on the loop, through `post`.
    """

    def __init__(
        self,
        directory: str,
        keep: int,
        pin: Callable[[], Sequence[Part]],
        post: Post,
        say: Callable[[str], object],
        on_written: Callable[[Stamp | None], object],
    ) -> None:
        self._shelf = Shelf(directory, keep)
        self._pin = pin
        self._post = post
        self._say = say
        self._on_written = on_written
        self._is_lowered = False
        self._failed: Order | None = None
        self._found: Stamp | str | None = ""
        self._asking: list[Callable[[Stamp | str | None], object]] = []
        self._writer = Writer(self._shelf, self._take, self._tell, time.monotonic, self._on_outcome)
        self.directory = self._shelf.directory
        try:
            self.next_run = self._shelf.newest_run() + 1
        except OSError:  # whoever asks for a commit of an earlier run is told why there is none
            self.next_run = 1

    def wake(self) -> None:
        """Say that there is a newer complete commit."""
        self._writer.wake()

    def has_failed(self, order: Order) -> bool:
        """Tell whether writing this commit, or one that was tried instead of it, has failed."""
        return self._failed is not None and self._failed >= order

    def flush(self, order: Order, within_s: float) -> bool:
        """Wait until this commit is on disk; tell whether it is."""
        outcome = self._writer.flush(order, max(within_s, 0.0))
        return outcome is not None and not isinstance(outcome, Failed) and self._shelf.has(order)

    def find(self, tell: Callable[[Stamp | str | None], object]) -> None:
        """Tell, once it is known, the newest commit of which every file is whole. All who ask are told the same.

        A text says why nobody knows: a job must not begin anew because a directory could not be read.
        """
        if self._found != "":
            tell(self._found)
            return
        self._asking.append(tell)
        if len(self._asking) == 1:
            threading.Thread(target=self._search, name="planaria disk reader", daemon=True).start()

    def _search(self) -> None:
        found: Stamp | str | None
        try:
            manifest = self._shelf.newest_whole(self._tell)
            found = None if manifest is None else manifest.stamp(0)
        except OSError as problem:
            found = f"cannot look for commits in {self.directory}: {problem.strerror}"
        self._post(lambda: self._on_found(found))

    def _on_found(self, found: Stamp | str | None) -> None:
        self._found = "" if isinstance(found, str) else found  # who asks again has it tried again
        asking, self._asking = self._asking, []
        for tell in asking:
            tell(found)

    def _tell(self, line: str) -> None:
        self._post(lambda: self._say(line))

    def _take(self) -> list[Pinned]:
        """Map what is to be written: only for as long as it is, and only to be read."""
        from mmap import ACCESS_READ, mmap

        if not self._is_lowered:
            self._is_lowered = True
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)  # of this thread alone
        return [
            Pinned(stamp, memoryview(mmap(descriptor, size_bytes, access=ACCESS_READ)), release)
            for stamp, descriptor, size_bytes, release in self._pin()
        ]

    def _on_outcome(self, outcome: Outcome) -> None:
        self._post(lambda: self._heard(outcome))

    def _heard(self, outcome: Outcome) -> None:
        is_there = isinstance(outcome, Written) and outcome.complete
        if not is_there:
            self._failed = outcome.stamp.order
        self._on_written(outcome.stamp if is_there else None)
