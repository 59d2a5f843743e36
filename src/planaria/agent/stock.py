"""The memory behind the slots of a node: anonymous, lent to workers, filled by neighbours, read by buddies and by the disk."""

from __future__ import annotations

import os

from planaria.agent.council_messages import Part
from planaria.agent.slots import LODGER, Slots, whole_pages
from planaria.base.memory import free_bytes
from planaria.contract.commit import size_text
from planaria.errors import StateRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from planaria.agent.slots import Slot
    from planaria.archive.writer import Pinned
    from planaria.contract.commit import Order

    class Memory(Protocol):
        """Where memory comes from: a number stands for each piece."""

        def new(self, size_bytes: int) -> int:
            """Return new memory; OSError when there is none."""

        def view(self, number: int, size_bytes: int) -> memoryview:
            """Return it, to be read and written."""

        def touched(self, number: int) -> int:
            """Return how many bytes of it are in memory."""

        def close(self, number: int) -> None:
            """Let go of it."""


class Memfd:
    """Anonymous files of the kernel; a number is a descriptor."""

    def new(self, size_bytes: int) -> int:
        """Return a descriptor of memory whose size nobody can change: who reads it never meets a missing page."""
        import fcntl

        descriptor = os.memfd_create("planaria-snapshot", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, size_bytes)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def view(self, number: int, size_bytes: int) -> memoryview:
        """Map it for as long as somebody holds the view."""
        from mmap import ACCESS_WRITE, mmap

        return memoryview(mmap(number, size_bytes, access=ACCESS_WRITE))

    def touched(self, number: int) -> int:
        """Return what the kernel counts."""
        return os.fstat(number).st_blocks * 512

    def close(self, number: int) -> None:
        """Close it; whoever has it mapped keeps it until then."""
        os.close(number)


class Stock:
    """What a node holds, through all rounds. Used on the loop only.

    `on_free` is called when a reader has let go, or memory has become free. `make_room` is for who was refused: it tells
    whether others are giving memory back now, so that it is worth to ask again.
    """

    def __init__(
        self, local_world_size: int, free: Callable[[], int] = free_bytes, memory: Memory | None = None
    ) -> None:
        self.slots = Slots(local_world_size)
        self._free_bytes = free
        self._memory = memory or Memfd()
        self._numbers: dict[int, int] = {}  # by the number of the slot
        self.on_free: Callable[[], object] = lambda: None
        self.make_room: Callable[[], bool] = lambda: False

    def lend(self, local_rank: int, size_bytes: int) -> Slot | None:
        """Return the slot that a worker writes next, or None: there is none now.

        Raises:
            StateRefused: There will be none; with the numbers.
        """
        may_add = self.slots.has_room(size_bytes, self._free_bytes(), self._touched_bytes())
        found = self.slots.choose(local_rank, may_add=may_add)
        if found is None:
            return None
        if not isinstance(found, int):
            found.stamp, found.content_bytes = None, size_bytes
            if found.size_bytes >= size_bytes:
                return found
            self.let_go(found)  # the old one goes first: there may be no room for both
        self.slots.check(local_rank, size_bytes, self._free_bytes(), self._touched_bytes())
        return self._add(local_rank, size_bytes)

    def lodge(self, size_bytes: int) -> Slot:
        """Return memory for a part of another node; it counts once it has a stamp, and is pinned until then.

        Raises:
            StateRefused: There is none; with the numbers.
        """
        slot = self.slots.free_lodging(size_bytes)
        if slot is None:
            for small in self.slots.of(LODGER)[:]:
                if small.stamp is None and not small.pins:
                    self.let_go(small)
            # What others were lent and have not touched yet is not free either.
            free = max(self._free_bytes() + self._touched_bytes() - sum(one.size_bytes for one in self.slots.all()), 0)
            if whole_pages(size_bytes) > free:
                raise StateRefused(
                    f"a part of {size_text(size_bytes)} does not fit into the {size_text(free)} that are free"
                )
            slot = self._add(LODGER, size_bytes)
        slot.content_bytes = size_bytes
        slot.pins += 1
        return slot

    def room(self, size_bytes: int) -> tuple[Slot, memoryview]:
        """Lodge a part of another node, and return where to put it.

        Raises:
            StateRefused: There is no memory for it.
        """
        slot = self.lodge(size_bytes)
        try:
            return slot, self.view(slot)
        except StateRefused:
            self.release(slot)
            raise

    def _add(self, owner: int, size_bytes: int) -> Slot:
        slot = self.slots.add(owner, size_bytes)
        slot.content_bytes = size_bytes
        try:
            self._numbers[slot.number] = self._memory.new(slot.size_bytes)
        except OSError as problem:
            self.slots.remove(slot)
            raise _refusal(problem) from problem
        return slot

    def tidy(self) -> None:
        """Forget the parts that lodge here and are needed no longer; their memory is used again."""
        for slot in self.slots.lodgers_gone():
            slot.stamp = None

    def begin(self, order: Order | None, safe: Order | None) -> None:
        """Begin a round from a commit: parts of others are over, and what lodged them is given back."""
        self.slots.begin(order, safe)
        for slot in [*self.slots.of(LODGER)]:
            if slot.stamp is None and not slot.pins:
                self.let_go(slot)

    def parts(self) -> tuple[Part, ...]:
        """Return what is here, for a council."""
        found = self.slots.parts()
        return tuple(part_in(slot) for slot in found)

    def forget(self, order: Order, rank: int) -> None:
        """Forget a part that cannot be read."""
        slot = self.slots.find(order, rank)
        if slot is not None:
            slot.stamp = None

    def view(self, slot: Slot) -> memoryview:
        """Return the content of a slot.

        Raises:
            StateRefused: It cannot be mapped now: this process may not have so much memory, or so many maps.
        """
        try:
            return self._memory.view(self._numbers[slot.number], slot.size_bytes)[: slot.content_bytes]
        except OSError as problem:
            raise _refusal(problem) from problem

    def descriptor(self, slot: Slot) -> int:
        """Return what a worker is given."""
        return self._numbers[slot.number]

    def hold(self, slot: Slot) -> Callable[[], None]:
        """Keep a slot as it is until the returned function is called, on the loop."""
        slot.pins += 1
        return lambda: self.release(slot)

    def pinned(self, slots: Iterable[Slot]) -> list[Pinned]:
        """Return parts for the disk, each with its memory and how to let go of it.

        Raises:
            StateRefused: One of them cannot be mapped now; none is held.
        """
        from planaria.archive.writer import Pinned

        mapped = [(slot, slot.stamp, self.view(slot)) for slot in slots]
        return [Pinned(stamp, view, self._hold_for_disk(slot)) for slot, stamp, view in mapped if stamp is not None]

    def _hold_for_disk(self, slot: Slot) -> Callable[[], None]:
        slot.disk_pins += 1
        release = self.hold(slot)

        def let_go() -> None:
            slot.disk_pins -= 1
            release()

        return let_go

    def release(self, slot: Slot) -> None:
        """Let go of a slot that was held."""
        slot.pins -= 1
        self.on_free()

    def let_go(self, slot: Slot) -> None:
        """Give a slot's memory back."""
        self.slots.remove(slot)
        self._memory.close(self._numbers.pop(slot.number))

    def close(self) -> None:
        """Give everything back."""
        for slot in self.slots.all():
            self.let_go(slot)

    @property
    def claimed_bytes(self) -> int:
        """Return how much of the memory that is free commits were promised, and will take."""
        return max(self.slots.promised_bytes - self._touched_bytes(), 0)

    def _touched_bytes(self) -> int:
        return sum(map(self._memory.touched, self._numbers.values()))


def _refusal(problem: OSError) -> StateRefused:
    return StateRefused(f"the system gives no memory for a snapshot: {problem.strerror}")


def part_in(slot: Slot) -> Part:
    """Return what a slot with a stamp holds."""
    assert slot.stamp is not None
    stamp = slot.stamp
    return Part(
        stamp.run,
        stamp.round,
        stamp.generation,
        stamp.step,
        stamp.world_size,
        stamp.rank,
        slot.shared,
        slot.content_bytes,
    )
