"""See to it that standbys are kept for the workers that run: when to look at what these have loaded, and when to stop.

A young life has loaded a part of what it will. So its list counts when it stood still between two looks, or when a worker
has reported progress; until then what an earlier life has loaded counts, if there was one and it ran the same program. Then
looks become rare, and a list that has grown replaces the standbys. A list may have stood still in the middle of a slow import,
so the first progress counts after that as well. Only a job that wants standbys imports this file.
"""

from __future__ import annotations

import os

from planaria.agent.report import standby_line
from planaria.base.value import Value
from planaria.contract.blackbox import Learned
from planaria.process import prints
from planaria.process.model import Call
from planaria.process.spares import Lesson, make_plans, newer, own_files
from planaria.process.standbys import StandbysSeen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from planaria.agent.model import Group
    from planaria.base.loop import Loop, Timer
    from planaria.process.model import Command
    from planaria.process.prints import Print
    from planaria.process.spares import Plan
    from planaria.process.spawn import Start

    class Workers(Protocol):
        """What is asked of the workers of this node."""

        @property
        def learned(self) -> Learned:
            """What they have loaded so far."""

        @property
        def promoted(self) -> tuple[int, ...]:
            """The local ranks whose workers were standbys."""

        @property
        def cold(self) -> Mapping[int, str]:
            """Why the others were not."""

        def orders(self) -> tuple[Start, ...]:
            """How each would be started cold."""

    class Standbys(Protocol):
        """Those who stand by."""

        @property
        def pids(self) -> frozenset[int]:
            """Every process of theirs."""

        @property
        def overview(self) -> StandbysSeen:
            """Who stands by, and why not more."""

        def has_joined(self, local_rank: int) -> bool:
            """Whether one waits for this local rank in `join()`."""

        def keep(self, orders: tuple[Start, ...], plans: tuple[Plan, ...]) -> None:
            """Stand by for these starts, as planned for each."""

        def lend(self, local_rank: int) -> None:
            """Have one map what its rank writes commits into."""

        def make_room(self, then: Callable[[], object]) -> bool:
            """End them all for their memory; False when there is none."""

        def exited(self, pid: int, status: int) -> bool:
            """Note an end; False when it is none of theirs."""

        def close(self) -> None:
            """End them all."""


LOOK_S = 2.0  # longer than most silences in an import, when a large library is read from a disk
EMPTY_LOOKS = 5  # a program that has told of no module by then imports none; before, it may not have begun
LONGEST_LOOK_S = 60.0  # a library that is loaded hours later is worth a new standby, and no haste


class Tree(Value):
    """What is the user's own: the folders of the program, and its script, links followed; empty for a module."""

    folders: tuple[str, ...]
    script: str = ""


class Reserve:
    """Keeps standbys as long as they can be of use. `tell` takes a line for people."""

    def __init__(
        self, loop: Loop, workers: Workers, standbys: Standbys, tree: Tree, tell: Callable[[str], object]
    ) -> None:
        self._loop = loop
        self._workers = workers
        self._standbys = standbys
        self._tree = tree
        self._tell = tell
        self._before = Lesson()
        self._prints: dict[str, Print] = {}  # of this life's program, as far as it is known
        self._learned = Learned()  # of what it has loaded, what was looked at
        self._seen = self._looks = 0
        self._timer: Timer | None = None
        self._is_settled = self._has_progressed = False
        self._is_closed = False
        self._keeps = False

    @property
    def overview(self) -> StandbysSeen:
        """Return who stands by, and why not more."""
        if self._is_closed:
            return StandbysSeen(why="there will be no other life")
        return self._standbys.overview if self._keeps else StandbysSeen(why="the workers are still loading")

    @property
    def pids(self) -> frozenset[int]:
        """Return the processes that the end of a life must spare; after `close` there are none."""
        return frozenset() if self._is_closed else self._standbys.pids

    def began(self, group: Group) -> None:
        """Take note that the workers of a life were started. A life that is the last one for certain needs no standbys."""
        if group.lives and not self._is_closed:
            self._tell(standby_line(self._workers.promoted, self._workers.cold))
        if group.alone and group.restarts >= group.max_restarts:
            self.close()
        if not self._is_closed:
            self._seen = self._looks = 0
            self._is_settled = self._has_progressed = False
            self._read_program()
            self._look_after(LOOK_S)

    def _read_program(self) -> None:
        """Take note of the program that this life runs. When it is not the one that taught us, we know nothing."""
        script = self._tree.script
        self._learned = Learned()
        self._prints = {script: prints.take(script)} if script else {}
        mains = {script, *(join.main for join in self._before.learned.joins)}
        if prints.first_changed((file, found) for file, found in self._before.program if file in mains):
            self._before = Lesson()

    def progressed(self) -> None:
        """Take note that a worker has moved on: the beginning of this life is over."""
        if self._has_progressed or self._timer is None:
            return
        self._has_progressed = True
        self._timer.cancel()
        self._settle(self._lesson(), is_under_way=False)  # another rank may be about to join
        self._look_after(LOOK_S)

    def has_joined(self, local_rank: int) -> bool:
        """Tell whether a standby of this local rank waits in `join()`."""
        return not self._is_closed and self._standbys.has_joined(local_rank)

    def lend(self, local_rank: int) -> None:
        """Take note that a worker asked about its snapshots: whoever stands by for it has the same memory mapped."""
        self._standbys.lend(local_rank)

    def make_room(self, then: Callable[[], object]) -> bool:
        """Give memory back that a commit lacks; False when there is none to give. `then` is called when it is free."""
        return self._standbys.make_room(then)

    def ended(self) -> None:
        """Remember what the workers of a life had loaded, before nobody knows any more."""
        self._stop_looking()
        if self._is_settled or self._before == Lesson():
            self._before = newer(self._before, self._lesson(), is_under_way=self._has_progressed)

    def exited(self, pid: int, status: int) -> bool:
        """Take note of a child's end; False when it did not stand by."""
        return self._standbys.exited(pid, status)

    def close(self) -> None:
        """End them all: there will be no other life."""
        if not self._is_closed:
            self._is_closed = True
            self._stop_looking()
            self._standbys.close()

    def _look_after(self, delay_s: float) -> None:
        self._timer = self._loop.call_later(delay_s, lambda: self._look(delay_s))

    def _stop_looking(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, waited_s: float) -> None:
        lesson = self._lesson()
        count, before = len(lesson.learned.files), self._seen
        self._seen, self._looks = count, self._looks + 1
        if count == before and (count > 0 or self._looks >= EMPTY_LOOKS):
            self._settle(lesson, is_under_way=self._has_progressed)
            self._look_after(min(2 * waited_s, LONGEST_LOOK_S))
            return
        if self._before != Lesson():
            self._keep()
        self._look_after(LOOK_S)

    def _lesson(self) -> Lesson:
        """Return what the workers of this life teach, and the program that does."""
        learned = self._workers.learned
        if learned != self._learned:  # to go through thousands of names takes milliseconds, and the next life waits
            self._learned = learned
            for file in map(os.path.realpath, own_files(learned, self._tree.folders)):
                if file not in self._prints:
                    self._prints[file] = prints.take(file)
        return Lesson(learned, tuple(self._prints.items()))

    def _settle(self, lesson: Lesson, *, is_under_way: bool) -> None:
        self._is_settled = True
        self._before = newer(self._before, lesson, is_under_way=is_under_way)
        self._keep()

    def _keep(self) -> None:
        orders = self._workers.orders()
        if orders:
            self._keeps = True
            self._standbys.keep(orders, make_plans(self._before, self._tree.folders, len(orders)))


def tree_of(command: Command | Call) -> Tree:
    """Return the user's own tree: the script's folder, as it was named and as it really is, and the current one."""
    here = os.getcwd()
    if isinstance(command, Call) or command.kind == "module":
        return Tree((here,))
    script = os.path.abspath(command.target)
    real = os.path.realpath(script)
    folders = dict.fromkeys((os.path.dirname(script), os.path.dirname(real), here))
    return Tree(tuple(folders), prints.main_of(script))
