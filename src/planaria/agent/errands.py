"""Bring parts to another agent, or get one from there: again and again over lost connections, and verified at their end."""

from __future__ import annotations

from planaria.agent.stock import part_in
from planaria.base.value import Value, as_dict
from planaria.contract import snapshot as snapshots
from planaria.contract.commit import Stamp
from planaria.errors import StateRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from planaria.agent.council_messages import Part
    from planaria.agent.slots import Slot
    from planaria.agent.stock import Stock

    class Cancelled(Protocol):
        """Something that can be given up."""

        def cancel(self) -> object:
            """Give it up."""

    class Loop(Protocol):
        """What an errand needs of a loop."""

        def call_later(self, delay_s: float, callback: Callable[[], object]) -> Cancelled:
            """Call back later."""

    class Dock(Protocol):
        """What an errand needs of a dock: see `agent/dock.py`."""

        def fetch(
            self,
            address: str,
            round: int,  # noqa: A002  # the word of the domain
            header: object,
            into: Callable[[int], memoryview | str],
            on_done: Callable[[str], object],
        ) -> Cancelled:
            """Get a part."""

        def store(
            self,
            address: str,
            round: int,  # noqa: A002  # as above
            header: object,
            source: memoryview,
            on_done: Callable[[str], object],
        ) -> Cancelled:
            """Bring a part."""

    Aside = Callable[[Callable[[], str], Callable[[str], object]], object]

REFUSED = "refused: "  # how a reason begins that does not go away by trying again
IS_HERE = "it is here already"
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
LONGEST_WAIT_S = 30.0  # between tries none of which brought a part through; training may wait for it


class Road(Value):
    """The way to another agent in a round. `aside` does work in a thread and tells its result on the loop."""

    loop: Loop
    dock: Dock
    stock: Stock
    aside: Aside
    round: int


class Push:
    """Parts on their way to one other agent, one after the other. `on_done("")` once all are verified there, or why not.

    `is_wanted` says, after a lost connection, whether to go on; an agent that is out of reach for long is given up. With
    `all_or_none` a part that counts no more meanwhile ends it; else that one is passed over.
    """

    def __init__(
        self,
        road: Road,
        address: str,
        slots: Iterable[Slot],
        is_wanted: Callable[[], bool],
        on_done: Callable[[str], object],
        *,
        all_or_none: bool = True,
    ) -> None:
        self._road = road
        self._address = address
        self._all_or_none = all_or_none
        self._held = [(slot, road.stock.hold(slot)) for slot in slots]
        self._is_wanted = is_wanted
        self._on_done = on_done
        self._pause_s = _FIRST_PAUSE_S
        self._waited_s = 0.0
        self._doing: Cancelled | None = None
        self._next()

    def cancel(self) -> None:
        """Give it up."""
        if self._doing is not None:
            self._doing.cancel()
            self._doing = None
        held, self._held = self._held, []
        for _, release in held:
            release()

    def _next(self) -> None:
        if not self._held:
            self._doing = None
            self._on_done("")
            return
        slot = self._held[0][0]
        if slot.stamp is None:
            self._stored(f"{REFUSED}it could not be read" if self._all_or_none else "")
            return
        try:
            header, view = as_dict(part_in(slot)), self._road.stock.view(slot)
        except StateRefused as problem:
            self._stored(f"{REFUSED}it cannot be read: {problem.message}")
            return
        self._doing = self._road.dock.store(self._address, self._road.round, header, view, self._stored)

    def _stored(self, why: str) -> None:
        if not why or why == IS_HERE:
            self._pause_s, self._waited_s = _FIRST_PAUSE_S, 0.0
            self._held.pop(0)[1]()
            self._next()
        elif why.startswith(REFUSED) or self._waited_s >= LONGEST_WAIT_S or not self._is_wanted():
            self.cancel()
            self._on_done(why.removeprefix(REFUSED))
        else:
            self._doing = self._road.loop.call_later(self._pause_s, self._next)
            self._waited_s += self._pause_s
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


class Fetch:
    """One part on its way here. `on_done("")` once it is verified and counts, or why the other's is of no use.

    `on_trouble(why)` hears that there is no memory for it here; then nothing more happens. `on_unreached(why)` hears now and
    then that an agent is out of reach for long. It is tried all the same until this is cancelled: nobody else may have it.
    """

    def __init__(
        self,
        road: Road,
        address: str,
        part: Part,
        on_done: Callable[[str], object],
        on_trouble: Callable[[str], object],
        on_unreached: Callable[[str], object],
    ) -> None:
        self._road = road
        self._address = address
        self._part = part
        self._on_done = on_done
        self._on_trouble = on_trouble
        self._on_unreached = on_unreached
        self._pause_s = _FIRST_PAUSE_S
        self._waited_s = 0.0
        self._room: tuple[Slot, memoryview] | None = None
        self._no_room = self._wrong_size = ""
        self._is_over = False
        self._doing: Cancelled | None = None
        self._begin()

    def cancel(self) -> None:
        """Give it up."""
        self._is_over = True
        if self._doing is not None:
            self._doing.cancel()
        self._release()

    def _begin(self) -> None:
        header = as_dict(self._part)
        self._doing = self._road.dock.fetch(self._address, self._road.round, header, self._into, self._arrived)

    def _into(self, size_bytes: int) -> memoryview | str:
        self._release()
        if size_bytes != self._part.size_bytes:
            self._wrong_size = f"it is of {size_bytes} bytes, not of {self._part.size_bytes}"
            return self._wrong_size
        try:
            self._room = self._road.stock.room(size_bytes)
        except StateRefused as problem:
            if not self._road.stock.make_room():
                self._no_room = problem.message
            return problem.message
        return self._room[1]

    def _arrived(self, why: str) -> None:
        if self._is_over:
            return
        if not why and self._room is not None:
            (_, view), part = self._room, self._part
            self._doing = None
            self._road.aside(lambda: damage_of(view, part), self._verified)
        elif self._no_room:
            self._is_over = True
            self._on_trouble(self._no_room)
        elif self._wrong_size or why.startswith(REFUSED):
            self._is_over = True
            self._release()
            self._on_done(self._wrong_size or why.removeprefix(REFUSED))
        else:
            self._release()
            self._try_again(why)

    def _try_again(self, why: str) -> None:
        self._doing = self._road.loop.call_later(self._pause_s, self._begin)
        self._waited_s += self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        if self._waited_s >= LONGEST_WAIT_S:
            self._waited_s = 0.0
            self._on_unreached(why)  # it may cancel this

    def _verified(self, why: str) -> None:
        if self._is_over or self._room is None:
            return
        self._is_over = True
        if not why:
            settle(self._room[0], self._part)
        self._release()
        self._on_done(why)

    def _release(self) -> None:
        if self._room is not None:
            (slot, _), self._room = self._room, None
            self._road.stock.release(slot)


def settle(slot: Slot, part: Part) -> None:
    """Let memory count as the part that was verified in it."""
    slot.stamp = stamp_of(part)
    slot.shared = part.shared


def stamp_of(part: Part) -> Stamp:
    """Return the stamp that a part must carry."""
    return Stamp(part.run, part.round, part.generation, part.step, part.world_size, part.rank)


def damage_of(memory: memoryview, part: Part) -> str:
    """Say what is wrong with a part, empty when it is whole and the one that was meant. It may take a while."""
    try:
        found = snapshots.read(memory)
        if found is None or found.stamp != stamp_of(part):
            return "it is not the part that it should be"
        snapshots.verify(memory, found)
    except ValueError as problem:
        return str(problem)
    return ""
