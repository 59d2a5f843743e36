"""Where the council of a round sits: members' lines come in, its rulings go out. Only the anchor of a round has one."""

from __future__ import annotations

from planaria.agent.council_messages import Present, decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from planaria.agent.council import Council
    from planaria.agent.council_messages import Ruling, Saying

    class Line(Protocol):
        """One end of a line: see `agent/line.py`."""

        on_message: Callable[[object], object] | None
        on_lost: Callable[[str], object] | None

        def send(self, value: object) -> object:
            """Send a value."""

        def close(self) -> object:
            """End it."""


class Hall:
    """Carries between a council and its members. Slot 0 is this agent's own: `own` hears it without a network."""

    def __init__(self, council: Council, own: Callable[[Ruling], object]) -> None:
        self._council = council
        self._own = own
        self._lines: dict[int, Line] = {}
        self._waiting: list[tuple[int, Saying]] = []
        self._busy = False

    def attended(self, header: object, line: Line) -> None:
        """Take the line of a member. One that makes no sense is closed."""
        try:
            present = decode(header)
        except ValueError:
            line.close()
            return
        if not isinstance(present, Present) or present.slot == 0:
            line.close()
            return
        slot = present.slot
        before = self._lines.pop(slot, None)
        if before is not None:
            before.close()
        self._lines[slot] = line
        line.on_message = lambda value: self._on_message(slot, line, value)
        line.on_lost = lambda _why: self._forget(slot, line)
        self.hear(slot, present)

    def _on_message(self, slot: int, line: Line, value: object) -> None:
        if self._lines.get(slot) is not line:
            return
        try:
            message = decode(value)
        except ValueError:
            self._forget(slot, line)
            line.close()
            return
        self.hear(slot, message)  # type: ignore[arg-type]  # the council refuses what is not for a member to say

    def hear(self, slot: int, message: Saying) -> None:
        """Take what a member says. What the council rules upon it is sent before the next is heard."""
        self._waiting.append((slot, message))
        if self._busy:
            return
        self._busy = True
        try:
            while self._waiting:
                self._take(*self._waiting.pop(0))
        finally:
            self._busy = False

    def _take(self, slot: int, message: Saying) -> None:
        try:
            rulings = self._council.hear(slot, message)
        except ValueError:
            line = self._lines.pop(slot, None)
            if line is None:
                raise  # our own member's mistake is ours
            line.close()
            return
        for at, ruling in rulings:
            if at == 0:
                self._own(ruling)
            elif at in self._lines:
                self._lines[at].send(encode(ruling))

    def _forget(self, slot: int, line: Line) -> None:
        if self._lines.get(slot) is line:
            del self._lines[slot]

    def close(self) -> None:
        """End all lines: the round is over."""
        for line in [*self._lines.values()]:
            line.close()
        self._lines.clear()
