"""Who is here: joining, renewing, leaving. No clock, no sockets.

What a leader is told of comings and goings is noted here; what follows from it is decided elsewhere (`leader.py`).
"""

from __future__ import annotations

from planaria.base.value import replace
from planaria.contract.burial import pod_of
from planaria.rendezvous import placing, quorum, testimony, words
from planaria.rendezvous.messages import Ack, Redirect, Refused, Renew, Stop, Waiting, Welcome
from planaria.rendezvous.model import SELF, AskAround, Close, Deputy, Say, Send, Standing
from planaria.rendezvous.probes import Probes
from planaria.rendezvous.seats import Seat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.ending import Ending
    from planaria.rendezvous.messages import Join
    from planaria.rendezvous.office import Office

MOST_UNECHOED = 64  # answers that a node has not shown to have got; more are remembered for nobody
MOST_STRANGERS = 64  # nodes that are remembered beyond those that are here, or have to be remembered
MOST_WISHES = 64  # nodes that wait for a place of another's


class Attendance:
    """Notes in an office who is here, and over which connection (`conns`)."""

    def __init__(self, office: Office, ending: Ending) -> None:
        self._office = office
        self._ending = ending
        self._orders, self._roll, self._settings = office.orders, office.roll, office.settings
        self._seats = office.seats
        self.conns: dict[str, Seat] = {}
        self._probes = Probes()
        self._wishes: dict[str, float] = {}
        self._arrivals = 0
        self._silence_at = quorum.ALWAYS

    # Joining, renewing, leaving.

    def turns_away(self, conn: str, join: Join, now: float) -> bool:
        """Send a node away that is of another run, comes after the end, or cannot be here; return whether it was."""
        if join.run_id != self._settings.run_id:
            why = f"{self._settings.address} serves run {self._settings.run_id!r}, not {join.run_id!r}"
            self._orders.add(Send(conn, Waiting(why)), Send(conn, Redirect("", 0)), Close(conn))  # until that is over
            return True
        if self._refuses(conn, join, now):
            return True
        if self._office.ended is not None and join.age_s < now - self._office.ended_at:
            self._orders.add(Send(conn, Redirect("", 0)), Close(conn))  # it came after the end: a run of its own
            return True
        if join.standing.epoch == self._office.over != "":
            self._orders.add(Send(conn, Redirect("", 0)), Close(conn))  # the store is about to tell it how that ended
            return True
        return False

    def join(self, conn: str, join: Join, now: float) -> None:
        """Take a node in that was not turned away."""
        if self._is_of_another_run(join):
            join = replace(join, standing=Standing(), age_s=0.0)  # it waited for a place in a run that is over
        old = self._seats.pop(join.node, None)
        if old is not None:
            self.conns.pop(old.conn, None)
            if old.conn != conn:
                self._orders.add(Close(old.conn))
        self._wishes.pop(join.node, None)
        self._forget_strangers()
        seat = self._seats[join.node] = self.conns[conn] = Seat(conn, join, self._arrivals, now)
        self._arrivals += 1
        self._silence_at = min(self._silence_at, now + self._settings.silence_s)
        self._roll.come_back(join)
        testimony.take(self._office, join, now)
        if join.node not in self._roll.members:
            self._office.last_arrival = now
        self._orders.send(seat, Welcome(self._office.term, self._settings.node))
        self._brief(seat)
        if self._roll.has_round or self._office.is_making:
            self.renew(seat, Renew(0, -1), now)  # one of thousands that know of no round needs no lease yet

    def _refuses(self, conn: str, join: Join, now: float) -> bool:
        """Send away who cannot be here: for good, or until the node whose place it wants is known to be gone."""
        known = self.conns.get(conn)
        if known is not None and known.join.node != join.node:
            self._orders.add(Close(conn))  # one connection is one node
            del self.conns[conn]
            self.unseat(known, now)
            return True
        why = words.other_rules(self._settings.rules, join.rules, self._settings.host)
        if self._is_of_another_run(join) and join.standing.ran >= 0:
            why = words.another_run(join.run_id)
        if why:
            self._orders.add(Send(conn, Refused(why)), Close(conn))
            return True
        holder = self._holder_of(join)
        if holder is None or join.slot_wish is None:
            return False
        why = f"--node-rank={join.slot_wish} is taken by {holder.join.host}"
        if len(self._wishes) >= MOST_WISHES:
            self._wishes.clear()
        if holder.answered_at > self._wishes.setdefault(join.node, now):
            self._orders.add(Send(conn, Refused(why)), Close(conn))  # it has been heard of since: it is alive
        else:
            waits = Waiting(f"{why}; waiting until it is gone")
            self._orders.add(Send(conn, waits), Send(conn, Redirect("", 0)), Close(conn))
        return True

    def _forget_strangers(self) -> None:
        """Forget agents that came and went: one that is started anew again and again has another name every time."""
        if len(self._roll.addresses) > 2 * len(self._seats) + MOST_STRANGERS:
            self._roll.forget_strangers()
            kept, places = self._roll.addresses, self._office.places
            self._probes.keep(kept)
            self._office.places = {node: place for node, place in places.items() if node in kept}

    def _is_of_another_run(self, join: Join) -> bool:
        return join.standing.epoch not in ("", self._office.epoch) and self._roll.has_round

    def _holder_of(self, join: Join) -> Seat | None:
        """Return the other node that has the place this one wishes."""
        wish = join.slot_wish
        if wish is None:
            return None
        others = (seat for seat in self._seats.values() if seat.join.slot_wish == wish)
        return next((seat for seat in others if seat.join.node != join.node), None)

    def _brief(self, seat: Seat) -> None:
        """Tell a node that has just joined what it missed."""
        node, roll = seat.join.node, self._roll
        if self._office.ended is not None:
            self._ending.tell(seat)
        elif self._office.is_making and node in self._office.places:
            self._orders.send(seat, self._office.places[node])
        elif self._office.phase in ("running", "stopping", "gathering") and roll.has_round and node not in roll.members:
            self._present_spectator(seat)
            if len(roll.members) >= self._settings.max_nodes:
                text = f"{roll.last.size} of {self._settings.max_nodes} nodes run round {roll.last.round}; waiting for a place"
                self._orders.send(seat, Waiting(text))
        stale = seat.runs >= 0 and (node not in roll.members or seat.runs != roll.last.round)
        if stale or (self._office.phase == "stopping" and node in roll.members):
            at_once = Stop(self._office.next_round, self._office.reason or "the job went on without this node", 0.0)
            self._orders.send(seat, at_once if stale else self._office.final_stop() or at_once)

    def _present_spectator(self, seat: Seat) -> None:
        """Tell a spectator what runs; where deputies are few, tell the others that there is one more."""
        node, last = seat.join.node, self._roll.last
        self._office.places[node] = placing.spectator_place(last, self._office.reason)
        full = len(last.deputies) >= placing.DEPUTIES or last.size > placing.MANY_NODES
        if full or any(deputy.node == node for deputy in last.deputies):
            self._orders.send(seat, self._office.places[node])
            return
        deputies = (*last.deputies, Deputy(node, self._roll.addresses[node]))
        self._roll.last = replace(last, deputies=deputies)
        self._roll.spares.append(node)
        self._office.places = {other: replace(place, deputies=deputies) for other, place in self._office.places.items()}
        for other, known in self._seats.items():
            # A member that this leadership did not place itself takes the deputies only.
            place = self._office.places.get(other) or placing.spectator_place(self._roll.last, self._office.reason)
            if known.told >= (last.term, last.round) or other in self._office.places:
                self._orders.send(known, place)

    def renew(self, seat: Seat, renew: Renew, now: float) -> None:
        """Answer a renewal with what may be granted."""
        sent_at = seat.sent.get(renew.echo)
        if sent_at is not None:
            self._roll.note_heard(seat.join.node, sent_at)
            seat.sent = {seq: at for seq, at in seat.sent.items() if seq >= renew.echo}
        if len(seat.sent) >= MOST_UNECHOED:
            seat.sent.pop(next(iter(seat.sent)))
        seat.sent[renew.seq] = seat.answered_at = now
        left_s = self._lease_for(seat, now)
        self._orders.send(seat, Ack(renew.seq, left_s))
        if self._office.phase == "claiming" or self._office.is_holding:
            self._orders.touch()

    def _lease_for(self, seat: Seat, now: float) -> float:
        """Return what is left to grant: a lease says that its holder knows the newest round, so it is told of it first."""
        newest = self._office.announced if self._office.is_making else self._roll.last
        if self._office.phase == "claiming" or newest.round < 0 or seat.told >= (newest.term, newest.round):
            return self._office.left_s(now)
        if seat.join.node in self._roll.members:
            return 0.0  # it is about to be stopped for the next one
        self._office.places[seat.join.node] = placing.spectator_place(newest, self._office.reason)
        self._orders.send(seat, self._office.places[seat.join.node])
        return self._office.left_s(now)

    def leave(self, seat: Seat) -> None:
        """Take a node's goodbye."""
        node = seat.join.node
        self._roll.gone[node] = quorum.NEVER  # it held to us, so it counted for nobody else since it came
        self._seats.pop(node, None)
        self.conns.pop(seat.conn, None)
        self._orders.add(Close(seat.conn))

    def unseat(self, seat: Seat, now: float) -> None:
        """Note that a node is not here any more, and look after it."""
        node = seat.join.node
        del self._seats[node]
        self._roll.answered[node] = seat.answered_at
        self._probes.miss(node, now)

    def drop_silent(self, now: float) -> None:
        """Let go of connections on which nothing came for so long that the node is fenced."""
        if now >= self._silence_at:
            self._silence_at = quorum.ALWAYS
            for seat in list(self.conns.values()):
                due = seat.answered_at + self._settings.silence_s
                if due <= now and seat.conn != SELF:
                    self._orders.add(Close(seat.conn))
                    del self.conns[seat.conn]
                    self.unseat(seat, now)
                elif seat.conn != SELF:
                    self._silence_at = min(self._silence_at, due)
        self._orders.wake(self._silence_at)

    # Looking for those who are not here.

    def probe(self, now: float) -> None:
        """Look after members that are not here: one whose address refuses us is dead."""
        spares = self._roll.spares_away() if self._office.phase in ("gathering", "ended") else []
        for node in [*self._roll.missing(), *self._roll.announced_and_away(), *spares]:
            is_due, again_at = self._probes.look(node, now)
            if is_due:
                self._orders.add(AskAround(self._roll.addresses[node], self._office.ask(now)))
            self._orders.wake(again_at)

    def bury(self, now: float) -> None:
        """Count those as dead of whom a cluster says that they are gone, once they would be fenced if they were only silent."""
        office, roll = self._office, self._roll
        for node in sorted((office.buried & roll.addresses.keys()) | self._followed()):
            if node in self._seats or node in roll.dead or node in roll.gone:
                continue
            fenced_at = max(roll.fenced_at(node, roll.fence_floor), office.began_at + self._settings.silence_s)
            if now < fenced_at:
                self._orders.wake(fenced_at)
            elif office.may_shrink(now):
                roll.dead[node] = now
                office.count_anew()
                if node in roll.members:
                    self._orders.add(Say(words.buried(roll.name(node))))

    def _followed(self) -> set[str]:
        """Return the members in whose pod another agent runs by now: a pod is on one machine, and has one agent at a time.

        A machine that was started anew gives its pods other addresses, so nobody refuses a connection at the old ones.
        """
        missing = {node for node in self._roll.missing() if pod_of(node)}
        here = {node.rpartition(".")[0] for node in self._seats if pod_of(node)} if missing else set()
        return {node for node in missing if node.rpartition(".")[0] in here}
