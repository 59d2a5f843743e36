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
    from planaria.agent.hall import Hall, Line
    from planaria.agent.slots import Slot
    from planaria.agent.stock import Stock


class Guests:
    """The asked end of copies and fetches."""

    def __init__(self, stock: Stock, aside: Aside) -> None:
        self._stock = stock
        self._aside = aside
        self.round: int | None = None
        self.is_leaving = False  # what came now would be lost with this node
        self.hall: Hall | None = None  # of this round, where this node is its anchor
        self._coming: dict[Part, tuple[Slot, memoryview]] = {}

    def attended(self, round: int, header: object, line: Line) -> None:  # noqa: A002  # the word of the domain
        """Take a member's line; one of another round than ours is closed, and comes again if that is to come."""
        if self.hall is None or self.round != round:
            line.close()
        else:
            self.hall.attended(header, line)

    def offered(self, round: int, header: object, size_bytes: int) -> memoryview | str:  # noqa: A002  # as above
        """Return where to put a part, or why not."""
        why = self._why_not(round) or self._why_nothing_new()
        if why:
            return why
        try:
            part = part_of(header)
        except ValueError as problem:
            return f"{REFUSED}{problem}"
        if part.size_bytes != size_bytes:
            return f"{REFUSED}a part of another size"
        slots = self._stock.slots
        if slots.find(part.order, part.rank) is not None:
            return IS_HERE
        if part in self._coming:
            return "it is on its way here"
        if slots.arriving is None or part.order > slots.arriving:
            slots.arriving = part.order
            self._stock.tidy()
        try:
            room = self._stock.room(size_bytes)
        except StateRefused as problem:
            refused = "" if self._stock.make_room() else REFUSED
            return f"{refused}the buddy has no room: {problem.message}"
        self._coming[part] = room
        return room[1]

    def arrived(self, round: int, header: object, tell: Callable[[str], object]) -> None:  # noqa: A002  # as above
        """Verify a part, and tell whether it is kept."""
        part = part_of(header)
        slot, view = self._coming[part]

        def verified(why: str) -> None:
            del self._coming[part]
            why = f"{REFUSED}{why}" if why else self._why_not(round) or self._why_nothing_new()
            if not why:
                settle(slot, part)
            self._stock.release(slot)
            tell(why)

        self._aside(lambda: damage_of(view, part), verified)

    def dropped(self, round: int, header: object, why: str) -> None:  # noqa: A002, ARG002  # as above
        """Hear that an offered part does not come."""
        self._stock.release(self._coming.pop(part_of(header))[0])

    def wanted(self, round: int, header: object) -> tuple[memoryview, Callable[[], None]] | str:  # noqa: A002  # as above
        """Return a part to be read, and how to let go of it; or why there is none."""
        why = self._why_not(round)
        if why:
            return why
        try:
            part = part_of(header)
        except ValueError as problem:
            return f"{REFUSED}{problem}"
        slot = self._stock.slots.find(part.order, part.rank)
        if slot is None:
            return f"{REFUSED}it is not here"
        try:
            return self._stock.view(slot), self._stock.hold(slot)
        except StateRefused as problem:
            return f"{REFUSED}it cannot be read: {problem.message}"

    def _why_nothing_new(self) -> str:
        return f"{REFUSED}that node leaves as well" if self.is_leaving else ""

    def _why_not(self, round_: int) -> str:
        """Refuse what is of another round, but not for good: it says nothing about the part, and who asks hears of its end."""
        if self.round is None or round_ > self.round:
            return "this node is not in that round yet"
        return f"round {round_} is over" if round_ < self.round else ""
