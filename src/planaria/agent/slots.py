"""Which memory of a node holds which commit: what is complete, what may be overwritten, what it takes. Pure.

A commit is complete on a node when each of its workers has sealed it. With one node that is the whole world.
"""

from __future__ import annotations

from planaria.contract.commit import check_memory, slot_to_write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.contract.commit import Order, Stamp

SPARE_SHARE = 64  # a slot is larger than asked for by one of so many parts: values grow a little with every commit
PAGE_BYTES = 4096


class Slot:
    """Memory of one local rank. `stamp` is None while it holds no commit that counts; `pins` are its readers."""

    def __init__(self, number: int, local_rank: int, size_bytes: int) -> None:
        self.number = number
        self.local_rank = local_rank
        self.size_bytes = size_bytes
        self.stamp: Stamp | None = None
        self.pins = 0


class Slots:
    """The slots of all workers of a node."""

    def __init__(self, local_world_size: int) -> None:
        self._size = local_world_size
        self._slots: dict[int, list[Slot]] = {}
        self._last = 0
        self.complete: Order | None = None

    def of(self, local_rank: int) -> list[Slot]:
        """Return the slots of a worker."""
        return self._slots.setdefault(local_rank, [])

    def all(self) -> list[Slot]:
        """Return every slot."""
        return [slot for slots in self._slots.values() for slot in slots]

    def choose(self, local_rank: int, *, may_add: bool) -> Slot | int | None:
        """Return the slot to write, or the place of one to be added; None: wait until a commit is complete or read.

        The third is for a reader that holds one of the two for longer than a commit takes; `may_add` when there is room.
        """
        slots = self.of(local_rank)
        if len(slots) < 2:
            return len(slots)
        stamps = [slot.stamp for slot in slots]
        pinned = [at for at, slot in enumerate(slots) if slot.pins]
        at = slot_to_write(stamps, self.complete, pinned)
        if at is not None:
            return slots[at]
        held = slot_to_write(stamps, self.complete) is not None
        return len(slots) if held and may_add else None

    def add(self, local_rank: int, size_bytes: int) -> Slot:
        """Add a slot for commits of this size."""
        self._last += 1
        slot = Slot(self._last, local_rank, whole_pages(size_bytes))
        self.of(local_rank).append(slot)
        return slot

    def remove(self, slot: Slot) -> None:
        """Forget a slot that has become too small."""
        self.of(slot.local_rank).remove(slot)

    def check(self, local_rank: int, size_bytes: int, free_bytes: int, touched_bytes: int) -> None:
        """See that another slot fits. `touched_bytes` is what of all slots is in memory already, and so not free.

        What was promised to others and they have not touched yet is not free either: everybody has two of its largest.

        Raises:
            StateRefused: It does not; with the numbers.
        """
        promised = sum(_promised(slots) for rank, slots in self._slots.items() if rank != local_rank)
        check_memory(size_bytes, 0, max(free_bytes + touched_bytes - promised, 0))

    def has_room(self, size_bytes: int, free_bytes: int, touched_bytes: int) -> bool:
        """Tell whether there is room for a slot beyond what everybody was promised."""
        promised = sum(map(_promised, self._slots.values()))
        return free_bytes + touched_bytes - promised > whole_pages(size_bytes)

    def seal(self, local_rank: int, number: int, stamp: Stamp) -> bool:
        """Take in that a slot is sealed; tell whether that completed a commit.

        Raises:
            ValueError: It is not a slot of this worker.
        """
        slot = next((one for one in self.of(local_rank) if one.number == number), None)
        if slot is None:
            raise ValueError("the slot of another")
        slot.stamp = stamp
        if (self.complete is None or stamp.order > self.complete) and self._is_whole(stamp.order):
            self.complete = stamp.order
            return True
        return False

    def _is_whole(self, order: Order) -> bool:
        return all(self._with(rank, order) for rank in range(self._size))

    def _with(self, local_rank: int, order: Order) -> Slot | None:
        slots = self._slots.get(local_rank, ())
        return next((slot for slot in slots if slot.stamp is not None and slot.stamp.order == order), None)

    def kept(self) -> dict[int, Slot]:
        """Return the newest complete commit, by the rank that made each part; empty without one."""
        if self.complete is None:
            return {}
        found = [self._with(rank, self.complete) for rank in range(self._size)]
        return {slot.stamp.rank: slot for slot in found if slot is not None and slot.stamp is not None}

    def end_round(self) -> None:
        """Forget what was sealed and never completed: nobody will complete it now."""
        for slot in self.all():
            if slot.stamp is not None and slot.stamp.order != self.complete:
                slot.stamp = None

    def forget_commits(self) -> None:
        """Forget every commit: what is in memory cannot be read."""
        self.complete = None
        for slot in self.all():
            slot.stamp = None


def whole_pages(size_bytes: int) -> int:
    """Return how large a slot for commits of this size is."""
    return ((size_bytes + size_bytes // SPARE_SHARE) // PAGE_BYTES + 2) * PAGE_BYTES


def _promised(slots: list[Slot]) -> int:
    sizes = [slot.size_bytes for slot in slots]
    return max(2 * max(sizes, default=0), sum(sizes))
