"""What people are told while nothing runs: whom we wait for, or that there is no majority to go on with. No clock."""

from __future__ import annotations

from planaria.rendezvous import placing, quorum, words
from planaria.rendezvous.messages import Waiting
from planaria.rendezvous.model import Say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.office import Office

TELL_S, TELL_MANY_S = 0.5, 5.0  # between two lines about what we wait for; thousands of readers cost something


class Notice:
    """The line that everybody was told last."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self._orders, self._roll = office.orders, office.roll
        self._told = ""
        self._told_at = quorum.NEVER

    def clear(self) -> None:
        """Forget it: a round runs."""
        self._told = ""
        self._office.is_holding = False

    def tell(self, text: str) -> None:
        """Tell everybody what we wait for, when it has changed and not more often than people can read."""
        if text == self._told:
            return
        now, seats = self._orders.now, self._office.seats
        pause_s = TELL_S if len(seats) <= placing.MANY_NODES else TELL_MANY_S
        self._orders.wake(self._told_at + pause_s)
        if now >= self._told_at + pause_s:
            self._told, self._told_at = text, now
            for seat in seats.values():
                self._orders.send(seat, Waiting(text))

    def hold(self) -> None:
        """Say that there is no majority, unless it is here and has only not answered yet."""
        roll = self._roll
        if roll.has_enough(self._orders.now):
            return  # they are here: a moment until they have all answered
        text = words.holding(roll.present(), roll.size(), roll.last.round)
        if not self._office.is_holding:
            self._office.is_holding = True
            self._orders.add(Say(text))
        self.tell(text)

    def wait_for_majority(self) -> None:
        """Say so, and look again when what we know of others runs out."""
        for at in self._roll.heard.values():
            self._orders.wake(at + self._roll.settings.lease_s)
        self.hold()
