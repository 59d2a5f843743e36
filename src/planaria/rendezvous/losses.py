"""The last round's account: on which nodes can workers of it still be alive, and was a member lost with it? No clock.

Failures of a round that also lost a member are charged to the loss and cost no restart.
"""

from __future__ import annotations

from planaria.rendezvous.roll import DEAD_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.office import Office


class Losses:
    """`has_one`: the last round lost a member, by death, by goodbye or by silence.

    `was_stopped`: a member came to us whose workers another leader had stopped, which may have made others fail.
    """

    def __init__(self, office: Office) -> None:
        self._office = office
        self._orders, self._roll = office.orders, office.roll
        self.has_one = False
        self.was_stopped = False

    def are_accounted(self, now: float) -> bool:
        """Tell whether no worker of the last round can be alive on any node any more."""
        roll = self._roll
        accounted = all(seat.runs < 0 for node, seat in roll.here.items() if node not in roll.members)
        excludes, floor = roll.may_exclude(now), roll.floor()
        for node in roll.members:
            accounted = self._is_accounted(node, now, floor, excludes=excludes) and accounted
        if roll.has_unknown():
            self.has_one = True
            fenced_at = floor + roll.settings.silence_s
            self._orders.wake(fenced_at)
            accounted = accounted and excludes and now >= fenced_at
        return accounted

    def _is_accounted(self, node: str, now: float, floor: float, *, excludes: bool) -> bool:
        roll, seat = self._roll, self._roll.here.get(node)
        if node in roll.gone:
            self.has_one |= node not in roll.finished
            return True
        if node in roll.settled or (seat is None and node in roll.finished):
            return True
        if node in roll.dead:
            self.has_one = True
            self._orders.wake(roll.dead[node] + DEAD_S)
            return now >= roll.dead[node] + DEAD_S
        if seat is not None:
            was_fenced = seat.join.fenced and seat.join.standing.round == roll.last.round
            self.has_one = self.has_one or seat.departing or was_fenced
            was_idle = seat.join.state == "idle" and seat.join.standing.ran == roll.last.round
            self.was_stopped |= was_idle and seat.join.bound_term != self._office.term
            if seat.stopped_for >= self._office.next_round:
                roll.settled.add(node)
            return node in roll.settled
        fenced_at = roll.fenced_at(node, floor)
        self._orders.wake(fenced_at)
        if excludes and now >= fenced_at:
            self.has_one = True
            return True
        return False

    def note_going(self) -> None:
        """Count members that are about to go, now that nothing of them runs."""
        self.has_one = self.has_one or any(self._is_going(node) for node in self._roll.members)

    def _is_going(self, node: str) -> bool:
        roll, seat = self._roll, self._roll.here.get(node)
        is_going = node in roll.dead or node in roll.gone or (seat is not None and seat.departing)
        return is_going and node not in roll.finished

    def may_turn_up(self, now: float) -> bool:
        """Wait for a member that stopped its workers and went: it comes back, or it was lost and failures are free."""
        floor = self._roll.floor()
        for node in self._roll.missing():
            if node in self._roll.finished:
                continue
            fenced_at = self._roll.fenced_at(node, floor)
            self._orders.wake(fenced_at)
            if now < fenced_at:
                return True
            self.has_one = True
        return False
