"""What other agents may put into this node's memory and read from it. A part of another round than ours is refused."""

from __future__ import annotations

from planaria.agent.council_messages import part_of
from planaria.agent.errands import IS_HERE, REFUSED, damage_of, settle
from planaria.errors import StateRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.agent.council_messages import Part
    from planaria.agent.errands import Aside
    from planaria.agent.slots import Slot
    from planaria.agent.stock import Stock


class Guests:
    """The asked end of copies and fetches."""

    def __init__(self, stock: Stock, aside: Aside) -> None:
        self._stock = stock
        self._aside = aside
        self.round: int | None = None
        self._coming: dict[Part, Slot] = {}

    def offered(self, round_: int, header: object, size_bytes: int) -> memoryview | str:
        """Return where to put a part, or why not."""
        why = self._why_not(round_)
        if why:
            return why
        try:
            part = part_of(header)
            if part.size_bytes != size_bytes:
                raise ValueError("a part of another size")
        except ValueError as problem:
            return f"{REFUSED}{problem}"
        slots = self._stock.slots
        if slots.find(part.order, part.rank) is not None:
            return IS_HERE
        if part in self._coming:
            return "it is on its way here"
        if slots.arriving is None or part.order > slots.arriving:
            slots.arriving = part.order
            self._stock.tidy()
        try:
            slot = self._coming[part] = self._stock.lodge(size_bytes)
        except StateRefused as problem:
            return f"{REFUSED}the buddy has no room: {problem.message}"
        return self._stock.view(slot)

    def arrived(self, round_: int, header: object, tell: Callable[[str], object]) -> None:
        """Verify a part, and tell whether it is kept."""
        part = part_of(header)
        slot = self._coming[part]
        view = self._stock.view(slot)

        def verified(why: str) -> None:
            del self._coming[part]
            why = f"{REFUSED}{why}" if why else self._why_not(round_)
            if not why:
                settle(slot, part)
            self._stock.release(slot)
            tell(why)

        self._aside(lambda: damage_of(view, part), verified)

    def dropped(self, header: object) -> None:
        """Hear that an offered part does not come."""
        self._stock.release(self._coming.pop(part_of(header)))

    def wanted(self, round_: int, header: object) -> tuple[memoryview, Callable[[], None]] | str:
        """Return a part to be read, and how to let go of it; or why there is none."""
        why = self._why_not(round_)
        if why:
            return why
        try:
            part = part_of(header)
        except ValueError as problem:
            return f"{REFUSED}{problem}"
        slot = self._stock.slots.find(part.order, part.rank)
        if slot is None:
            return f"{REFUSED}it is not here"
        return self._stock.view(slot), self._stock.hold(slot)

    def _why_not(self, round_: int) -> str:
        """Refuse what is of another round: of a world that is over for good, of one to come for now."""
        if self.round is None or round_ > self.round:
            return "this node is not in that round yet"
        return f"{REFUSED}round {round_} is over" if round_ < self.round else ""
