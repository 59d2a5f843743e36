"""What one node does at its place: its workers, how their round ended here, and the lease they live on. No clock."""

from __future__ import annotations

from planaria.base.value import replace
from planaria.rendezvous.messages import Done, Failed, Stopped
from planaria.rendezvous.model import Fence, KillWorkers, Standing, StartWorkers, StopWorkers
from planaria.rendezvous.quorum import ALWAYS, NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.rendezvous.messages import Place, Stop, ToLeader
    from planaria.rendezvous.model import Effect, Settings, WorkersFailed


class Post:
    """`workers`: idle, running, stopping. `order` takes effects, `send` what the leader has to hear, if there is one."""

    def __init__(
        self, settings: Settings, order: Callable[[Effect], object], send: Callable[[ToLeader], object]
    ) -> None:
        self._settings = settings
        self._order = order
        self._send = send
        self.standing = Standing()
        self.workers = "idle"
        self.fenced = False
        self.lease_until = NEVER
        self.port = 0
        self.placed_at = NEVER
        self._place: Place | None = None
        self._stop_for = -1
        self._failures: WorkersFailed | None = None
        self._is_done = False
        self._fence: float | None = None

    @property
    def has_place(self) -> bool:
        """Tell whether there is anything that a lapsed lease could cost: a place, or a vote about one."""
        return self.standing.slot is not None or self.standing.in_base or self.workers != "idle"

    @property
    def state(self) -> str:
        """Return what the workers do, or how they ended."""
        if self.workers == "idle" and self._is_done:
            return "done"
        return "failed" if self.workers == "idle" and self._failures is not None else self.workers

    # A place in a round.

    def is_past(self, place: Place) -> bool:
        """Tell whether we know of something newer in the same run."""
        known = self.standing
        return place.epoch == known.epoch and (place.term, place.round) < (known.term, known.round)

    def has_taken(self, place: Place) -> bool:
        """Tell whether it is the place we have: it is announced again when a spectator came, or when we came back."""
        known = self.standing
        here, there = (known.epoch, known.term, known.round), (place.epoch, place.term, place.round)
        return here == there and self._place is not None

    def take_again(self, place: Place, now: float) -> None:
        """Note who else knows of our place now."""
        self.standing = replace(self.standing, deputies=place.deputies, begun=max(self.standing.begun, place.begun))
        self.placed_at = now

    def take(self, place: Place, now: float) -> None:
        """Begin a round that was announced; how the one before ended is no news any more."""
        known = self.standing
        self._place = place
        # One who was in a round without a word that it had started learns here that it has.
        was_in = known.round == place.begun and place.in_base and known.slot is not None
        home, ran = (known.slot, known.round) if was_in else (known.home, known.ran)
        if known.epoch != place.epoch:
            home, ran = None, -1
        self.standing = Standing(
            epoch=place.epoch,
            term=place.term,
            round=place.round,
            size=place.size,
            slot=place.slot,
            restart_count=place.restart_count,
            deputies=place.deputies,
            next_round=max(known.next_round, place.round + 1),
            home=home,
            ran=ran,
            base=place.base,
            in_base=place.in_base,
            begun=place.begun,
            keeps=place.keeps,
            without=place.without,
        )
        self._failures, self._is_done = None, False
        self.placed_at = now

    # Workers.

    def start(self, number: int, left_s: float, now: float) -> None:
        """Start the workers of the place that we have, if it is in this round."""
        place = self._place
        if place is None or place.round != number or place.slot is None or self.workers != "idle":
            return
        self.extend(self.placed_at + min(left_s, self._settings.lease_s))
        if self.is_lapsed(now):  # the order was late: a node without a lease starts nothing
            self._send(Stopped(number + 1, self.port, fenced=True))
            return
        self.workers = "running"
        self.standing = replace(self.standing, home=place.slot, ran=place.round, begun=place.round)
        self.fenced = False
        self._stop_for = -1
        self._set_fence()
        self._order(StartWorkers(place))

    def stop(self, order: Stop) -> None:
        """Stop the workers for the round that comes."""
        self._stop_for = max(self._stop_for, order.round)
        self.standing = replace(self.standing, next_round=max(self.standing.next_round, order.round))
        if self.workers == "running" or (self.workers == "stopping" and order.final):  # there may be less time now
            self.workers = "stopping"
            self._order(StopWorkers(order.round, order.reason, order.grace_s))
        else:
            self.repeat_stopped()

    def stopped(self, port: int) -> None:
        """Note that no worker is alive."""
        self.workers = "idle"
        self.port = port
        self._set_fence()
        if self.fenced:
            self._stop_for = max(self._stop_for, self.standing.next_round)
        self.repeat_stopped()

    def repeat_stopped(self) -> None:
        """Say that no worker is alive, if that is so and somebody asked for it."""
        if self._stop_for >= 0 and self.workers == "idle":
            self._send(Stopped(self._stop_for, self.port, self.fenced))

    def failed(self, event: WorkersFailed, now: float) -> None:
        """Report failures of our own."""
        self._failures = event
        self.report(now)

    def done(self, now: float) -> None:
        """Report that our workers are done."""
        self._is_done = True
        self.report(now)

    def report(self, now: float) -> None:
        """Say how the round ended here, if it did."""
        if self._is_done:
            self._send(Done(self.standing.round))
        elif self._failures is not None:
            what = self._failures
            ages = tuple(now - at for at in what.at)
            self._send(Failed(self.standing.round, what.failures, ages, what.names_peer, what.free, what.why))

    # The lease.

    def is_fresh(self, now: float) -> bool:
        """Tell whether this node has been in touch all the time, so that no newer round can have left it out."""
        return self.standing.round < 0 or now < self.lease_until

    def is_lapsed(self, now: float) -> bool:
        """Tell whether a lease that this node once had is over."""
        return self.standing.size > 1 and now >= self.lease_until

    def extend(self, lease_until: float) -> None:
        """Let the workers live until then, if that is later."""
        self.lease_until = max(self.lease_until, lease_until)
        self._set_fence()

    def fence_if_due(self, now: float) -> None:
        """Kill the workers whose lease is over."""
        if self.workers != "idle" and self.is_lapsed(now) and not self.fenced:
            self.fenced = True
            self.workers = "stopping"
            self._order(
                KillWorkers(f"no leader answered for {self._settings.lease_s:g} s, so others may go on without us")
            )
        elif self.workers == "idle" and self.standing.slot is not None and self.is_lapsed(now):
            self.fenced = True

    def wakes_at(self) -> float:
        """Return when `fence_if_due` should be asked again."""
        return self.lease_until if self.workers != "idle" and self.standing.size > 1 and not self.fenced else ALWAYS

    def _set_fence(self) -> None:
        wanted = self.lease_until if self.workers != "idle" and self.standing.size > 1 else None
        if wanted != self._fence:
            self._fence = wanted
            self._order(Fence(wanted))

    def clear_fence(self) -> None:
        """Let nobody wait for the workers to be dead: the run is over for this node."""
        if self._fence is not None:
            self._fence = None
            self._order(Fence(None))
