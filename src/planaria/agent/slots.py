"""Which memory of a node holds which part of which commit: what may be overwritten, what may go, what it takes. Pure.

A node's own workers write into slots of theirs. Parts of other nodes lodge here: copies for a neighbour, and what was fetched
to begin a round with.
"""

from __future__ import annotations

from planaria.agent.tally import Tally
from planaria.contract.commit import check_memory, slot_to_write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from planaria.contract.commit import Order, Stamp

SPARE_SHARE = 64  # a slot is larger than asked for by one of so many parts: values grow a little with every commit
PAGE_BYTES = 4096
LODGER = -1
MOST_SLOTS = 4  # of a rank: the copy at the buddy, the one being copied, the newest complete one, the one being written


class Slot:
    """Memory of one local rank, or of a `LODGER`. `stamp` is None while no part in it counts; `pins` are its readers.

    `disk_pins` are those of the disk's writer, from which it can be taken away.
    """

    def __init__(self, number: int, owner: int, size_bytes: int) -> None:
        self.number = number
        self.owner = owner
        self.size_bytes = size_bytes
        self.content_bytes = 0
        self.stamp: Stamp | None = None
        self.shared = False
        self.pins = 0
        self.disk_pins = 0


class Slots:
    """The slots of a node. `complete` and `safe` are the newest commits known to be complete, and to have reached `buddy`."""

    def __init__(self, local_world_size: int) -> None:
        self._size = local_world_size
        self._slots: dict[int, list[Slot]] = {}
        self._tally = Tally(local_world_size)
        self._last = 0
        self.complete: Order | None = None
        self.safe: Order | None = None
        self.has_buddy = False
        self.is_stuck = False  # the last copy failed: what is safe is not worth more than going on
        self.copying: Order | None = None  # what is on its way to the buddies: it may be safe before we hear so
        self.arriving: Order | None = None  # what the neighbour copies here now

    def of(self, owner: int) -> list[Slot]:
        """Return the slots of a worker."""
        return self._slots.setdefault(owner, [])

    def all(self) -> list[Slot]:
        """Return every slot."""
        return [slot for slots in self._slots.values() for slot in slots]

    def choose(self, local_rank: int, *, may_add: bool) -> Slot | int | None:
        """Return the slot to write, or the place of one to be added; None: wait until a commit is complete, copied or read.

        A third and fourth are for readers that hold one of the two for longer than a commit takes, and for what is safe at
        the buddy until something newer is; `may_add` when there is room.
        """
        slots = self.of(local_rank)
        if len(slots) < 2:
            return len(slots)
        stamps = [slot.stamp for slot in slots]
        pinned = [at for at, slot in enumerate(slots) if slot.pins]
        needed = (self.safe, self.copying)
        kept = [at for at, stamp in enumerate(stamps) if stamp is not None and stamp.order in needed]
        at = slot_to_write(stamps, self.complete, [*pinned, *kept])
        if at is not None:
            return slots[at]
        if slot_to_write(stamps, self.complete) is None:
            return None
        if may_add and len(slots) < MOST_SLOTS:
            return len(slots)
        at = slot_to_write(stamps, self.complete, pinned) if self.is_stuck else None
        return None if at is None else slots[at]

    def waits_for_disk(self, local_rank: int) -> bool:
        """Tell whether a worker for which there is no slot now would have one if the disk let go of what it reads."""
        slots = self.of(local_rank)
        needed = () if self.is_stuck else (self.safe, self.copying)
        others = [
            at
            for at, slot in enumerate(slots)
            if slot.pins > slot.disk_pins or (slot.stamp is not None and slot.stamp.order in needed)
        ]
        return slot_to_write([slot.stamp for slot in slots], self.complete, others) is not None

    def add(self, owner: int, size_bytes: int) -> Slot:
        """Add a slot for parts of this size."""
        self._last += 1
        slot = Slot(self._last, owner, whole_pages(size_bytes))
        self.of(owner).append(slot)
        return slot

    def remove(self, slot: Slot) -> None:
        """Forget a slot."""
        self.of(slot.owner).remove(slot)

    def free_lodging(self, size_bytes: int) -> Slot | None:
        """Return memory that a part lodged in before and that is large enough, the smallest such."""
        free = [
            slot for slot in self.of(LODGER) if slot.stamp is None and not slot.pins and slot.size_bytes >= size_bytes
        ]
        return min(free, key=lambda slot: slot.size_bytes, default=None)

    def check(self, local_rank: int, size_bytes: int, free_bytes: int, touched_bytes: int) -> None:
        """See that another slot fits. `touched_bytes` is what of all slots is in memory already, and so not free.

        What was promised to others and they have not touched yet is not free either: everybody has two of its largest, and
        two of a neighbour's, which are taken to be as large.

        Raises:
            StateRefused: It does not; with the numbers.
        """
        others = sum(self._promised(rank) for rank in self._slots if rank not in (local_rank, LODGER))
        check_memory(size_bytes, size_bytes if self.has_buddy else 0, max(free_bytes + touched_bytes - others, 0))

    def has_room(self, size_bytes: int, free_bytes: int, touched_bytes: int) -> bool:
        """Tell whether there is room for a slot beyond what everybody was promised."""
        return free_bytes + touched_bytes - self.promised_bytes > whole_pages(size_bytes)

    @property
    def promised_bytes(self) -> int:
        """Return what everybody was promised: two slots of the largest, or all there are, and two of a neighbour's."""
        return sum(self._promised(rank) for rank in self._slots if rank != LODGER)

    def _promised(self, local_rank: int) -> int:
        sizes = [slot.size_bytes for slot in self.of(local_rank)]
        two = 2 * max(sizes, default=0)
        return max(two, sum(sizes)) + (two if self.has_buddy else 0)

    def begin_round(self) -> None:
        """Count anew what workers seal: what they sealed in another round says nothing about this one."""
        self._tally = Tally(self._size)

    def seal(self, local_rank: int, number: int, stamp: Stamp) -> dict[Order, str]:
        """Take in that a worker has sealed a slot; return the commits that are void now, and why where that is a mistake.

        Void commits are over, and so is this one where it was void before.

        Raises:
            ValueError: It is not a slot of this worker.
        """
        slot = next((one for one in self.of(local_rank) if one.number == number), None)
        if slot is None:
            raise ValueError("the slot of another")
        found = self._tally.seal(local_rank, stamp.order, stamp.step, stamp.rank)
        if self._tally.has_sealed(local_rank, stamp.order):
            slot.stamp = stamp
            slot.shared = local_rank == 0
        self._forget(found)
        return found

    def skip(self, local_rank: int, order: Order) -> bool:
        """Take in that a worker will not seal a commit; tell whether that makes it void. One that it has sealed stays."""
        has_sealed = self._tally.has_sealed(local_rank, order) or (self.complete is not None and order <= self.complete)
        return not has_sealed and self.void(order, "")

    def void(self, order: Order, why: str) -> bool:
        """Take in that a commit is void: nobody needs its parts. Tell whether that is new."""
        self._forget([order])
        return self._tally.reject(order, why)

    def _forget(self, orders: Container[Order]) -> None:
        for slot in self.parts():
            if slot.stamp is not None and slot.stamp.order in orders:
                slot.stamp = None

    @property
    def voids(self) -> Mapping[Order, str]:
        """Return the commits that are void and why, but for those that all workers have left behind."""
        return self._tally.void

    def note_complete(self, order: Order) -> None:
        """Take in that a commit is complete: older ones may go."""
        if self.complete is None or order > self.complete:
            self.complete = order
            self._tally.complete(order)

    def whole(self) -> list[Order]:
        """Return the commits that all workers of this node have sealed here, oldest first."""
        sealed = [{slot.stamp.order for slot in self.of(rank) if slot.stamp is not None} for rank in range(self._size)]
        return sorted(sealed[0].intersection(*sealed))

    def parts(self) -> list[Slot]:
        """Return every slot with a part that counts, of whatever commit."""
        return [slot for slot in self.all() if slot.stamp is not None]

    def find(self, order: Order, rank: int) -> Slot | None:
        """Return where the part of a rank is, or None."""
        for slot in self.parts():
            if slot.stamp is not None and (slot.stamp.order, slot.stamp.rank) == (order, rank):
                return slot
        return None

    def newest_parts(self) -> list[Slot]:
        """Return all parts of the newest complete commit, and of what may become complete; this node's own first.

        Those of neighbours too: what they brought here may be all that is left of them when others leave as well.
        """
        whole = self.whole()
        found = []
        for slot in self.parts():
            order = slot.stamp.order if slot.stamp is not None else ()
            may_become = order > (self.complete or ()) and (slot.owner == LODGER or order in whole)
            if order == self.complete or may_become:
                found.append(slot)
        return sorted(found, key=lambda slot: slot.owner == LODGER)

    def begin(self, order: Order | None, safe: Order | None) -> None:
        """Begin from a commit: every other one but the one that is `safe` is over."""
        self.complete, self.safe, self.arriving, self.is_stuck = order, safe, None, False
        self.copying = None
        self.begin_round()
        for slot in self.parts():
            if slot.stamp is not None and slot.stamp.order not in (order, safe):
                slot.stamp = None

    def lodgers_gone(self) -> list[Slot]:
        """Return the parts that lodge here and are needed no longer."""
        kept = (self.safe, self.copying, self.arriving)
        return [
            slot
            for slot in self.of(LODGER)
            if slot.stamp is not None
            and self.complete is not None
            and slot.stamp.order < self.complete
            and slot.stamp.order not in kept
        ]


def whole_pages(size_bytes: int) -> int:
    """Return how large a slot for parts of this size is."""
    return ((size_bytes + size_bytes // SPARE_SHARE) // PAGE_BYTES + 2) * PAGE_BYTES
