"""What a node does for the tiers beyond its memory: bring parts to its buddy, write and search the directory."""

from __future__ import annotations

from planaria.agent.council_messages import Copied, Searched, Written, order_of
from planaria.agent.errands import Push
from planaria.archive.plan import Failed as NotWritten
from planaria.archive.plan import Written as FileWritten
from planaria.contract.commit import Stamp
from planaria.errors import StateRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from planaria.agent.council_messages import Copy, Saying, Search, Write
    from planaria.agent.disk import Disk
    from planaria.agent.errands import Road
    from planaria.agent.slots import Slot
    from planaria.agent.stock import Stock
    from planaria.archive.plan import Outcome
    from planaria.contract.commit import Order

LONGEST_WHY = 500
LEAVING_TRIES = 3
_LEAVING = 0  # no task of a council has this number


class Chores:
    """Those of one round. `road` is None for a node alone; `send` tells the council."""

    def __init__(
        self, stock: Stock, disk: Disk | None, road: Road | None, buddy: str, send: Callable[[Saying], object]
    ) -> None:
        self._stock = stock
        self._disk = disk
        self._road = road
        self._buddy = buddy
        self._send = send
        self._copied: Copied | None = None  # what came of what was asked last
        self._written: Written | None = None
        self._pushes: dict[int, Push] = {}

    def repeat(self) -> None:
        """Say again what came of the last ones: it may not have been heard."""
        for answer in (self._copied, self._written):
            if answer is not None:
                self._send(answer)

    def cancel(self) -> None:
        """Bring nothing more to the buddy that a council has asked for. Who leaves goes on: somebody waits for that."""
        for number in [number for number in self._pushes if number != _LEAVING]:
            self._pushes.pop(number).cancel()

    def close(self) -> None:
        """Bring nothing more to anybody."""
        self.cancel()
        for push in self._pushes.values():
            push.cancel()
        self._pushes.clear()

    def copy(self, asked: Copy) -> None:
        """Bring parts to the buddy, and say so. Also who has none to bring keeps what it has of that commit."""
        if self._copied is not None and self._copied.number >= asked.number:
            self._send(self._copied)
            return
        if asked.number in self._pushes:
            return
        slots, order = self._stock.slots, order_of(asked.order)
        slots.copying, slots.is_stuck = order, False
        parts = self._parts(order, asked.ranks)
        if not parts or self._road is None:
            self._on_copied(asked.number, "" if parts == [] else "a part of it is not here any more")
            return
        self._pushes[asked.number] = Push(
            self._road,
            self._buddy,
            parts,
            lambda: slots.complete == order,
            lambda why: self._on_copied(asked.number, why),
        )

    def _on_copied(self, number: int, why: str) -> None:
        self._pushes.pop(number, None)
        self._copied = Copied(number, why[:LONGEST_WHY])
        self._send(self._copied)

    def _parts(self, order: Order | None, ranks: Iterable[int]) -> list[Slot] | None:
        found = [self._stock.slots.find(order, rank) for rank in ranks] if order is not None else [None]
        return [slot for slot in found if slot is not None] if all(found) else None

    def hand_over(self, ring: Sequence[str], on_done: Callable[[bool], object]) -> None:
        """Bring what only this node may have of its newest commits to its buddy: it is about to leave.

        The buddy may be gone or leave as well: then to the first of the `ring` behind it that takes them. Who has nothing
        has brought nothing: a run that never sealed a commit begins anew.
        """
        parts = self._stock.slots.newest_parts()
        if self._road is None or not parts:
            on_done(False)
            return
        self._hand_to([self._buddy, *ring], parts, on_done)

    def _hand_to(self, addresses: Sequence[str], parts: Sequence[Slot], on_done: Callable[[bool], object]) -> None:
        assert self._road is not None
        tries = iter(range(LEAVING_TRIES))  # the others wait for our goodbye

        def done(why: str) -> None:
            if why and len(addresses) > 1:
                self._hand_to(addresses[1:], parts, on_done)
            else:
                on_done(not why)

        # A plan that comes meanwhile may say that some of them count no more.
        self._pushes[_LEAVING] = Push(
            self._road, addresses[0], parts, lambda: next(tries, None) is not None, done, all_or_none=False
        )

    def write(self, asked: Write) -> None:
        """Write parts into the directory, and say so."""
        if self._written is not None and self._written.number >= asked.number:
            self._send(self._written)
            return
        parts = self._parts(order_of(asked.order), asked.ranks)
        if self._disk is None or parts is None:
            why = "a node has no --snapshot-dir" if self._disk is None else "a part of it is not in memory any more"
            self._on_written(Written(asked.number, False, why))
            return
        try:
            pinned = self._stock.pinned(parts)
        except StateRefused as problem:
            self._disk.refuse(problem.message)
            self._on_written(Written(asked.number, False, problem.message[:LONGEST_WHY]))
            return
        self._disk.write(pinned, lambda outcome: self._on_written(_as_answer(asked.number, outcome)))

    def _on_written(self, answer: Written) -> None:
        self._written = answer
        self._send(answer)

    def search(self, asked: Search) -> None:
        """Look for a commit in the directory, and say what was found."""

        def told(found: Stamp | str | None, newest: Order | None) -> None:
            if isinstance(found, Stamp):
                self._send(Searched(found.order, found.step, found.world_size, newest or (), ""))
            else:
                self._send(Searched((), 0, 0, newest or (), (found or "")[:LONGEST_WHY]))

        if self._disk is None:
            told(None, None)
        else:
            self._disk.find(order_of(asked.than), told)


def _as_answer(number: int, outcome: Outcome) -> Written:
    if isinstance(outcome, NotWritten):
        return Written(number, False, outcome.why[:LONGEST_WHY])
    return Written(number, not isinstance(outcome, FileWritten) or outcome.complete, "")
