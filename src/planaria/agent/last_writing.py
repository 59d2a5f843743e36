"""Have the newest complete commit on disk before its memory goes with this agent."""

from __future__ import annotations

from planaria.errors import StateRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.agent.disk import Disk
    from planaria.agent.stock import Stock
    from planaria.base.loop import Loop
    from planaria.contract.commit import Order

LOOK_EVERY_S = 0.05


class LastWriting:
    """What a node writes when it ends: by itself, since nobody orders it any more. Turns the loop until a `deadline`."""

    def __init__(self, loop: Loop, disk: Disk, stock: Stock, deadline: float) -> None:
        self._loop = loop
        self._disk = disk
        self._stock = stock
        self._deadline = deadline

    def bring(self, complete: Order, *, is_alone: bool) -> bool:
        """Write this commit, and tell whether it is whole on disk.

        What only this node's workers are known to have sealed is written too: other nodes may write theirs.
        """
        for order in sorted({complete, *(one for one in self._stock.slots.whole() if one > complete)}):
            self._write(order)
        is_there = self._is_on_disk(complete)
        while not is_there and not is_alone and (left_s := self._left_s()) > 0:
            self._loop.run_once(min(left_s, LOOK_EVERY_S))  # others write their files, and only the directory tells
            is_there = self._is_on_disk(complete)
        return is_there

    def _left_s(self) -> float:
        return self._deadline - self._loop.now()

    def _write(self, order: Order) -> None:
        told: list[object] = []
        parts = [slot for slot in self._stock.slots.parts() if slot.stamp is not None and slot.stamp.order == order]
        if not parts:
            return

        def ask() -> None:
            try:
                # The council may order a writing meanwhile, in place of ours: then once more.
                self._disk.write(self._stock.pinned(parts), told.append, on_given_up=ask)
            except StateRefused as problem:
                self._disk.refuse(problem.message)
                told.append(problem)

        ask()
        self._turn_until(told)

    def _is_on_disk(self, order: Order) -> bool:
        told: list[bool] = []
        self._disk.look(order, told.append)
        self._turn_until(told)
        return told == [True]

    def _turn_until(self, told: list[object] | list[bool]) -> None:
        while not told and (left_s := self._left_s()) > 0:
            self._loop.run_once(left_s)
