"""Where the council of a round sits: members' lines come in, its rulings go out. Only the anchor of a round has one."""

from __future__ import annotations

from planaria.agent.council_messages import Present, decode, encode
from planaria.base.text import safe_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from planaria.agent.council import Council
    from planaria.agent.council_messages import Ruling, Saying
    from planaria.agent.errands import Cancelled, Loop
    from planaria.contract.commit import Order

    class Line(Protocol):
        """One end of a line: see `agent/line.py`."""

        on_message: Callable[[object], object] | None
        on_lost: Callable[[str], object] | None

        def send(self, value: object) -> object:
            """Send a value."""

        def close(self) -> object:
            """End it."""


TELL_AFTER_S = 30.0  # in which no commit became complete although one was sealed: as long as a peer may be silent
IN_VAIN = "none was sealed by all ranks; they have to make the same calls of commit() and restore()"
MOST_NAMED = 8
MOST_REFUSALS = 8  # that are told in a round: a peer can come again and again, with as many mistakes as it likes


class Hall:
    """Carries between a council and its members. Slot 0 is this agent's own: `own` hears it without a network.

    `say` tells people who was refused, and once in a round who keeps a commit from being complete.
    """

    def __init__(
        self, council: Council, own: Callable[[Ruling], object], loop: Loop, say: Callable[[str], object]
    ) -> None:
        self._council = council
        self._own = own
        self._loop = loop
        self._say = say
        self._refusals: set[str] = set()
        self._timer: Cancelled | None = None
        self._is_told = False
        self._lines: dict[int, Line] = {}
        self._waiting: list[tuple[int, Saying]] = []
        self._busy = False

    def attended(self, header: object, line: Line) -> None:
        """Take the line of a member. One that makes no sense is closed, and told of."""
        try:
            present = decode(header)
            if not isinstance(present, Present) or present.slot == 0:
                raise ValueError("not how a member introduces itself")  # noqa: TRY301  # told like the others
        except ValueError as problem:
            self._refuse(line, "somebody", problem)
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
        except ValueError as problem:
            self._forget(slot, line)
            self._refuse(line, self._name(slot), problem)
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
        self._watch()

    def _take(self, slot: int, message: Saying) -> None:
        try:
            rulings = self._council.hear(slot, message)
        except ValueError as problem:
            line = self._lines.pop(slot, None)
            if line is None:
                raise  # our own member's mistake is ours
            self._refuse(line, self._name(slot), problem)
            return
        for at, ruling in rulings:
            if at == 0:
                self._own(ruling)
            elif at in self._lines:
                self._lines[at].send(encode(ruling))

    def _forget(self, slot: int, line: Line) -> None:
        if self._lines.get(slot) is line:
            del self._lines[slot]

    def _refuse(self, line: Line, who: str, why: ValueError) -> None:
        line.close()
        told = f"{who} was refused a say about commits: {safe_line(str(why))}"
        if told not in self._refusals and len(self._refusals) < MOST_REFUSALS:
            self._refusals.add(told)
            self._say(told)

    def _watch(self) -> None:
        """Look again after a while, if there is somebody to wait for now. Who is asked once in that while, not at each word."""
        if self._timer is None and not self._is_told and (self._council.missing() or self._is_in_vain):
            place = self._council.place
            self._timer = self._loop.call_later(TELL_AFTER_S, lambda: self._look(place))

    def _look(self, before: tuple[bool, Order | None]) -> None:
        self._timer = None
        missing = self._council.missing()
        if not (missing or self._is_in_vain) or self._council.place != before:
            self._watch()
            return
        self._is_told = True
        if not missing:
            self._say(f"no commit was complete for {TELL_AFTER_S:g} s: {IN_VAIN}")
            return
        names = [self._name(slot) for slot in missing[:MOST_NAMED]]
        if more := len(missing) - len(names):
            names.append(f"{more} more")
        self._say(f"no commit was complete for {TELL_AFTER_S:g} s: nothing of it was heard from {', '.join(names)}")

    @property
    def _is_in_vain(self) -> bool:
        """Tell whether one commit after the other is void; a rank that was refused one alone has heard of it."""
        return self._council.void_count > 1

    def _name(self, slot: int) -> str:
        address = safe_line(self._council.address_of(slot))
        return f"group rank {slot} ({address})" if address else f"group rank {slot}"

    def close(self) -> None:
        """End all lines: the round is over."""
        if self._timer is not None:
            self._timer.cancel()
        self._is_told = True
        for line in [*self._lines.values()]:
            line.close()
        self._lines.clear()
