"""How a run ends: everybody hears the same, also those who are away. No clock, no sockets.

With an external store the outcome is written first, and then told; otherwise the leader stays until all have heard, or
until who has not can no longer have a living worker.
"""

from __future__ import annotations

from planaria.rendezvous import quorum
from planaria.rendezvous.attendance import Attendance
from planaria.rendezvous.keys import outcome_record
from planaria.rendezvous.messages import Farewell
from planaria.rendezvous.model import SELF, WriteKey

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.messages import Ended
    from planaria.rendezvous.model import Settings, Standing

PATIENCE_TTLS = 12  # how long a leader stays for a store that is away, so that those who are away hear of the end


class Ending(Attendance):
    """The end of one leadership's run."""

    def __init__(self, settings: Settings, now: float, *, term: int, standing: Standing, since_ack_s: float) -> None:
        super().__init__(settings, now, term=term, standing=standing, since_ack_s=since_ack_s)
        self._is_farewell_said = False
        self._outcome_written = False
        self._write_at = quorum.ALWAYS

    def _end(self, ended: Ended, now: float) -> None:
        self.phase = "ended"
        self.ended, self.ended_at = ended, now
        if self.settings.external:
            self._write_outcome(now)
        else:
            self._tell_end()

    def _write_outcome(self, now: float) -> None:
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

    def _see_it_out(self, now: float) -> bool:
        """Wait for the store, not too long, and for those who do not know yet; then let our own node go."""
        if not self.end_told:
            self._wake(self.ended_at + self.settings.ttl_s)
            if now >= self.ended_at + self.settings.ttl_s:
                self._tell_end()
        if self.settings.external and not self._outcome_written:
            if now >= self._write_at:
                self._write_outcome(now)
            self._wake(self._write_at)
        self._wake(self.ended_at + 2 * self.settings.ttl_s)
        if self.ended is None or self._is_farewell_said or not self.is_over(now):
            return False
        self._is_farewell_said = True
        for seat in self.seats.values():
            self._send(seat, self.ended if seat.conn == SELF else Farewell())
        return False

    def is_over(self, now: float) -> bool:
        """Tell whether nobody is left who has to hear how it ended."""
        if not self.end_told:
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
