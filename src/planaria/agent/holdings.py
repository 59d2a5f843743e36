"""Who holds which parts of a commit, as the members of a round have told. Pure."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.agent.council_messages import Part


class Holdings:
    """A commit of which parts were found: which slots hold the part of each rank.

    Parts whose steps differ are not of one moment: such a commit was never complete, and is not to be begun from.
    """

    def __init__(self, step: int, world_size: int) -> None:
        self.step = step
        self.world_size = world_size
        self.holders: dict[int, list[int]] = {}
        self.shared: set[int] = set()
        self.sizes: dict[int, int] = {}
        self._is_void = False

    @property
    def is_covered(self) -> bool:
        """Tell whether the part of every rank is somewhere, all of one moment."""
        return not self._is_void and all(self.holders.get(rank) for rank in range(self.world_size))

    def note(self, slot: int, part: Part) -> None:
        """Take in that the member of a slot holds a part."""
        self._is_void |= part.step != self.step
        if part.world_size == self.world_size and slot not in self.holders.setdefault(part.rank, []):
            self.holders[part.rank].append(slot)
            self.sizes[part.rank] = part.size_bytes
            if part.shared:
                self.shared.add(part.rank)

    def shared_for(self, first_rank: int) -> int:
        """Return the rank whose part has what is shared for the member with this first rank.

        Each node had the model of its own first rank, buffers included; so who has an old place gets that one, and who is
        new the first.
        """
        near = [rank for rank in self.shared if rank <= first_rank < self.world_size]
        return max(near, default=min(self.shared, default=0))
