"""Ask a worker and the processes below it for their stacks, each in its turn (`turns.py` says whose it is)."""

from __future__ import annotations

import os

from planaria.process.turns import LOOK_S, Turns, looked, next_turn, passed, wanted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop, Timer


class Stacks:
    """The stacks that one black box gets. `ask` asks a process, and tells whether it can answer."""

    __slots__ = ("_ask", "_box", "_loop", "_timer", "_turns")

    def __init__(self, loop: Loop, box: int, ask: Callable[[int], bool]) -> None:
        self._loop = loop
        self._box = box
        self._ask = ask
        self._turns = Turns()
        self._timer: Timer | None = None

    def want(self, pid: int) -> None:
        """Have a process asked: now, or when those that were asked before are done."""
        self._turns = wanted(self._turns, pid)
        self._go_on()

    def close(self) -> None:
        """Ask nobody any more: the black box is about to be closed, or who writes into it is gone."""
        self._turns = Turns()
        self._rest()

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _go_on(self) -> None:
        self._rest()
        size, now = os.fstat(self._box).st_size, self._loop.now()
        turns = looked(self._turns, size_bytes=size, now=now)
        while (then := next_turn(turns, size_bytes=size, now=now)) != turns:
            turns = then if self._ask(then.writer) else passed(then)
        self._turns = turns
        if turns.writer:
            self._timer = self._loop.call_later(LOOK_S, self._go_on)
