"""Where snapshots go. The state writes into memory that a vault lends, and the vault knows what becomes of it.

Under an agent the memory is the agent's, and other nodes and the disk follow. `LocalVault` is for one process by itself.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from planaria.base.memory import free_bytes
from planaria.base.value import Value, replace
from planaria.contract import snapshot as snapshots
from planaria.contract.commit import ONE_STEP, TIERS, Origin, OtherStep, anew, check_memory, slot_to_write
from planaria.errors import StateRefused
from planaria.worker import here
from planaria.worker.console import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike
    from typing import Protocol

    from planaria.archive.plan import Outcome
    from planaria.archive.writer import Pinned, Writer
    from planaria.contract.commit import Order, Stamp, Tier
    from planaria.contract.snapshot import Snapshot

    class Vault(Protocol):
        """What an elastic state needs of a place for its snapshots. Called by several threads, one at a time."""

        @property
        def origin(self) -> Origin:
            """Return where this worker's commits come from; it may change between commits only by a restore."""

        def begin_open(self, size_bytes: int) -> None:
            """Hear that `open` will be called for about as much, and what was lent last is sealed. Never waits or raises."""

        def open(self, size_bytes: int) -> memoryview:
            """Lend memory for the next commit, which may block until one is free. Never that of the newest complete commit.

            Raises:
                StateRefused: There is not enough memory; with the numbers.
            """

        def sealed(self, stamp: Stamp) -> None:
            """Hear that the memory lent last has been sealed. Returns at once, never raises."""

        def skipped(self, generation: int) -> None:
            """Hear that a commit will not be sealed here. Returns at once, never raises."""

        def wait(self, stamp: Stamp, tier: Tier, timeout_s: float) -> Tier | None:
            """Wait until a commit has reached a tier; return the highest it has reached, also when that is less.

            Raises:
                StateRefused: It never will, because its parts are of different steps, or ranks have gone back to different
                    commits.
            """

        def load(self, *, is_damaged: bool = False) -> Loaded | None:
            """Return the newest complete commit from the nearest tier that has it; None without one.

            It is verified, but for tensors whose digests are by blocks: the caller does that, since a GPU is faster. One who
            finds them wrong asks again, `is_damaged`, and gets another commit.
            """


class Loaded(Value):
    """A commit for this rank: its own snapshot where there is one, and that of the rank that keeps what all share."""

    own: tuple[memoryview, Snapshot] | None
    shared: tuple[memoryview, Snapshot] | None = None


LOOK_EVERY_S = 0.05
CHECK_EVERY = 20  # looks: once a second, since it opens the file of every rank


_KNOWN: set[str] = set()  # folders that this process has restored from, or is writing to


def anonymous(size_bytes: int) -> memoryview:
    """Return new memory that belongs to no file."""
    from mmap import mmap

    return memoryview(mmap(-1, size_bytes))


def say(line: str) -> None:
    """Tell the reader of this process's stderr."""
    show(f"planaria: {line}\n")  # in one piece: with python -u, print writes the line's end by itself


def check_tier(wait: object) -> None:
    """See that a commit can be waited for like this.

    Raises:
        StateRefused: It is no tier.
    """
    if wait is not None and wait not in TIERS:
        raise StateRefused(f"commit(wait=...) takes one of {', '.join(TIERS)}, or None, not {wait!r}")


def _stamp_in(slot: memoryview) -> Stamp | None:
    try:
        found = snapshots.read(slot)
    except ValueError:
        return None
    return found.stamp if found else None


class _Reading:
    """What the disk's writer reads, and whether it was taken away from it."""

    def __init__(self, pinned: Pinned) -> None:
        self.pinned = pinned
        self.is_given_up = False


class LocalVault:
    """Snapshots in this process's own memory, and in a directory if one is given.

    Rank and world size are those of the environment (RANK, WORLD_SIZE) unless `origin` says them. The run is the one behind
    those that have left something in the directory, so ranks make their vaults before any of them commits.
    They outlive an exception, not the process; what is in the directory does. With a world of one the newest commit is written
    in the background; with more ranks every rank writes the commits that all wait for with `wait="disk"`, since nobody else
    chooses one for all. A third slot is made, if there is room, when the disk reads one of the two for longer than a commit
    takes; without room a commit waits for it, but not for long: then the disk has to do without that commit.

    Raises:
        UsageError: `directory` is no path, or `keep` no number of commits.
    """

    def __init__(
        self,
        origin: Origin | None = None,
        directory: str | PathLike[str] | None = None,
        *,
        keep: int = 2,
        slots: Sequence[memoryview] = (),
        memory: Callable[[int], memoryview] = anonymous,
        free_bytes: Callable[[], int] = free_bytes,
    ) -> None:
        from planaria.archive.patience import Patience

        self._memory = memory
        self._free_bytes = free_bytes
        self._slots = [*slots]  # what an earlier life may have left
        self._stamps: list[Stamp | None] = [_stamp_in(slot) for slot in slots]
        self._pinned: list[int] = []
        self._reading: _Reading | None = None
        self._lent = -1
        self._never = threading.Event()
        self._changed = threading.Condition()  # the disk's writer pins and releases slots in its own thread
        self._patience = Patience()
        self._writer = self._start_writer(directory, keep) if directory is not None else None
        run = self._writer.shelf.newest_run() + 1 if self._writer else 1
        self.origin = origin or Origin(run=run, rank=here.rank(), world_size=here.world_size())

    def _start_writer(self, directory: str | PathLike[str], keep: int) -> Writer:
        from time import monotonic

        from planaria.archive.shelf import Shelf
        from planaria.archive.writer import Writer

        return Writer(Shelf(directory, keep), self._pin_for_disk, say, monotonic, self._on_outcome)

    def _on_outcome(self, outcome: Outcome) -> None:
        """Hear, in the writer's thread, what came of a commit: a disk that took one is as patiently waited for as at first."""
        from planaria.archive.plan import Written

        if isinstance(outcome, Written):
            with self._changed:
                self._patience.written()

    def begin_open(self, size_bytes: int) -> None:
        """Do nothing: memory of one's own is found at once."""

    def open(self, size_bytes: int) -> memoryview:
        """Lend the slot that is not needed, made anew when it is too small."""
        self._look_whether_restored()
        with self._changed:
            while (number := self._to_write(size_bytes)) is None:
                if not self._changed.wait(self._patience.limit_s):
                    self._give_up_reading()
            if number == len(self._slots):
                self._slots.append(memoryview(b""))
                self._stamps.append(None)
            self._stamps[number] = None
            self._lent = number
            if len(self._slots[number]) < size_bytes:
                self._grow(number, size_bytes)
            return self._slots[number]

    def _look_whether_restored(self) -> None:
        """Tell, once a folder, of a program that has not gone back to what there is."""
        if self._writer and self._writer.shelf.directory not in _KNOWN:
            _KNOWN.add(self._writer.shelf.directory)
            with suppress(OSError):
                if self.origin.rank == 0 and next(self._writer.shelf.commits(), None) is not None:
                    say(f"this program {anew('what its folder has')}")

    def _give_up_reading(self) -> None:
        """Take the memory that the disk's writer reads away from it. It notices, and what it has written of that is not used.

        One that is stuck in this takes nothing else to write.
        """
        reading = self._reading
        if reading is None or reading.is_given_up:
            return
        waited_s = self._patience.limit_s
        if self._patience.over():
            say(
                f"{reading.pinned.stamp} is still being written to disk, a commit has waited {waited_s:.0f} s for it, "
                "and there is no memory for a third one: it is given up, and training goes on (said again when one waits "
                "longer)"
            )
        reading.is_given_up = True
        reading.pinned.release()

    def _to_write(self, size_bytes: int) -> int | None:
        if len(self._slots) < 2:
            return len(self._slots)
        newest = max((stamp.order for stamp in self._stamps if stamp), default=None)
        number = slot_to_write(self._stamps, newest, self._pinned)
        if number is None and self._free_bytes() > size_bytes:
            return len(self._slots)
        return number

    def _grow(self, number: int, size_bytes: int) -> None:
        """Make a slot large enough. The page more is for values that grow a little with every commit."""
        self._slots[number] = memoryview(b"")  # the old one goes first: there may be no room for both
        owned = sum(len(slot) for slot in self._slots)
        check_memory(size_bytes, 0, self._free_bytes() + owned)
        self._slots[number] = self._memory(((size_bytes + size_bytes // 64) // 4096 + 2) * 4096)

    def sealed(self, stamp: Stamp) -> None:
        """Take the commit in; the disk's writer may have it."""
        with self._changed:
            self._stamps[self._lent] = stamp
        if self._writer and stamp.world_size == 1:
            self._writer.wake()

    def skipped(self, generation: int) -> None:
        """Do nothing: nobody else's memory waits for it."""

    def pin(self) -> Pinned | None:
        """Return the newest sealed commit for a reader, which releases it; it is not overwritten meanwhile."""
        from planaria.archive.writer import Pinned

        with self._changed:
            sealed = [(stamp.order, number) for number, stamp in enumerate(self._stamps) if stamp]
            if not sealed:
                return None
            number = max(sealed)[1]
            stamp = self._stamps[number]
            assert stamp
            self._pinned.append(number)
            return Pinned(stamp, self._slots[number][:], lambda: self._release(number))

    def _pin_for_disk(self) -> Sequence[Pinned]:
        with self._changed:
            pinned = self.pin()
            if pinned is None:
                return ()
            self._reading = reading = _Reading(pinned)
        return (replace(pinned, release=lambda: self._let_go(reading), is_given_up=lambda: reading.is_given_up),)

    def _let_go(self, reading: _Reading) -> None:
        with self._changed:
            self._reading = None
            if not reading.is_given_up:
                reading.pinned.release()

    def _release(self, number: int) -> None:
        with self._changed:
            self._pinned.remove(number)
            self._changed.notify_all()

    def wait(self, stamp: Stamp, tier: Tier, timeout_s: float) -> Tier | None:
        """Wait for the disk if it is asked for; there is no buddy here, so `buddy` is not reached."""
        from time import monotonic

        from planaria.archive.plan import Failed

        if tier != "disk" or not self._writer:
            return "node"
        deadline = monotonic() + timeout_s
        outcome = self._writer.flush(stamp.order, timeout_s)
        if outcome is None or isinstance(outcome, Failed):
            self._check_parts(stamp)
            return "node"
        looks = 0
        while not self._is_on_disk(stamp.order):  # the files of other ranks, which only the directory tells of
            if looks % CHECK_EVERY == 0:
                self._check_parts(stamp)
            looks += 1
            if monotonic() > deadline:
                return "node"
            self._never.wait(LOOK_EVERY_S)
        return "disk"

    def _check_parts(self, stamp: Stamp) -> None:
        assert self._writer
        try:
            self._writer.shelf.check_parts(stamp)
        except OtherStep as problem:
            raise StateRefused(str(problem), hint=ONE_STEP) from problem
        except (OSError, ValueError):  # a file is away or damaged: a matter of the disk, not of the program
            return

    def _is_on_disk(self, order: Order) -> bool:
        """Tell whether a commit is whole in the directory; where that cannot be looked at, it is not known to be."""
        assert self._writer
        try:
            return self._writer.shelf.has(order)
        except OSError:  # of a folder on a network, for example; the caller tells that the disk was not reached
            return False

    def load(self, *, is_damaged: bool = False) -> Loaded | None:
        """Return the newest commit of memory that is whole, else of the directory."""
        if self._writer:
            _KNOWN.add(self._writer.shelf.directory)
        with self._changed:
            found = snapshots.newest(self._slots, leave=() if is_damaged else (snapshots.BLOCKS,))
            for number, stamp in enumerate(self._stamps):  # what is damaged is overwritten first
                if stamp and (found is None or stamp.order > found[1].stamp.order):
                    self._stamps[number] = None
            if found:
                return Loaded((self._slots[found[0]], found[1]))
        return self._load_from_disk() if self._writer else None

    def _load_from_disk(self) -> Loaded | None:
        assert self._writer
        rank = self.origin.rank
        found = self._writer.shelf.newest({0, rank})
        for line in found.passed_over if found else ():
            say(f"passed over a damaged commit: {line}")
        return Loaded(found.opened.get(rank), found.opened[0]) if found else None

    def close(self, timeout_s: float = 60.0) -> bool:
        """Let the disk's writer finish; tell whether it did."""
        return self._writer.close(timeout_s) if self._writer else True
