"""Who is here: joining, renewing, leaving, and for how long a leader may decide. No clock, no sockets.

The leader stands on this. What it is told is noted here; what follows from it is decided there (`leader.py`).
"""

from __future__ import annotations

from planaria.base.value import replace
from planaria.rendezvous import placing, quorum, words
from planaria.rendezvous.messages import Ack, Ask, Join, Place, Redirect, Refused, Renew, Stop, Waiting, Welcome
from planaria.rendezvous.model import SELF, AskAround, Close, Deputy, Send, Standing
from planaria.rendezvous.roll import Roll
from planaria.rendezvous.seats import Seat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.messages import Ended, Quit, ToMember
    from planaria.rendezvous.model import Effect, Held, Settings
    from planaria.rendezvous.ranks import Candidate

PROBE_S = 0.5  # between two looks at a node whose connection ended
EARLY_PROBES_S = (0.02, 0.05, 0.1, 0.2)  # the first ones: a dying agent's connection may end before its listener does
MOST_UNECHOED = 64  # answers that a node has not shown to have got; more are remembered for nobody
MOST_STRANGERS = 64  # nodes that are remembered beyond those that are here, or have to be remembered
MOST_WISHES = 64  # nodes that wait for a place of another's
STALE_S = 0.1  # how old our idea of our own validity may be: it only grows while nothing else happens


class Attendance:
    """The nodes of one leadership. `standing` is the newest round that its node, or the store, knows of."""

    def __init__(self, settings: Settings, now: float, *, term: int, standing: Standing, held: Held) -> None:
        self.settings = settings
        self.term = term
        self.phase = "claiming" if standing.round >= 0 else "gathering"
        self.seats: dict[str, Seat] = {}
        self.roll = Roll(settings, standing, self.seats, held.heard_at)
        self._held_until = held.lease_until
        self.epoch = standing.epoch or settings.node
        self.next_round = max(standing.next_round, standing.round + 1)
        self.restart_count = standing.restart_count
        self.ended: Ended | None = None
        self.ended_at = 0.0
        self.end_told = False
        self._told_count = 0
        self.is_dirty = True
        self._conns: dict[str, Seat] = {}
        self._reason = ""
        self._quit: Quit | None = None
        self._chosen: tuple[Candidate, ...] = ()
        self._announced = standing
        self._places: dict[str, Place] = {}
        self._probe_at: dict[str, float] = {}
        self._probes: dict[str, int] = {}
        self._wishes: dict[str, float] = {}
        self._arrivals = 0
        self._last_arrival = now
        self._held = False
        self._valid: tuple[float, float] | None = None
        self._out: list[Effect] = []
        self._now = now
        self._wake_at = quorum.ALWAYS
        self._silence_at = quorum.ALWAYS

    # Validity.

    @property
    def established(self) -> bool:
        """Tell whether it has ever had enough members to decide."""
        return self.phase != "claiming"

    def is_valid(self, now: float) -> bool:
        """Tell whether it may decide, and grant leases, now."""
        return self.valid_until(now) > now

    def valid_until(self, now: float) -> float:
        """Return the end of its validity as it stands. While a round is being made, both it and the last one count."""
        if self._valid is None or now >= self._valid[0] + self._valid_for_s(now):
            until = self.roll.valid_until(now)
            if self.phase in ("placing", "starting"):
                chosen = [one.node for one in self._chosen]
                until = min(until, self.roll.valid_for(chosen, len(chosen), now))
            self._valid = now, until
        return self._valid[1]

    def _valid_for_s(self, now: float) -> float:
        """Say how long our idea of our validity is good enough: it only grows by itself, and counting costs."""
        if self._valid is not None and self._valid[1] - now > self.settings.lease_s / 2:
            return STALE_S
        return STALE_S / 2 if len(self.seats) > placing.MANY_NODES else 0.0

    def _lease_for(self, seat: Seat, now: float) -> float:
        """Return what is left to grant: a lease says that its holder knows the newest round, so it is told of it first."""
        newest = self._announced if self.phase in ("placing", "starting") else self.roll.last
        if self.phase == "claiming" or newest.round < 0 or seat.told >= (newest.term, newest.round):
            return self._left_s(now)
        if seat.join.node in self.roll.members:
            return 0.0  # it is about to be stopped for the next one
        self._places[seat.join.node] = placing.spectator_place(newest, self._reason)
        self._send(seat, self._places[seat.join.node])
        return self._left_s(now)

    def _left_s(self, now: float) -> float:
        if self.phase == "claiming":
            return 0.0
        return min(max(self.valid_until(now) - now, 0.0), self.settings.lease_s)

    def _may_shrink(self, now: float) -> bool:
        """Tell whether a proof of death may count: only for one who cannot have been left out of a newer round."""
        if self.settings.external and self.roll.tie_until > now:
            return True  # the store knows the newest round for certain
        if self.established or self.settings.external:
            return self.established and self.is_valid(now)
        own = self.seats.get(self.settings.node)
        return own is not None and not own.join.fenced and now < self._held_until

    # Joining, renewing, leaving.

    def _join(self, conn: str, join: Join, now: float) -> None:
        if join.run_id != self.settings.run_id:
            why = f"{self.settings.address} serves run {self.settings.run_id!r}, not {join.run_id!r}"
            self._out += [Send(conn, Waiting(why)), Send(conn, Redirect("", 0)), Close(conn)]  # until that is over
            return
        if self._turns_away(conn, join, now):
            return
        if self.ended is not None and join.age_s < now - self.ended_at:
            self._out += [Send(conn, Redirect("", 0)), Close(conn)]  # it came after the end: a run of its own
            return
        if self._is_of_another_run(join):
            join = replace(join, standing=Standing(), age_s=0.0)  # it waited for a place in a run that is over
        old = self.seats.pop(join.node, None)
        if old is not None:
            self._conns.pop(old.conn, None)
            self._out += [Close(old.conn)] if old.conn != conn else []
        self._wishes.pop(join.node, None)
        self._forget_strangers()
        seat = self.seats[join.node] = self._conns[conn] = Seat(conn, join, self._arrivals, now)
        self._arrivals += 1
        self._silence_at = min(self._silence_at, now + self.settings.silence_s)
        self.roll.come_back(join)
        self._learn(join, now)
        if join.node not in self.roll.members:
            self._last_arrival = now
        self._send(seat, Welcome(self.term, self.settings.node))
        self._brief(seat)
        if self.roll.has_round or self.phase in ("placing", "starting"):
            self._renew(seat, Renew(0, -1), now)  # one of thousands that know of no round needs no lease yet

    def _turns_away(self, conn: str, join: Join, now: float) -> bool:
        """Send away who cannot be here: for good, or until the node whose place it wants is known to be gone."""
        known = self._conns.get(conn)
        if known is not None and known.join.node != join.node:
            self._out.append(Close(conn))  # one connection is one node
            del self._conns[conn]
            self._unseat(known, now)
            return True
        why = words.other_rules(self.settings.rules, join.rules, self.settings.host)
        if self._is_of_another_run(join) and join.standing.ran >= 0:
            why = words.another_run(join.run_id)
        if why:
            self._out += [Send(conn, Refused(why)), Close(conn)]
            return True
        holder = self._holder_of(join)
        if holder is None or join.slot_wish is None:
            return False
        why = f"--node-rank={join.slot_wish} is taken by {holder.join.host}"
        if len(self._wishes) >= MOST_WISHES:
            self._wishes.clear()
        if holder.answered_at > self._wishes.setdefault(join.node, now):
            self._out += [Send(conn, Refused(why)), Close(conn)]  # it has been heard of since: it is alive
        else:
            self._out += [
                Send(conn, Waiting(f"{why}; waiting until it is gone")),
                Send(conn, Redirect("", 0)),
                Close(conn),
            ]
        return True

    def _forget_strangers(self) -> None:
        """Forget agents that came and went: one that is started anew again and again has another name every time."""
        if len(self.roll.addresses) > 2 * len(self.seats) + MOST_STRANGERS:
            self.roll.forget_strangers()
            self._probe_at = {node: at for node, at in self._probe_at.items() if node in self.roll.addresses}
            self._probes = {node: tries for node, tries in self._probes.items() if node in self.roll.addresses}
            self._places = {node: place for node, place in self._places.items() if node in self.roll.addresses}

    def _is_of_another_run(self, join: Join) -> bool:
        return join.standing.epoch not in ("", self.epoch) and self.roll.has_round

    def _holder_of(self, join: Join) -> Seat | None:
        """Return the other node that has the place this one wishes."""
        wish = join.slot_wish
        if wish is None:
            return None
        others = (seat for seat in self.seats.values() if seat.join.slot_wish == wish)
        return next((seat for seat in others if seat.join.node != join.node), None)

    def _learn(self, join: Join, now: float) -> None:
        """Take over what a joining node knows. Newer rounds than ours are possible only while we claim."""
        standing, roll = join.standing, self.roll
        if not self.established:
            if join.bound_term > 0:
                roll.fence_floor = max(roll.fence_floor, now - join.since_ack_s)
            if self._is_better(join):
                roll.adopt(standing)
                self.restart_count = standing.restart_count
            self._learn_of_deaths(join, now)
            self.next_round = max(self.next_round, standing.next_round, standing.round + 1)
        roll.enter(join)

    def _learn_of_deaths(self, join: Join, now: float) -> None:
        """Count the proofs of those without whom no newer round could have begun while they held the lease to gather them."""
        roll, known = self.roll, join.standing
        is_same = (known.term, known.round) == (roll.last.term, roll.last.round)
        if is_same and (known.slot is not None or join.node in roll.spares):
            concerned = {*roll.members, *roll.base, *roll.spares}
            roll.gone |= set(join.gone) & concerned
            roll.dead = {node: now for node in join.dead if node in concerned and node not in self.seats} | roll.dead

    def _is_better(self, join: Join) -> bool:
        """Tell whether a node's newest round, and not ours, is the last that can have started."""
        theirs, ours = join.standing, self.roll.last
        if (theirs.term, theirs.round) > (ours.term, ours.round):
            return theirs.ran >= theirs.round or not any(
                _shows_no_start(seat.join, theirs) for seat in self.seats.values()
            )
        return theirs.round >= 0 and _shows_no_start(join, ours)

    def _brief(self, seat: Seat) -> None:
        """Tell a node that has just joined what it missed."""
        node, roll = seat.join.node, self.roll
        if self.ended is not None:
            if self.end_told and seat.conn != SELF:
                self._send(seat, self.ended)
                self._told_count += 1
        elif self.phase in ("placing", "starting") and node in self._places:
            self._send(seat, self._places[node])
        elif self.phase in ("running", "stopping", "gathering") and roll.has_round and node not in roll.members:
            self._present_spectator(seat)
            if len(roll.members) >= self.settings.max_nodes:
                text = f"{roll.last.size} of {self.settings.max_nodes} nodes run round {roll.last.round}; waiting for a place"
                self._send(seat, Waiting(text))
        stale = seat.runs >= 0 and (node not in roll.members or seat.runs != roll.last.round)
        if stale or (self.phase == "stopping" and node in roll.members):
            at_once = Stop(self.next_round, self._reason or "the job went on without this node", 0.0)
            self._send(seat, at_once if stale else self._final_stop() or at_once)

    def _present_spectator(self, seat: Seat) -> None:
        """Tell a spectator what runs; where deputies are few, tell the others that there is one more."""
        node, last = seat.join.node, self.roll.last
        self._places[node] = placing.spectator_place(last, self._reason)
        full = len(last.deputies) >= placing.DEPUTIES or last.size > placing.MANY_NODES
        if full or any(deputy.node == node for deputy in last.deputies):
            self._send(seat, self._places[node])
            return
        deputies = (*last.deputies, Deputy(node, self.roll.addresses[node]))
        self.roll.last = replace(last, deputies=deputies)
        self.roll.spares.append(node)
        self._places = {other: replace(place, deputies=deputies) for other, place in self._places.items()}
        for other, known in self.seats.items():
            # A member that this leadership did not place itself takes the deputies only.
            place = self._places.get(other) or placing.spectator_place(self.roll.last, self._reason)
            if known.told >= (last.term, last.round) or other in self._places:
                self._send(known, place)

    def _renew(self, seat: Seat, renew: Renew, now: float) -> None:
        sent_at = seat.sent.get(renew.echo)
        if sent_at is not None:
            self.roll.note_heard(seat.join.node, sent_at)
            seat.sent = {seq: at for seq, at in seat.sent.items() if seq >= renew.echo}
        if len(seat.sent) >= MOST_UNECHOED:
            seat.sent.pop(next(iter(seat.sent)))
        seat.sent[renew.seq] = seat.answered_at = now
        left_s = self._lease_for(seat, now)
        self._send(seat, Ack(renew.seq, left_s))
        if self.phase == "claiming" or self._held:
            self._touch()

    def _leave(self, seat: Seat) -> None:
        node = seat.join.node
        self.roll.gone.add(node)
        self.seats.pop(node, None)
        self._conns.pop(seat.conn, None)
        self._out.append(Close(seat.conn))

    def _unseat(self, seat: Seat, now: float) -> None:
        node = seat.join.node
        del self.seats[node]
        self.roll.answered[node] = seat.answered_at
        self._probe_at[node] = now
        self._probes[node] = 0

    def _drop_silent(self, now: float) -> None:
        """Let go of connections on which nothing came for so long that the node is fenced."""
        if now >= self._silence_at:
            self._silence_at = quorum.ALWAYS
            for seat in list(self._conns.values()):
                due = seat.answered_at + self.settings.silence_s
                if due <= now and seat.conn != SELF:
                    self._out.append(Close(seat.conn))
                    del self._conns[seat.conn]
                    self._unseat(seat, now)
                elif seat.conn != SELF:
                    self._silence_at = min(self._silence_at, due)
        self._wake(self._silence_at)

    # Looking for those who are not here.

    def _probe(self, now: float) -> None:
        """Look after members that are not here: one whose address refuses us is dead."""
        spares = self.roll.spares_away() if self.phase in ("gathering", "ended") else []
        for node in [*self.roll.missing(), *self.roll.announced_and_away(), *spares]:
            due = self._probe_at.get(node, now)
            if due <= now:
                tries = self._probes.get(node, 0)
                self._probes[node] = tries + 1
                self._probe_at[node] = due = now + (*EARLY_PROBES_S, PROBE_S)[min(tries, len(EARLY_PROBES_S))]
                self._out.append(AskAround(self.roll.addresses[node], self.ask(now)))
            self._wake(due)

    def ask(self, now: float) -> Ask:
        """Return the question who leads; it says that we do, if we may."""
        own = self.settings
        known = own.address if self.ended is None else ""
        valid = self.established and self.ended is None and self.is_valid(now)
        return Ask(own.run_id, own.node, known, self.term, self.roll.last.round, valid)

    # Going.

    def hand_over(self) -> list[Effect]:
        """Say goodbye as a leader: name a successor to everybody, and say that our own node is gone."""
        own = self.settings.node
        line = [deputy.node for deputy in self.roll.last.deputies] + list(self.seats)
        heir = next((node for node in line if node in self.seats and node != own), None)
        return self.resign(self.roll.addresses[heir] if heir is not None else "", self.term, gone=own)

    def resign(self, address: str, term: int, gone: str = "") -> list[Effect]:
        """Send everybody to another leader, or (no address) to look for one."""
        last_words = (*((order,) if (order := self._final_stop()) else ()), Redirect(address, term, gone))
        out: list[Effect] = []
        for seat in self.seats.values():
            if seat.conn != SELF:
                out += [*(Send(seat.conn, message) for message in last_words), Close(seat.conn)]
        return out

    def _final_stop(self) -> Stop | None:
        """Return what to tell those who have to go on without us if an owner wants the end and it has not come yet."""
        if self._quit is None or self.ended is not None:
            return None
        return Stop(self.next_round, self._quit.reason, self._quit.grace_s, final=True)

    # Small things.

    def take_orders(self) -> list[Effect]:
        """Return what events alone have ordered: answers that need no decision."""
        out, self._out = self._out, []
        return out

    def _touch(self) -> None:
        self.is_dirty = True

    def _send(self, seat: Seat, message: ToMember) -> None:
        if isinstance(message, Place):
            seat.told = message.term, message.round
        self._out.append(Send(seat.conn, message))

    def _wake(self, when: float) -> None:
        """Look again at this moment; one that has passed has been looked at."""
        if self._now < when < self._wake_at:
            self._wake_at = when


def _shows_no_start(join: Join, standing: Standing) -> bool:
    """Tell whether a node proves that a round never started, and never will: it is in it, and was not told of it."""
    older = (join.standing.term, join.standing.round) < (standing.term, standing.round)
    return older and any(join.node == deputy.node for deputy in standing.deputies[: standing.size])
