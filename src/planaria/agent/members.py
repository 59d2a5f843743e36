"""Who takes part in a round, and what each of them has told of itself: its ranks, where it is, which commits it knows. Pure."""

from __future__ import annotations

from planaria.agent.council_messages import order_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planaria.agent.council_messages import Part, Present
    from planaria.contract.commit import Order

MOST_IN_RING = 32


class Members:
    """Those of one round, by slot."""

    def __init__(self, size: int, world_size: int) -> None:
        self.size = size
        self.world_size = world_size
        self._present: dict[int, Present] = {}

    @property
    def are_all_here(self) -> bool:
        """Tell whether everybody has come."""
        return len(self._present) == self.size

    def has(self, slot: int) -> bool:
        """Tell whether the member of a slot has come."""
        return slot in self._present

    def missing(self) -> tuple[int, ...]:
        """Return the slots that nobody has come for."""
        return tuple(slot for slot in range(self.size) if slot not in self._present)

    def add(self, slot: int, present: Present) -> None:
        """Take in the member of a slot.

        Raises:
            ValueError: It has no place in this round.
        """
        if not 0 <= slot < self.size or present.slot != slot or not self._has_place(present):
            raise ValueError("a member without a place in this round")
        self._present[slot] = present

    def _has_place(self, new: Present) -> bool:
        """Tell whether a member's ranks are of this world and nobody else's, and the last one's all that are left of it."""
        last = new.first_rank + new.local_world_size
        others = self._present.values()
        taken = any(one.first_rank < last and new.first_rank < one.first_rank + one.local_world_size for one in others)
        missing = self.world_size - new.local_world_size - sum(one.local_world_size for one in others)
        fits = missing == 0 if len(self._present) == self.size - 1 else missing > 0
        return new.local_world_size > 0 and last <= self.world_size and fits and not taken

    def ranks_of(self, slot: int) -> range:
        """Return the ranks of a slot's workers."""
        place = self._present[slot]
        return range(place.first_rank, place.first_rank + place.local_world_size)

    def address_of(self, slot: int) -> str:
        """Return where the agent of a slot is, as the one before it has told; empty where it has not."""
        before = self._present.get((slot - 1) % self.size) if slot < self.size else None
        return before.buddy if before is not None else ""

    def ring(self, slot: int) -> tuple[str, ...]:
        """Return the addresses of the slots behind the buddy's, in case that leaves as well; not of all in a large world."""
        behind = range(slot + 2, slot + 1 + min(self.size - 1, MOST_IN_RING))
        return tuple(self.address_of(at % self.size) for at in behind)

    def parts(self) -> Iterator[tuple[int, Part]]:
        """Return the parts that members hold, with the slot of each."""
        for slot, one in self._present.items():
            for part in one.parts:
                yield slot, part

    @property
    def run(self) -> int:
        """Return the newest run that a member belongs to; 0 where none does."""
        return max(one.run for one in self._present.values())

    @property
    def last_round(self) -> int:
        """Return the newest round that a member took part in before this one."""
        return max(one.last_round for one in self._present.values())

    def complete(self) -> dict[int, Order]:
        """Return the newest commits that members know to be complete, by slot."""
        known = {slot: order_of(one.complete) for slot, one in self._present.items()}
        return {slot: order for slot, order in known.items() if order is not None}

    def safe(self) -> list[Order]:
        """Return the newest commits that members know to be with their buddies."""
        return orders(one.safe for one in self._present.values())

    def on_disk(self) -> list[Order]:
        """Return the newest commits that members know to be on disk."""
        return orders(one.disk for one in self._present.values())


def orders(fields: Iterable[tuple[int, ...]]) -> list[Order]:
    """Return the orders in messages' fields that name one."""
    return [found for numbers in fields if (found := order_of(numbers)) is not None]
