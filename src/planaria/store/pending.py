"""Requests that wait for their answer: each gets exactly one, at its deadline at the latest."""

from __future__ import annotations

from planaria.store.model import Get, List, Remaining, Unavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop, Timer
    from planaria.store.model import Reply, Request

_READS = (Get, List, Remaining)


class Waiting:
    """One request under way. `was_sent`: the store may have seen it."""

    __slots__ = ("asked", "on_reply", "timer", "was_sent")

    def __init__(self, asked: Request, on_reply: Callable[[Reply], object], timer: Timer, *, was_sent: bool) -> None:
        self.asked = asked
        self.on_reply = on_reply
        self.timer = timer
        self.was_sent = was_sent


class Pending:
    """The requests of one store, by number, in the order in which they were asked."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._last = 0
        self._waiting: dict[int, Waiting] = {}
        self.trouble = ""
        """Why there are no answers at the moment, for those who wait in vain."""

    def add(
        self, asked: Request, on_reply: Callable[[Reply], object], timeout_s: float, *, was_sent: bool = False
    ) -> int:
        """Remember a request and return its number."""
        self._last = number = self._last + 1
        timer = self._loop.call_later(timeout_s, lambda: self.give_up(number, f"no answer within {timeout_s:g} s"))
        self._waiting[number] = Waiting(asked, on_reply, timer, was_sent=was_sent)
        return number

    def get(self, number: int) -> Waiting | None:
        """Return a request that still waits."""
        return self._waiting.get(number)

    def all(self) -> list[tuple[int, Waiting]]:
        """Return every request that still waits, the oldest first."""
        return list(self._waiting.items())

    def answer(self, number: int, reply: Reply) -> None:
        """Give a request its answer. One that was answered before is not answered again."""
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting.timer.cancel()
            waiting.on_reply(reply)

    def give_up(self, number: int, why: str) -> None:
        """Answer that there is no answer."""
        waiting = self._waiting.get(number)
        if waiting is not None:
            maybe_done = waiting.was_sent and not isinstance(waiting.asked, _READS)
            self.answer(number, Unavailable(f"{why}: {self.trouble}" if self.trouble else why, maybe_done))

    def clear(self) -> None:
        """Forget every request without an answer."""
        for waiting in self._waiting.values():
            waiting.timer.cancel()
        self._waiting.clear()
