"""What one leadership knows, and for how long it may decide. No clock, no sockets.

The parts of a leader share this and nothing else: `attendance.py` notes who is here, `losses.py` who of the last round can
still have workers, `gathering.py` says when the next round opens, `making.py` announces and starts it, `ending.py` ends the
run, `leader.py` decides which of them is next.
"""

from __future__ import annotations

from planaria.rendezvous import placing
from planaria.rendezvous.messages import Ask, Stop
from planaria.rendezvous.orders import Orders
from planaria.rendezvous.roll import Roll

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.messages import Ended, Place, Quit
    from planaria.rendezvous.model import Held, Settings, Standing
    from planaria.rendezvous.ranks import Candidate
    from planaria.rendezvous.seats import Seat


STALE_S = 0.1  # how old our idea of our own validity may be: it only grows while nothing else happens


def term_above(revision: int, known: int) -> int:
    """Return a term for who wrote the leader key with this revision, above one that was: a store set up anew begins low."""
    return revision if revision >= known else known + revision


class Office:
    """The facts of one leadership. `standing` is the newest round that its node, or the store, knows of.

    `chosen`, `announced` and `places` are those of the round that is being made, or of the last one. `reason` is why it
    was made, `quit` what an owner wants. `is_holding`: people were told that there is no majority to go on with. `buried`
    are said to be gone for good, by whoever runs their machines. `over` is the epoch of the run before, if that has ended.
    `withdrawn`: a round that nobody waits for is being written: one that was given up meanwhile, or the one that runs,
    again, into a store that was emptied. No other is written before the store has said what came of that.
    """

    def __init__(self, settings: Settings, now: float, *, term: int, standing: Standing, held: Held) -> None:
        self.settings = settings
        self.term = term
        self.began_at = now
        self.phase = "claiming" if standing.size > 0 else "gathering"  # nobody of a round that was vacated is left
        self.orders = Orders(now)
        self.seats: dict[str, Seat] = {}
        self.roll = Roll(settings, standing, self.seats, held.heard_at)
        self.epoch = standing.epoch or settings.node
        self.next_round = max(standing.next_round, standing.round + 1)
        self.restart_count = standing.restart_count
        self.last_arrival = now
        self.reason = ""
        self.quit: Quit | None = None
        self.is_holding = False
        self.buried: frozenset[str] = frozenset()
        self.over = ""
        self.chosen: tuple[Candidate, ...] = ()
        self.announced = standing
        self.places: dict[str, Place] = {}
        self.withdrawn = False
        self.ended: Ended | None = None
        self.ended_at = 0.0
        self._held_until = held.lease_until
        self._valid: tuple[float, float] | None = None

    @property
    def established(self) -> bool:
        """Tell whether it has ever had enough members to decide."""
        return self.phase != "claiming"

    @property
    def is_founding(self) -> bool:
        """Tell whether it is about to open the first round of a run, as far as it and the store know."""
        return self.settings.external and self.established and not self.roll.has_round and self.ended is None

    @property
    def is_making(self) -> bool:
        """Tell whether a round was announced and has not started."""
        return self.phase in ("placing", "starting")

    def yield_to(self, standing: Standing) -> None:
        """Give up the run that we were about to begin: there is one already, which the store has forgotten."""
        self.withdrawn |= self.phase == "starting"
        self.phase, self.epoch = "claiming", standing.epoch
        self.places, self.chosen = {}, ()
        self.roll.announced = []
        self.adopt(standing)

    def adopt(self, standing: Standing) -> None:
        """Begin with another round than ours, which turned out to be the last that can have started."""
        self.roll.adopt(standing)
        self.restart_count = standing.restart_count
        self.count_anew()

    # Validity.

    def is_valid(self, now: float) -> bool:
        """Tell whether it may decide, and grant leases, now."""
        return self.valid_until(now) > now

    def valid_until(self, now: float) -> float:
        """Return the end of its validity as it stands. While a round is being made, both it and the last one count."""
        if self._valid is None or now >= self._valid[0] + self._valid_for_s(now):
            until = self.roll.valid_until(now)
            if self.is_making:
                chosen = [one.node for one in self.chosen]
                until = min(until, self.roll.valid_for(chosen, len(chosen), now))
            self._valid = now, until
        return self._valid[1]

    def count_anew(self) -> None:
        """Forget our idea of our validity: what it was made of has changed."""
        self._valid = None

    def _valid_for_s(self, now: float) -> float:
        """Say how long our idea of our validity is good enough: it only grows by itself, and counting costs."""
        if self._valid is not None and self._valid[1] - now > self.settings.lease_s / 2:
            return STALE_S
        return STALE_S / 2 if len(self.seats) > placing.MANY_NODES else 0.0

    def left_s(self, now: float) -> float:
        """Return how long a lease may be that is granted now."""
        if self.phase == "claiming":
            return 0.0
        return min(max(self.valid_until(now) - now, 0.0), self.settings.lease_s)

    def may_shrink(self, now: float) -> bool:
        """Tell whether a proof of death may count: only for one who cannot have been left out of a newer round."""
        if self.settings.external and self.roll.tie_until > now:
            return True  # the store knows the newest round for certain
        if self.established or self.roll.is_stored:
            return self.established and self.is_valid(now)
        own = self.seats.get(self.settings.node)
        return own is not None and not own.join.fenced and now < self._held_until

    # What it tells others about itself.

    @property
    def begun_round(self) -> int:
        """Return the number of the last round that began; one that has only been announced is none, unless it was the first."""
        last = self.roll.last
        return last.round if self.roll.is_started or last.has_begun else min(last.round, max(last.begun, 0))

    def ask(self, now: float, vote: int = 0) -> Ask:
        """Return the question who leads; it says that we do, if we may. `vote`: what keeps us from one that does."""
        own = self.settings
        known = own.address if self.ended is None else ""
        valid = self.established and self.ended is None and self.is_valid(now)
        number = self.begun_round if valid else self.roll.last.round
        return Ask(own.run_id, own.node, known, self.term, number, valid, vote=0 if valid else vote)

    def final_stop(self) -> Stop | None:
        """Return what to tell those who have to go on without us if an owner wants the end and it has not come yet."""
        if self.quit is None or self.ended is not None:
            return None
        return Stop(self.next_round, self.quit.reason, self.quit.grace_s, final=True)
