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
from planaria.rendezvous.attendance import Attendance
from planaria.rendezvous.keys import outcome_record, round_record
from planaria.rendezvous.messages import Farewell
from planaria.rendezvous.model import SELF, WriteKey

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.messages import Ended
    from planaria.rendezvous.model import Held, Settings, Standing
    from planaria.rendezvous.seats import Seat

PATIENCE_TTLS = 12  # how long a leader stays for a store that is away, so that those who are away hear of the end


class Ending(Attendance):
    """The end of one leadership's run."""

    def __init__(self, settings: Settings, now: float, *, term: int, standing: Standing, held: Held) -> None:
        super().__init__(settings, now, term=term, standing=standing, held=held)
        self.round_revision = 0
        self._is_farewell_said = False
        self._who_knows = {settings.node}
        self._outcome_written = False
        self._write_at = quorum.ALWAYS
        self.is_repeated = False

    def _end(self, ended: Ended, now: float) -> None:
        self.phase = "ended"
        self.ended, self.ended_at = ended, now
        if not self.settings.external:
            self._tell_end()
        else:
            last = replace(self.roll.last, epoch=self.epoch)
            mark = round_record(last, outcome_record(ended, self.epoch))
            self._out.append(WriteKey("round", mark, self.round_revision))

    def _write_outcome(self, now: float) -> None:
        """Write how it ended, if it has."""
        if self.ended is not None:
            self._write_at = now + self.settings.ttl_s
            self._out.append(WriteKey("outcome", outcome_record(self.ended, self.epoch), None))

    def outcome_written(self) -> None:
        """Tell everybody how it ended, now that the store will tell those who are away."""
        self._outcome_written = True
        self._touch()
        if self.ended is not None and not self.end_told:
            self._tell_end()

    def _tell_end(self) -> None:
        """Tell everybody else; our own node hears it last, because it goes then and nobody is left to ask."""
        self.end_told = True
        for seat in self.seats.values():
            if self.ended is not None and seat.conn != SELF:
                self._send(seat, self.ended)
                self._told_count += 1

    def _see_it_out(self, now: float) -> bool:
        """Wait for the store, not too long, and for those who do not know yet; then let our own node go."""
        if not self.end_told and self._may_tell_without_store(now):
            self._tell_end()
        if self.settings.external and not self._outcome_written:
            if now >= self._write_at:
                self._write_outcome(now)
            self._wake(self._write_at)
        for ttls in (2, PATIENCE_TTLS):
            self._wake(self.ended_at + ttls * self.settings.ttl_s)
        if self.ended is None or self._is_farewell_said or not self.is_over(now):
            return False
        self._is_farewell_said = True
        for seat in self.seats.values():
            self._send(seat, self.ended if seat.conn == SELF else Farewell())
        return False

    def _may_tell_without_store(self, now: float) -> bool:
        """Tell whether those who are here are so many that nobody could go on without them, or we have waited too long."""
        soon, late = self.ended_at + self.settings.ttl_s, self.ended_at + PATIENCE_TTLS * self.settings.ttl_s
        self._wake(soon)
        self._wake(late)
        return now >= late or (now >= soon and self.roll.has_majority(now))

    def heard_end(self, seat: Seat) -> None:
        """Note that a node knows how the run ended."""
        seat.knows_end = True
        self._who_knows.add(seat.join.node)

    def gives_way(self, number: int, now: float) -> bool:
        """Tell whether a leader with round `number` may undo our end: nobody was told, or enough have gone on not knowing."""
        if self.ended is None:
            return True
        told_nobody = self._told_count == 0
        return not self._is_certain(now) and (told_nobody or number > self.roll.last.round)

    def _is_certain(self, now: float) -> bool:
        """Tell whether the end stands: with a store once it is written, else once enough members know it."""
        if self.settings.external or self.ended is None or self.ended.kind in ("lost", "timeout"):
            return True
        count = sum(node in self._who_knows for node in self.roll.members)
        return self.is_repeated or quorum.is_enough(count, self.roll.size(), tie_break=self.roll.tie_until > now)

    def is_over(self, now: float) -> bool:
        """Tell whether nobody is left who has to hear how it ended."""
        if not self.end_told:
            return False
        if not self._is_certain(now) and now < self.ended_at + PATIENCE_TTLS * self.settings.ttl_s:
            return False
        others = [seat for node, seat in self.seats.items() if node != self.settings.node]
        away = any(True for _ in self.roll.missing()) or bool(self.roll.spares_away())
        if self.settings.external:  # the store will tell them, once it knows
            away = not self._outcome_written and now < self.ended_at + PATIENCE_TTLS * self.settings.ttl_s
            return not away and all(seat.knows_end for seat in others)
        waiting = away or any(not seat.knows_end for seat in others)
        return not waiting or now >= self.ended_at + 2 * self.settings.ttl_s

    def repeat_end(self, ended: Ended, now: float) -> None:
        """Tell again how the run ended, in the place of a leader that was lost while it told."""
        self.phase = "ended"
        self.ended, self.ended_at, self.end_told = ended, now, True
        self._write_at = now
        self.is_repeated = True
