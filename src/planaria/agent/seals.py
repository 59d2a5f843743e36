"""What the workers of this node have sealed and will not seal, as the council is told it: once, and again after a lost line."""

from __future__ import annotations

from planaria.agent.council_messages import Sealed, Unsealed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.agent.council_messages import Saying
    from planaria.agent.stock import Stock
    from planaria.contract.commit import Order, Stamp
    from planaria.contract.env import Round


class Seals:
    """Those of one round. `version` is that of the plan which the workers began from, None before there is one."""

    def __init__(self, life: Round, stock: Stock, send: Callable[[Saying], object]) -> None:
        self._life = life
        self._slots = stock.slots
        self._send = send
        self._unanswered: dict[Order, str] = {}  # void by our word: said until the council has ruled so
        self._mistakes: dict[int, str] = {}  # by local rank: what a worker is to hear
        self.run = 0
        self.version: int | None = None
        self._slots.begin_round()

    def seal(self, local_rank: int, number: int, stamp: Stamp) -> None:
        """Take in that a worker has sealed a slot, and say what that makes of this node's commits.

        Raises:
            ValueError: It is not a slot of this worker.
        """
        for order, why in self._slots.seal(local_rank, number, stamp).items():
            self._give_up(order, why)
        if stamp.order in self._slots.whole():
            self._tell_whole(stamp.order)

    def skip(self, local_rank: int, order: Order) -> None:
        """Take in that a worker will not seal a commit."""
        if self._slots.skip(local_rank, order):
            self._give_up(order, "")

    def ruled_void(self, order: Order, why: str) -> None:
        """Take in that the council has ruled a commit to be void."""
        self._unanswered.pop(order, None)
        if self._slots.void(order, why):
            self._blame(why)

    def complete(self, order: Order) -> None:
        """Take in that a commit is complete: nobody asks for older ones."""
        self._unanswered = {one: why for one, why in self._unanswered.items() if one > order}

    def begin(self) -> None:
        """Begin from another commit than before: what was sealed since then is over."""
        self._unanswered.clear()
        self._mistakes.clear()

    def repeat(self) -> None:
        """Say again what counts: it may not have been heard."""
        self._tell_whole(None)
        for order, why in [*self._unanswered.items()]:  # it may be answered at once
            self._tell_unsealed(order, why)

    def mistake(self, local_rank: int) -> str:
        """Return what a worker is to hear about a commit that is void by a mistake of the program; each hears it once."""
        return self._mistakes.pop(local_rank, "")

    def _give_up(self, order: Order, why: str) -> None:
        self._unanswered[order] = why
        self._blame(why)
        self._tell_unsealed(order, why)

    def _blame(self, why: str) -> None:
        if why:
            self._mistakes = dict.fromkeys(range(self._life.local_world_size), why) | self._mistakes

    def _tell_unsealed(self, order: Order, why: str) -> None:
        if self.version is not None and self._is_ours(order):
            self._send(Unsealed(self.version, order, why))

    def _is_ours(self, order: Order) -> bool:
        """Tell whether a commit is of this round; its run may have been chosen anew meanwhile."""
        return order[:2] == (self.run, self._life.number)

    def _tell_whole(self, until: Order | None) -> None:
        """Say which commits all workers of this node have sealed, the oldest first, up to one of them.

        Also those that were said before and are not known to be complete. A word may be lost with a line, and who hears of a
        later commit alone takes the earlier one to be passed over.
        """
        for order in self._slots.whole():
            is_open = self._slots.complete is None or order > self._slots.complete
            if is_open and self._is_ours(order) and (until is None or order <= until):
                found = self._slots.find(order, self._life.first_rank)
                if found is not None and found.stamp is not None and self.version is not None:
                    self._send(Sealed(self.version, order, found.stamp.step))
