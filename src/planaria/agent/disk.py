"""The agent's hold on its snapshot directory: written and searched in threads, heard of on the loop."""

from __future__ import annotations

import os
import threading

from planaria.archive.plan import Failed, Written
from planaria.archive.shelf import Shelf
from planaria.archive.writer import NEEDED, Pinned, Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from planaria.agent.errands import Cancelled
    from planaria.archive.plan import Outcome, World
    from planaria.contract.commit import Order, Stamp

    class Loop(Protocol):
        """What a disk needs of a loop."""

        def now(self) -> float:
            """Return the seconds of its clock."""

        def call_later(self, delay_s: float, callback: Callable[[], object]) -> Cancelled:
            """Call back later."""

    Post = Callable[[Callable[[], object]], None]
    Tell = Callable[[Stamp | str | None, Order | None], object]

NICE = 10  # digests and writes yield to training on the same cores
LOOK_EVERY_S = 15.0  # at a write: a slow one is told of within this much of `SLOW_S`


class _Order:
    """Parts that are to be written, in which round, and who is told what came of it, or that nothing will.

    Its memory `is_given_up` when somebody else needs it: then it fails once the writer's thread notices, and `is_over`.
    """

    def __init__(
        self,
        parts: Sequence[Pinned],
        writer: World | None,
        tell: Callable[[Outcome], object],
        on_given_up: Callable[[], object] | None,
    ) -> None:
        self.parts = parts
        self.writer = writer
        self.tell = tell
        self.on_given_up = on_given_up
        self.is_given_up = self.is_over = False
        self._held = [*parts]

    def let_go(self, parts: Sequence[Pinned]) -> None:
        """Let go of parts, those that are held still; on the loop."""
        gone = [one for one in self._held if any(one is other for other in parts)]
        self._held = [one for one in self._held if not any(one is other for other in parts)]
        for one in gone:
            one.release()


class Disk:
    """Writes a node's parts of commits, one commit at a time, and finds the newest whole commit of the directory.

    `say`, and whatever is told, is called on the loop, through `post`.
    """

    def __init__(self, directory: str, keep: int, loop: Loop, post: Post, say: Callable[[str], object]) -> None:
        self._shelf = Shelf(directory, keep)
        self._loop = loop
        self._watching: Cancelled | None = None
        self._post = post
        self._say = say
        self._is_lowered = self._is_told = False
        self.writer: World | None = None  # the run and round that this node is in
        self._lock = threading.Lock()
        self._next: _Order | None = None
        self._now: _Order | None = None  # the writer's thread has it, or had it last
        self.written = 0  # commits of which this node's files got there
        self._writer = Writer(self._shelf, self._take, self._tell, loop.now, self._on_outcome)
        self.directory = self._shelf.directory

    def write(
        self,
        parts: Sequence[Pinned],
        tell: Callable[[Outcome], object],
        on_given_up: Callable[[], object] | None = None,
    ) -> None:
        """Write a commit's parts, after what is being written now. What waited before it is given up, and told only that.

        While the writer hangs in what was given up, nothing else is held for it: that would be waited for and given up as
        well, in every life again. Such a write fails, unless its caller would hear `on_given_up`, who has time.
        """
        if on_given_up is None and self._hangs():
            self._fail(parts, tell)
            return
        with self._lock:
            given_up, self._next = self._next, _Order(parts, self.writer, tell, on_given_up)
        self._writer.wake()
        if self._watching is None:
            self._watching = self._loop.call_later(LOOK_EVERY_S, self._watch)
        if given_up is None:
            return
        given_up.let_go(given_up.parts)
        if given_up.on_given_up is not None:
            given_up.on_given_up()

    def _hangs(self) -> bool:
        order = self._now
        return order is not None and order.is_given_up and not order.is_over

    def _fail(self, parts: Sequence[Pinned], tell: Callable[[Outcome], object]) -> None:
        failed = Failed(parts[0].stamp, NEEDED) if parts else None
        for one in parts:
            one.release()
        if failed is not None:
            self._post(lambda: tell(failed))  # not at once: who is told may order the next

    def give_up(self) -> None:
        """Let go of the memory that is written from, or is to be, at once: somebody needs it more. Those writes fail.

        Who ordered them is told so by the writer's thread, when it gets to know, also if it hangs in a call of the system.
        """
        with self._lock:
            orders = [order for order in (self._now, self._next) if order is not None]
        for order in orders:
            order.is_given_up = True
            order.let_go(order.parts)

    def close(self) -> None:
        """Watch the writer no longer: for a process that goes on without this agent."""
        if self._watching is not None:
            self._watching.cancel()

    def _watch(self) -> None:
        """Look whether a write is slow, again and again for as long as one is under way.

        Nobody else does: the council orders no other write before it has heard what came of this one.
        """
        self._watching = self._loop.call_later(LOOK_EVERY_S, self._watch) if self._writer.look() else None

    def refuse(self, why: str) -> None:
        """Tell once that a commit's parts cannot be given to the disk; the writer tells of everything later."""
        if not self._is_told:
            self._is_told = True
            self._say(
                f"a commit cannot be written to disk: {why}; training goes on, the next commit is tried (said once)"
            )

    def look(self, order: Order, tell: Callable[[bool], object]) -> None:
        """Tell, once it is known, whether this commit, or a newer one, is whole in the directory."""

        def run() -> None:
            try:
                found = self._shelf.has(order)
            except OSError:
                found = False
            self._post(lambda: tell(found))

        # A thread as below: a directory that hangs must not hold up the loop.
        threading.Thread(target=run, name="planaria disk reader", daemon=True).start()

    def find(self, than: Order | None, tell: Tell) -> None:
        """Tell, once it is known, the newest commit of which every file is whole, if it is newer than this one.

        Told too is the newest that has left a folder, whole or not: this run's commits have to be newer.
        A text says why nobody knows: a job must not begin anew because a directory could not be read.
        """
        # A thread, because a directory may be slow, and large files are read and compared.
        threading.Thread(target=self._search, args=(than, tell), name="planaria disk reader", daemon=True).start()

    def _search(self, than: Order | None, tell: Tell) -> None:
        found: Stamp | str | None
        newest = None
        try:
            newest = self._shelf.newest_order()
            manifest = self._shelf.newest_whole(self._tell, than)
            found = None if manifest is None else manifest.stamp(0)
        except OSError as problem:
            found = f"cannot look for commits in {self.directory}: {problem.strerror}"
        self._post(lambda: tell(found, newest))

    def _tell(self, line: str) -> None:
        self._post(lambda: self._say(line))

    def _take(self) -> list[Pinned]:
        """Return what is to be written next; its readers let go of it on the loop."""
        if not self._is_lowered:
            self._is_lowered = True
            thread = threading.get_native_id()  # its priority alone
            if os.getpriority(os.PRIO_PROCESS, thread) < NICE:  # in a job that is nicer still, only root could set this
                os.setpriority(os.PRIO_PROCESS, thread, NICE)
        with self._lock:
            self._now, self._next = self._next, None
        order = self._now
        return [self._taken(order, one) for one in order.parts] if order is not None else []

    def _taken(self, order: _Order, part: Pinned) -> Pinned:
        def release() -> None:
            self._post(lambda: order.let_go([part]))

        return Pinned(part.stamp, part.memory, release, lambda: order.is_given_up, order.writer)

    def _on_outcome(self, outcome: Outcome) -> None:
        order = self._now
        if order is not None:
            order.is_over = True
            self._post(lambda: self._told(order, outcome))

    def _told(self, order: _Order, outcome: Outcome) -> None:
        self.written += isinstance(outcome, Written)
        order.tell(outcome)
