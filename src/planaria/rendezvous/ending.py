"""How a run ends: everybody hears the same, also those who are away. No clock, no sockets.

With an external store the newest round is marked as the last, by compare-and-set: whoever else made a round meanwhile wins.
Then the outcome is written, and then told; while the store is away, a leader tells after one TTL if a majority of the round
holds to it, and after twelve in any case. Without a store the end is certain when so many members have heard of it that
the others cannot go on; until then a leader that others have gone on without gives way. It stays until all have heard, or
until who has not can no longer have a living worker.
"""

from __future__ import annotations

from planaria.base.value import replace
from planaria.rendezvous import quorum
from planaria.rendezvous.keys import outcome_record, round_record
from planaria.rendezvous.messages import Farewell
from planaria.rendezvous.model import SELF, WriteKey

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.messages import Ended
    from planaria.rendezvous.office import Office
    from planaria.rendezvous.seats import Seat

PATIENCE_TTLS = 12  # how long a leader stays for a store that is away, so that those who are away hear of the end


class Ending:
    """The end of one leadership's run: who has been told of it, who has heard, and what the store knows.

    `is_refused`: the store would not take the mark, and has not said yet what it has instead.
    """

    def __init__(self, office: Office) -> None:
        self._office = office
        self._orders, self._roll, self._settings = office.orders, office.roll, office.settings
        self.round_revision = 0
        self.is_refused = False
        self.is_told = False
        self._told_count = 0
        self._is_farewell_said = False
        self._who_knows = {office.settings.node}
        self._is_written = False
        self._write_at = quorum.ALWAYS
        self._is_repeated = False

    def end(self, ended: Ended, now: float) -> None:
        """End the run: tell everybody, or mark the newest round in the store as the last."""
        office = self._office
        office.phase = "ended"
        office.ended, office.ended_at = ended, now
        if not self._settings.external:
            self._tell_all()
        else:
            self._mark(ended)

    def _mark(self, ended: Ended) -> None:
        if self._office.withdrawn:
            return  # what is being written may land yet: the mark comes after it
        last = replace(self._roll.last, epoch=self._office.epoch)
        mark = round_record(last, outcome_record(ended, self._office.epoch))
        self._orders.add(WriteKey("round", mark, self.round_revision))

    def stands(self, now: float) -> bool:
        """Tell whether an end can be undone by a newer round only: some were told, or more than half hold to us.

        A store that was emptied, or names another leader since we were away from it, does not undo it.
        """
        return self._office.ended is not None and (self._told_count > 0 or self._roll.has_majority(now))

    def mark_again(self, revision: int) -> None:
        """Mark the last round in a store that has none, or has it without a mark, by this revision."""
        self.round_revision, self.is_refused = revision, False
        if self._office.ended is not None:
            self._mark(self._office.ended)

    def write_outcome(self, now: float) -> None:
        """Write how it ended, if it has."""
        if self._office.ended is not None:
            self._write_at = now + self._settings.ttl_s
            self._orders.add(WriteKey("outcome", outcome_record(self._office.ended, self._office.epoch), None))

    def outcome_written(self) -> None:
        """Tell everybody how it ended, now that the store will tell those who are away."""
        self._is_written = True
        self._orders.touch()
        if self._office.ended is not None and not self.is_told:
            self._tell_all()

    def _tell_all(self) -> None:
        self.is_told = True
        for seat in self._office.seats.values():
            self.tell(seat)

    def tell(self, seat: Seat) -> None:
        """Tell a node, if it is time; our own hears it last, because it goes then and nobody is left to ask."""
        if self._office.ended is not None and self.is_told and seat.conn != SELF:
            self._orders.send(seat, self._office.ended)
            self._told_count += 1

    def see_out(self, now: float) -> bool:
        """Wait for the store, not too long, and for those who do not know yet; then let our own node go."""
        if not self.is_told and self._may_tell_without_store(now):
            self._tell_all()
        if self._settings.external and not self._is_written:
            if now >= self._write_at:
                self.write_outcome(now)
            self._orders.wake(self._write_at)
        for ttls in (2, PATIENCE_TTLS):
            self._orders.wake(self._office.ended_at + ttls * self._settings.ttl_s)
        if self._office.ended is None or self._is_farewell_said or not self.is_over(now):
            return False
        self._is_farewell_said = True
        for seat in self._office.seats.values():
            self._orders.send(seat, self._office.ended if seat.conn == SELF else Farewell())
        return False

    def _may_tell_without_store(self, now: float) -> bool:
        """Tell whether those who are here are so many that nobody could go on without them, or we have waited too long."""
        soon = self._office.ended_at + self._settings.ttl_s
        late = self._office.ended_at + PATIENCE_TTLS * self._settings.ttl_s
        self._orders.wake(soon)
        self._orders.wake(late)
        return now >= late or (now >= soon and self._roll.has_majority(now))

    def heard_end(self, seat: Seat) -> None:
        """Note that a node knows how the run ended."""
        seat.knows_end = True
        self._who_knows.add(seat.join.node)

    def gives_way(self, number: int, now: float) -> bool:
        """Tell whether a leader with round `number` may undo our end: nobody was told, or enough have gone on not knowing."""
        if self._office.ended is None:
            return True
        told_nobody = self._told_count == 0
        return not self._is_certain(now) and (told_nobody or number > self._roll.last.round)

    def _is_certain(self, now: float) -> bool:
        """Tell whether the end stands: with a store once it is written, else once enough members know it."""
        ended = self._office.ended
        if self._settings.external or ended is None or ended.kind in ("lost", "timeout"):
            return True
        return self._is_repeated or self.is_known(now)

    def is_known(self, now: float) -> bool:
        """Tell whether so many members know the end that the others cannot go on. The dead keep nobody from that."""
        if self._office.ended is None:
            return False
        roll = self._roll
        lost = roll.dead.keys() | roll.gone.keys()
        count = sum(node in self._who_knows and node not in lost for node in roll.members)
        return roll.is_enough(count, roll.members, roll.size(), now)

    def is_over(self, now: float) -> bool:
        """Tell whether nobody is left who has to hear how it ended."""
        if not self.is_told:
            return False
        if not self._is_certain(now) and now < self._office.ended_at + PATIENCE_TTLS * self._settings.ttl_s:
            return False
        others = [seat for node, seat in self._office.seats.items() if node != self._settings.node]
        away = any(True for _ in self._roll.missing()) or bool(self._roll.spares_away())
        if self._settings.external:  # the store will tell them, once it knows
            away = not self._is_written and now < self._office.ended_at + PATIENCE_TTLS * self._settings.ttl_s
            return not away and all(seat.knows_end for seat in others)
        waiting = away or any(not seat.knows_end for seat in others)
        return not waiting or now >= self._office.ended_at + 2 * self._settings.ttl_s

    def repeat_end(self, ended: Ended, now: float) -> None:
        """Tell again how the run ended, in the place of a leader that was lost while it told."""
        self._office.phase = "ended"
        self._office.ended, self._office.ended_at, self.is_told = ended, now, True
        self._write_at = now
        self._is_repeated = True
