"""What a leader has ordered and not handed out yet, and when it wants to look again. No clock, no sockets."""

from __future__ import annotations

from planaria.rendezvous import quorum
from planaria.rendezvous.messages import Place
from planaria.rendezvous.model import Send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.messages import ToMember
    from planaria.rendezvous.model import Effect
    from planaria.rendezvous.seats import Seat


class Orders:
    """Collects effects between two turns. `is_dirty` says that something happened which may call for a decision."""

    def __init__(self, now: float) -> None:
        self.is_dirty = True
        self.now = now
        self.wake_at = quorum.ALWAYS
        self._out: list[Effect] = []

    def begin_turn(self, now: float) -> None:
        """Forget when to look again: it is decided anew."""
        self.is_dirty = False
        self.now, self.wake_at = now, quorum.ALWAYS

    def touch(self) -> None:
        """Note that there may be something to decide."""
        self.is_dirty = True

    def wake(self, when: float) -> None:
        """Look again at this moment; one that has passed has been looked at."""
        if self.now < when < self.wake_at:
            self.wake_at = when

    def add(self, *effects: Effect) -> None:
        """Order something."""
        self._out += effects

    def send(self, seat: Seat, message: ToMember) -> None:
        """Tell a node that is here something."""
        if isinstance(message, Place):
            seat.told = message.term, message.round
        self._out.append(Send(seat.conn, message))

    def take(self) -> list[Effect]:
        """Hand out what was ordered."""
        out, self._out = self._out, []
        return out
