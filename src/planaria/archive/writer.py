"""The background writer: one thread that writes the newest complete commit and never looks back at older ones."""

from __future__ import annotations

import threading

from planaria.archive.plan import Failed, Written, never
from planaria.base.text import safe_line
from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planaria.archive.plan import Outcome, World
    from planaria.archive.shelf import Shelf
    from planaria.contract.commit import Order, Stamp

SLOW_S = 60.0  # a write that takes longer is worth a line: commits on disk grow old meanwhile
NEEDED = "its memory was needed for the next commit"


class Pinned(Value):
    """A sealed snapshot that nobody overwrites until it is released, or `is_given_up`: then what is read of it is not used.

    `writer`: see `Shelf.write`.
    """

    stamp: Stamp
    memory: memoryview
    release: Callable[[], None]
    is_given_up: Callable[[], bool] = never
    writer: World | None = None


class Writer:
    """Write to a shelf without holding anybody up.

    `take` pins the newest complete commit, the snapshot of each rank that is to be written here, or returns none; it, `say`
    and `on_outcome` are called in this writer's thread. `say` hears one line when writing begins to fail, one when it works
    again, and in the thread of who wakes or looks one when a write is slow; `on_outcome` hears what came of each commit.
    """

    def __init__(
        self,
        shelf: Shelf,
        take: Callable[[], Sequence[Pinned]],
        say: Callable[[str], None],
        clock: Callable[[], float],
        on_outcome: Callable[[Outcome], object] | None = None,
    ) -> None:
        self._on_outcome = on_outcome
        self.shelf = shelf
        self._take = take
        self._say = say
        self._clock = clock
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wanted = self._stopping = self._failing = self._slow = False
        self._since: float | None = None
        self.last: Outcome | None = None

    def wake(self) -> None:
        """Say that there is a new complete commit. Returns at once and never raises."""
        with self._changed:
            if self._stopping:
                return
            self._wanted = True
            if self._thread is None:
                # A thread, because a disk may block for minutes, and neither training nor an agent's loop may. A daemon,
                # because a disk that hangs for good must not keep the process from its end.
                self._thread = threading.Thread(target=self._run, name="planaria disk writer", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        self.look()

    def look(self) -> bool:
        """Tell whether something is, or is to be, written; that a write is slow is said once. Returns at once, never raises.

        `wake` looks too: who calls it at every commit need not look, who waits for an outcome between two calls does.
        """
        with self._changed:
            is_busy = self._wanted or self._since is not None
            slow = self._since is not None and self._clock() - self._since > SLOW_S and not self._slow
            self._slow = self._slow or slow
        if slow:
            self._say(
                f"the disk is slow: writing to {self.shelf.directory} has taken more than {SLOW_S:.0f} s; training goes on, "
                "commits on disk are older meanwhile"
            )
        return is_busy

    def flush(self, order: Order, timeout_s: float) -> Outcome | None:
        """Wait until this commit or a newer one has been tried; return what came of it, or None after `timeout_s`."""
        self.wake()
        with self._changed:
            self._changed.wait_for(lambda: self._tried(order) or self._stopping, timeout_s)
            return self.last if self._tried(order) else None

    def close(self, timeout_s: float) -> bool:
        """Write what is wanted and end the thread; tell whether it ended in time."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _tried(self, order: Order) -> bool:
        return self.last is not None and self.last.stamp.order >= order

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._stopping)
                if not self._wanted:
                    return
                self._wanted = False
                self._since = self._clock()
            try:
                outcome = self._write_newest()
            except Exception as problem:  # noqa: BLE001  # a thread has nobody else to tell, and goes on with the next
                outcome = None
                self._say(
                    f"cannot take a commit to disk: {_text_of(problem)}; training goes on, the next commit is tried"
                )
            with self._changed:
                self._since = None
                if outcome:
                    self.last = outcome
                self._changed.notify_all()
            if outcome:
                self._tell(outcome)
                if self._on_outcome is not None:
                    self._on_outcome(outcome)

    def _write_newest(self) -> Outcome | None:
        """Write every part of a commit; what came of the last one written is what came of the commit."""
        outcome: Outcome | None = None
        for pinned in self._take():
            try:
                if self._is_done(pinned.stamp.order):
                    outcome = self.last
                elif outcome is None or isinstance(outcome, Written):
                    outcome = self._written(pinned)
            except Exception as problem:  # noqa: BLE001  # what the shelf never thought of is a failure like others
                outcome = Failed(pinned.stamp, _text_of(problem))
            finally:
                pinned.memory.release()
                pinned.release()
        return outcome

    def _written(self, pinned: Pinned) -> Outcome:
        outcome = self.shelf.write(pinned.memory, pinned.stamp, pinned.is_given_up, pinned.writer)
        if isinstance(outcome, Failed) and pinned.is_given_up():  # whatever was found in it: it is another's by now
            return Failed(pinned.stamp, NEEDED)
        return outcome

    def _is_done(self, order: Order) -> bool:
        """Tell whether this commit, or a newer one, is on disk and whole; other nodes' files may have been missing before."""
        if self.last is None or isinstance(self.last, Failed) or self.last.stamp.order[:2] != order[:2]:
            return False  # of another round the shelf says whether that is over
        if isinstance(self.last, Written) and not self.last.complete:
            return self.last.stamp.order > order
        return self.last.stamp.order >= order

    def _tell(self, outcome: Outcome) -> None:
        if isinstance(outcome, Failed) and not self._failing:
            self._failing = True
            self._say(
                f"cannot write {outcome.stamp} to disk: {outcome.why}; training goes on, the next commit is tried"
            )
        elif isinstance(outcome, Written) and self._failing:
            self._failing = False
            self._say(f"commits are written to {self.shelf.directory} again")


def _text_of(problem: Exception) -> str:
    return safe_line(f"{type(problem).__name__}: {problem}")
