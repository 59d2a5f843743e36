"""The leader's decisions: who is in the next round, when it starts, how the run ends. No clock, no sockets.

    claiming -> running                           enough members of the last round hold to this leader
    gathering -> placing -> [starting] -> running enough nodes are here; all know the round; the store, if any, does too
    running -> stopping -> gathering              a failure, a loss, a goodbye, an arrival
    any -> ended                                  done, failed for good, or nobody came in time

Everything is decided again from the facts once a turn (`advance`), so no fact is lost by coming at a bad moment.
"""

from __future__ import annotations

from planaria.base.value import replace
from planaria.rendezvous import placing, quorum, verdict
from planaria.rendezvous.keys import outcome_record, round_record
from planaria.rendezvous.model import (
    SELF,
    Ack,
    Ask,
    AskAround,
    Close,
    Departing,
    Deputy,
    Done,
    Ended,
    Failed,
    Farewell,
    Heard,
    Join,
    Leave,
    Placed,
    Redirect,
    Refused,
    Renew,
    Say,
    Send,
    Standing,
    Start,
    Stop,
    Stopped,
    Waiting,
    Welcome,
    WriteKey,
)
from planaria.rendezvous.ranks import Candidate, arrange, choose
from planaria.rendezvous.roll import DEAD_S, Roll
from planaria.rendezvous.seats import Seat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from planaria.rendezvous.model import Answered, Effect, Place, Settings, ToLeader, ToMember

PROBE_S = 0.5  # between two looks at a node whose connection ended
EARLY_PROBES_S = (0.02, 0.05, 0.1, 0.2)  # the first ones: a dying agent's connection may end before its listener does
FOUND_S = 0.2  # how long an older world has to object to a first round; its leader asks here every MEET_S
PATIENCE_TTLS = 12  # how long a leader stays for a store that is away, so that those who are away hear of the end
TELL_S = 0.5  # between two lines about what we wait for
STALE_S = 0.1  # how old our idea of our own validity may be: it only grows while nothing else happens


class Leader:
    """One leadership. `standing` is the newest round that its node, or the store, knows of."""

    def __init__(self, settings: Settings, now: float, *, term: int, standing: Standing, since_ack_s: float) -> None:
        self.settings = settings
        self.term = term
        self.phase = "claiming" if standing.round >= 0 else "gathering"
        self.seats: dict[str, Seat] = {}
        self.roll = Roll(settings, standing, self.seats, now - since_ack_s)
        self.epoch = standing.epoch or settings.node
        self.next_round = max(standing.next_round, standing.round + 1)
        self.restart_count = standing.restart_count
        self.round_revision = 0
        self.ended: Ended | None = None
        self.ended_at = 0.0
        self.end_told = False
        self._is_farewell_said = False
        self._outcome_written = False
        self._write_at = quorum.ALWAYS
        self.is_dirty = True
        self._conns: dict[str, Seat] = {}
        self._reason = ""
        self._failed: list[tuple[Failed, Join, float]] = []
        self._for_failure = False
        self._lost_one = False
        self._chosen: tuple[Candidate, ...] = ()
        self._base: frozenset[str] = frozenset()
        self._places: dict[str, Place] = {}
        self._placed_at = now
        self._probe_at: dict[str, float] = {}
        self._probes: dict[str, int] = {}
        self._arrivals = 0
        self._last_arrival = now
        self._began_at = now
        self._waits = standing.round < 0
        self._held = False
        self._told = ""
        self._told_at = quorum.NEVER
        self._valid: tuple[float, float] | None = None
        self._out: list[Effect] = []
        self._now = now
        self._wake_at = quorum.ALWAYS
        self._silence_at = quorum.ALWAYS

    # What happens to it.

    def received(self, conn: str, message: ToLeader, now: float) -> None:
        """Take a node's message; whoever has not joined is not heard."""
        seat = self._conns.get(conn)
        if isinstance(message, Join):
            self._join(conn, message, now)
            self._touch()
        elif seat is not None and isinstance(message, Renew):
            self._renew(seat, message, now)
        elif seat is not None:
            self._touch()
            self._told_by(seat, message, now)
        else:
            self._out.append(Close(conn))  # who has not joined has nothing to say

    def _told_by(self, seat: Seat, message: ToLeader, now: float) -> None:
        match message:
            case Stopped(number, port, fenced):
                seat.runs, seat.stopped_for, seat.port = -1, max(seat.stopped_for, number), port
                self._lost_one |= fenced and seat.join.node in self.roll.members
            case Placed(number):
                self._note_placed(seat, number)
            case Failed():
                self._note_failed(seat, message, now)
            case Done(number):
                seat.runs, seat.done = -1, number
            case Departing():
                seat.departing = True
            case Leave():
                self._leave(seat)
            case Heard():
                seat.knows_end = True

    def lost(self, conn: str, now: float) -> None:
        """Note that a connection ended. That alone proves nothing."""
        seat = self._conns.pop(conn, None)
        if seat is not None:
            self._unseat(seat, now)
            self._touch()

    def answered_probe(self, answer: Answered, now: float) -> None:
        """Take the answer of a node whose connection ended: nobody, or somebody else, listens there: it is dead."""
        for node, address in self.roll.addresses.items():
            if address != answer.address or node in self.seats or node in self.roll.dead:
                continue
            another = answer.leads is not None and answer.leads.node != node
            if (answer.refused or another) and self._may_shrink(now):
                self.roll.dead[node] = now
                self._touch()

    def round_written(self, revision: int, now: float) -> None:
        """Go on with a round that the store has taken."""
        self.round_revision = revision
        self._touch()
        if self.phase != "starting":
            return
        if any(one.node not in self.seats for one in self._chosen):
            self._place_again()
        elif any(self.seats[one.node].placed < self.next_round for one in self._chosen):
            self.phase = "placing"  # one came back over a new connection, and has to be told again
        else:
            self._start(now)

    def outcome_written(self) -> None:
        """Tell everybody how it ended, now that the store will tell those who are away."""
        self._outcome_written = True
        self._touch()
        if self.ended is not None and not self.end_told:
            self._tell_end()

    def take_orders(self) -> list[Effect]:
        """Return what events alone have ordered: answers that need no decision."""
        out, self._out = self._out, []
        return out

    def advance(self, now: float) -> tuple[list[Effect], float]:
        """Decide what follows from what is known; return the orders and when to look again."""
        self.is_dirty = False
        self._valid = None
        self._now, self._wake_at = now, quorum.ALWAYS
        self._drop_silent(now)
        while self._step(now):
            self._valid = None
        return self.take_orders(), self._wake_at

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

    def _left_s(self, now: float) -> float:
        if self.phase == "claiming":
            return 0.0
        return min(max(self.valid_until(now) - now, 0.0), self.settings.lease_s)

    def _may_shrink(self, now: float) -> bool:
        """Tell whether a proof of death may count: only for one who cannot have been left out of a newer round."""
        if self.established:
            return self.is_valid(now)
        if self.settings.external:
            return self.roll.tie_until > now  # the store knows the newest round for certain
        own = self.seats.get(self.settings.node)
        return own is not None and not own.join.fenced and now < self.roll.fence_floor + self.settings.lease_s

    # Joining, renewing, leaving.

    def _join(self, conn: str, join: Join, now: float) -> None:
        if join.run_id != self.settings.run_id:
            why = f"{self.settings.address} serves run {self.settings.run_id!r}, not {join.run_id!r}"
            self._out += [Send(conn, Waiting(why)), Send(conn, Redirect("", 0)), Close(conn)]  # until that is over
            return
        why = self._refusal(join)
        if why:
            self._out += [Send(conn, Refused(why)), Close(conn)]
            return
        if self.ended is not None and join.age_s < now - self.ended_at:
            self._out += [Send(conn, Redirect("", 0)), Close(conn)]  # it came after the end: a run of its own
            return
        old = self.seats.pop(join.node, None)
        if old is not None:
            self._conns.pop(old.conn, None)
            self._out.append(Close(old.conn))
        seat = self.seats[join.node] = self._conns[conn] = Seat(conn, join, self._arrivals, now)
        self._arrivals += 1
        self._silence_at = min(self._silence_at, now + self.settings.silence_s)
        self.roll.come_back(join)
        self._learn(join, now)
        if join.node not in self.roll.members:
            self._last_arrival = now
        self._send(seat, Welcome(self.term, self.settings.node))
        self._brief(seat)

    def _refusal(self, join: Join) -> str:
        if join.standing.epoch and self.roll.has_round and join.standing.epoch != self.epoch:
            return f"run {join.run_id!r} that this node was in is over; another with the same id has begun"
        if join.slot_wish is None:
            return ""
        rivals = (seat.join for seat in self.seats.values() if seat.join.slot_wish == join.slot_wish)
        holder = next((rival for rival in rivals if rival.node != join.node), None)
        return f"node rank {join.slot_wish} is taken by {holder.host}" if holder is not None else ""

    def _learn(self, join: Join, now: float) -> None:
        """Take over what a joining node knows. Newer rounds than ours are possible only while we claim."""
        standing, roll = join.standing, self.roll
        if not self.established:
            if join.bound_term > 0:
                roll.fence_floor = max(roll.fence_floor, now - join.since_ack_s)
            if self._is_better(join):
                roll.adopt(standing)
                self.epoch = standing.epoch or self.epoch
                self.restart_count = standing.restart_count
            if not join.fenced:
                roll.gone |= set(join.gone) & roll.members.keys()
                roll.dead = {
                    node: now for node in join.dead if node in roll.members and node not in self.seats
                } | roll.dead
            self.next_round = max(self.next_round, standing.next_round, standing.round + 1)
        roll.enter(join)

    def _is_better(self, join: Join) -> bool:
        """Tell whether a node's newest round, and not ours, is the last that can have started."""
        theirs, ours = join.standing, self.roll.last
        if (theirs.term, theirs.round) > (ours.term, ours.round):
            return not any(_shows_no_start(seat.join, theirs) for seat in self.seats.values())
        return theirs.round >= 0 and _shows_no_start(join, ours)

    def _brief(self, seat: Seat) -> None:
        """Tell a node that has just joined what it missed."""
        node, roll = seat.join.node, self.roll
        if self.ended is not None:
            if self.end_told and seat.conn != SELF:
                self._send(seat, self.ended)
        elif self.phase in ("placing", "starting") and node in self._places:
            self._send(seat, self._places[node])
        elif self.phase in ("running", "starting") and roll.has_round and node not in roll.members:
            self._present_spectator(seat)
            if len(roll.members) >= self.settings.max_nodes:
                text = f"{roll.last.size} of {self.settings.max_nodes} nodes run round {roll.last.round}; waiting for a place"
                self._send(seat, Waiting(text))
        stale = seat.runs >= 0 and (node not in roll.members or seat.runs != roll.last.round)
        if stale or (self.phase == "stopping" and node in roll.members):
            self._send(seat, Stop(self.next_round, self._reason or "the job went on without this node", 0.0))

    def _present_spectator(self, seat: Seat) -> None:
        """Tell a spectator what runs; where deputies are few, tell the others that there is one more."""
        node, last = seat.join.node, self.roll.last
        self._places[node] = placing.spectator_place(last, self._reason)
        full = len(last.deputies) >= placing.DEPUTIES or last.size > placing.MANY_NODES
        if full or self.phase != "running" or any(deputy.node == node for deputy in last.deputies):
            self._send(seat, self._places[node])
            return
        deputies = (*last.deputies, Deputy(node, self.roll.addresses[node]))
        self.roll.last = replace(last, deputies=deputies)
        self.roll.spares.append(node)
        for other, place in self._places.items():
            self._places[other] = replace(place, deputies=deputies)
            if other in self.seats:
                self._send(self.seats[other], self._places[other])

    def _renew(self, seat: Seat, renew: Renew, now: float) -> None:
        sent_at = seat.sent.get(renew.echo)
        if sent_at is not None:
            self.roll.note_heard(seat.join.node, sent_at)
            seat.sent = {seq: at for seq, at in seat.sent.items() if seq >= renew.echo}
        seat.sent[renew.seq] = seat.answered_at = now
        self._send(seat, Ack(renew.seq, self._left_s(now)))
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
        if self.seats.get(node) is seat:
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

    def _probe(self, now: float) -> None:
        """Look after members that are not here: one whose address refuses us is dead."""
        spares = [node for node in self.roll.spares_alive() if node not in self.seats] if self.phase == "ended" else []
        for node in [*self.roll.missing(), *self.roll.announced_and_away(), *spares]:
            address = self.roll.addresses.get(node)
            if address is None:
                continue
            due = self._probe_at.get(node, now)
            if due <= now:
                tries = self._probes.get(node, 0)
                self._probes[node] = tries + 1
                self._probe_at[node] = due = now + (*EARLY_PROBES_S, PROBE_S)[min(tries, len(EARLY_PROBES_S))]
                self._out.append(AskAround(address, self.ask(now)))
            self._wake(due)

    def ask(self, now: float) -> Ask:
        """Return the question who leads; it says that we do, if we may."""
        own = self.settings
        known = own.address if self.ended is None else ""
        valid = self.established and self.ended is None and self.is_valid(now)
        return Ask(own.run_id, own.node, known, self.term, self.roll.last.round, valid)

    # Decisions. Each returns whether something changed, so that the next can build on it.

    def _step(self, now: float) -> bool:
        self._probe(now)
        match self.phase:
            case "claiming":
                return self._claim(now)
            case "running":
                return self._watch_over(now)
            case "stopping":
                return self._settle(now)
            case "gathering":
                return self._gather(now)
            case "placing":
                return self._check_placed(now)
            case "ended":
                return self._see_it_out(now)
            case _:  # starting: the store has to agree
                return False

    def _claim(self, now: float) -> bool:
        roll, policy = self.roll, self.settings.on_lost_majority
        hold_at = max(roll.fence_floor, self._began_at) + self.settings.silence_s
        if self.is_valid(now) or (now >= hold_at and policy == "continue"):
            if not self.settings.external or policy == "continue":
                roll.tie_until = quorum.ALWAYS  # an incumbent keeps half, a rival needs more
            self.phase = "running"
            return True
        self._wake(hold_at)
        if now < hold_at:
            return False
        if policy == "exit":
            self._end_lost(now)
            return True
        self._hold()
        return False

    def _end_lost(self, now: float) -> None:
        why = f"only {self.roll.present()} of {self.roll.size()} members of the last round are left"
        self._end(Ended("lost", 75, why, (), self.restart_count), now)

    def _hold(self) -> None:
        if self.roll.has_enough(self._now):
            return  # they are here: a moment until they have all answered
        here, size, number = self.roll.present(), self.roll.size(), self.roll.last.round
        text = (
            f"holding: {here} of {size} members of round {number} are here, which is no majority; "
            "waiting for the others (--on-lost-majority decides what else to do)"
        )
        if not self._held:
            self._held = True
            self._out.append(Say(text))
        self._tell_waiting(text)

    def _wait_for_majority(self) -> None:
        for at in self.roll.heard.values():
            self._wake(at + self.settings.lease_s)
        self._hold()

    def _watch_over(self, now: float) -> bool:
        if self._all_done():
            self._end(Ended("done", 0, "", (), self.restart_count), now)
            return True
        reason, grace_s = self._reason_to_change(now)
        if not reason:
            return False
        self._reason = reason
        self._for_failure = bool(self._failed)
        self.phase = "stopping"
        self.roll.settled = set()
        for node, seat in self.seats.items():
            if node in self.roll.members or seat.runs >= 0:
                self._send(seat, Stop(self.next_round, reason, grace_s))
        return True

    def _all_done(self) -> bool:
        roll = self.roll
        here = [node for node in roll.members if node not in roll.gone]
        everyone = bool(here) and not roll.has_unknown()
        return everyone and all(node in self.seats and self.seats[node].done == roll.last.round for node in here)

    def _reason_to_change(self, now: float) -> tuple[str, float]:
        roll = self.roll
        if self._failed:
            return verdict.reason(self._failed), 0.0
        for node in roll.members:
            reason = self._reason_in(node)
            if reason:
                return reason, self.settings.resize_grace_s if node in self.seats else 0.0
        fences = roll.fences()
        for when in fences:
            self._wake(when)
        if any(when <= now for when in fences) and roll.may_exclude(now):
            names = ", ".join(roll.name(node) for node in roll.absent() if roll.fenced_at(node) <= now)
            return f"node {names or '?'} fell silent", 0.0
        return self._arrivals_reason(now), self.settings.resize_grace_s

    def _reason_in(self, node: str) -> str:
        roll, name, seat = self.roll, self.roll.name(node), self.seats.get(node)
        if node in roll.dead:
            return f"node {name} is gone"
        if node in roll.gone:
            return f"node {name} left"
        if seat is not None and seat.departing:
            return f"node {name} is leaving"
        if seat is not None and roll.last.round not in (seat.runs, seat.done) and not seat.owes_report:
            return f"node {name} had lost touch and stopped its workers"
        return ""

    def _arrivals_reason(self, now: float) -> str:
        roll, last = self.roll, self.roll.last.round
        fresh = [seat for node, seat in self.seats.items() if node not in roll.members and seat.can_run]
        room = self.settings.max_nodes - len(roll.members)
        if not fresh or room <= 0 or not self.is_valid(now):
            return ""
        if any(seat.done == last for seat in self.seats.values()):
            return ""  # it is finishing: who comes now would only make it start over
        self._wake(self._last_arrival + self.settings.gather_s)
        if now < self._last_arrival + self.settings.gather_s:
            return ""
        names = [seat.join.host for seat in sorted(fresh, key=lambda seat: seat.arrival)[:room]]
        return f"node {', '.join(names[:5])}{' and others' if len(names) > 5 else ''} joined"

    # From one round to the next.

    def _settle(self, now: float) -> bool:
        """Wait until no worker of the last round can be alive; then judge the failures, if any."""
        if not self._all_accounted(now):
            return self._check_majority(now)
        if not self.is_valid(now) and self.settings.on_lost_majority != "continue":
            self._wait_for_majority()
            return False
        self._lost_one = self._lost_one or any(self._is_going(node) for node in self.roll.members)
        if self._for_failure and not self._lost_one and self._may_turn_out_lost(now):
            return False
        if self._for_failure and not self._lost_one:
            ruling, when = verdict.rule(self._failed, self.restart_count, self.settings, now)
            if ruling is None:
                self._wake(when)
                return False
            if isinstance(ruling, Ended):
                self._end(ruling, now)
                return True
            self.restart_count = ruling
        if self._for_failure and self._lost_one:
            self._reason = self._loss() or self._reason
        self._failed = []
        self.phase = "gathering"
        return True

    def _check_majority(self, now: float) -> bool:
        """Hold, or end, if those who are silent are too many to go on without them."""
        fences = self.roll.fences()
        if self.roll.may_exclude(now) or not any(when <= now for when in fences):
            return False
        if self.settings.on_lost_majority == "exit":
            self._end_lost(now)
            return True
        self._hold()
        return False

    def _is_going(self, node: str) -> bool:
        seat = self.seats.get(node)
        return node in self.roll.dead or node in self.roll.gone or (seat is not None and seat.departing)

    def _loss(self) -> str:
        """Say which loss excuses the failures of a round."""
        for node in self.roll.members:
            if node not in self.seats and node not in self.roll.gone and node not in self.roll.dead:
                return f"node {self.roll.name(node)} fell silent"
            reason = self._reason_in(node) if node not in self.seats or self.seats[node].departing else ""
            if reason:
                return reason
        return ""

    def _may_turn_out_lost(self, now: float) -> bool:
        """Wait for a member that stopped its workers and went: it comes back, or it was lost and failures are free."""
        for node in self.roll.missing():
            self._wake(self.roll.fenced_at(node))
            if now < self.roll.fenced_at(node):
                return True
            self._lost_one = True
        return False

    def _all_accounted(self, now: float) -> bool:
        roll = self.roll
        accounted = all(seat.runs < 0 for node, seat in self.seats.items() if node not in roll.members)
        excludes = roll.may_exclude(now)
        for node in roll.members:
            accounted = self._is_accounted(node, now, excludes=excludes) and accounted
        if roll.has_unknown():
            self._lost_one = True
            self._wake(roll.fence_floor + self.settings.silence_s)
            accounted = accounted and excludes and now >= roll.fence_floor + self.settings.silence_s
        return accounted

    def _is_accounted(self, node: str, now: float, *, excludes: bool) -> bool:
        """Tell whether no worker of the last round can be alive on a node any more."""
        roll, seat = self.roll, self.seats.get(node)
        if node in roll.gone:
            self._lost_one = True
            return True
        if node in roll.settled:
            return True
        if node in roll.dead:
            self._lost_one = True
            self._wake(roll.dead[node] + DEAD_S)
            return now >= roll.dead[node] + DEAD_S
        if seat is not None:
            was_fenced = seat.join.fenced and seat.join.standing.round == roll.last.round
            self._lost_one = self._lost_one or seat.departing or was_fenced
            if seat.stopped_for >= self.next_round:
                roll.settled.add(node)
            return node in roll.settled
        self._wake(roll.fenced_at(node))
        if excludes and now >= roll.fenced_at(node):
            self._lost_one = True
            return True
        return False

    def _gather(self, now: float) -> bool:
        """Open the next round if there are enough nodes."""
        opens_at = self._opens_at(sum(seat.can_run for seat in self.seats.values()), now)
        if now < opens_at or not self._may_open(now):
            self._wake(opens_at)
            return (now < opens_at or not self.roll.has_round) and self._wait_for_nodes(now)
        chosen = choose(tuple(self._candidates()), self.settings.max_nodes)
        if len(chosen) < self.settings.min_nodes:
            self._waits = True
            return self._wait_for_nodes(now)
        self._waits = False
        self._chosen = arrange(chosen, self.roll.sizes)
        self._place(now)
        return True

    def _may_open(self, now: float) -> bool:
        """Tell whether nobody is left who could object, or whose old workers are still alive."""
        if any(seat.runs >= 0 for seat in self.seats.values()):
            return False
        if self.settings.on_lost_majority == "continue":
            return True
        if self.is_valid(now) and self.roll.has_enough(now):
            return True
        if self.roll.has_round:
            self._wait_for_majority()
        else:
            self._wake(now + PROBE_S)  # a first round was announced, and some who heard of it are not back yet
        return False

    def _candidates(self) -> Iterator[Candidate]:
        for seat in sorted(self.seats.values(), key=lambda seat: seat.arrival):
            if seat.can_run:
                join = seat.join
                slot = join.standing.home if join.node in self.roll.members else None
                yield Candidate(join.node, join.local_world_size, join.role, slot, join.slot_wish)

    def _opens_at(self, count: int, now: float) -> float:
        settings, roll = self.settings, self.roll
        if count < settings.min_nodes:
            self._waits = True
            return quorum.ALWAYS
        if count >= settings.max_nodes and not roll.has_round and not settings.external:
            return max(now, self._began_at + FOUND_S)
        if count >= settings.max_nodes or not self._waits:
            return now
        if roll.has_round and count >= roll.last.size:
            return now
        quiet_at = self._last_arrival + settings.quiet_s
        return quiet_at if roll.has_round else max(quiet_at, self._began_at + settings.boot_quiet_s)

    def _wait_for_nodes(self, now: float) -> bool:
        settings, count = self.settings, sum(seat.can_run for seat in self.seats.values())
        first = not self.roll.has_round
        if first:
            self._wake(self._began_at + settings.join_timeout_s)
            if now >= self._began_at + settings.join_timeout_s:
                why = f"only {count} of {settings.min_nodes} nodes came within {settings.join_timeout_s:g} s"
                self._end(Ended("timeout", 124, why, (), self.restart_count), now)
                return True
        fixed = settings.min_nodes == settings.max_nodes
        wanted = f"{settings.max_nodes}" if fixed else f"{settings.min_nodes} to {settings.max_nodes}"
        text = f"{count} of {wanted} nodes are here"
        if count <= 8:
            text += f" ({', '.join(sorted(seat.join.host for seat in self.seats.values()))})"
        if count < settings.min_nodes:
            text += f"; waiting for {settings.min_nodes - count} more"
            text += f", at most {settings.join_timeout_s:g} s" if first else ""
        else:
            text += "; starting in a moment, unless more come"
        self._tell_waiting(text)
        return False

    def _tell_waiting(self, text: str) -> None:
        """Tell everybody what we wait for, when it has changed and not more often than people can read."""
        if text == self._told:
            return
        self._wake(self._told_at + TELL_S)
        if self._now >= self._told_at + TELL_S:
            self._told, self._told_at = text, self._now
            for seat in self.seats.values():
                self._send(seat, Waiting(text))

    # Placing and starting.

    def _place(self, now: float) -> None:
        """Tell everybody who is in the next round; nobody starts before all know."""
        self.phase = "placing"
        self._placed_at = now
        self._base = frozenset(node for node in self.roll.members if node in self.seats)
        self.roll.announce(tuple(one.node for one in self._chosen))
        self._places = placing.places(self._new_standing(), self._reason, self._chosen, self.seats, self._base)
        for node, place in self._places.items():
            self._send(self.seats[node], place)

    def _new_standing(self) -> Standing:
        return Standing(
            epoch=self.epoch,
            term=self.term,
            round=self.next_round,
            size=len(self._chosen),
            restart_count=self.restart_count,
            deputies=placing.deputies(self._chosen, self.seats, self.roll.addresses, self._base),
            next_round=self.next_round + 1,
            base=len(self._base),
        )

    def _note_placed(self, seat: Seat, number: int) -> None:
        seat.placed = number
        if number == self.next_round and self.phase == "placing":
            self.roll.note_heard(seat.join.node, self._placed_at)

    def _check_placed(self, now: float) -> bool:
        if any(one.node not in self.seats for one in self._chosen):
            self._place_again()
            return True
        number = self.next_round
        if any(seat.placed < number for node, seat in self.seats.items() if node in self._places):
            return False
        if self.settings.external:
            self.phase = "starting"
            self._out.append(WriteKey("round", round_record(self._new_standing()), self.round_revision))
            return False
        self._start(now)
        return True

    def _place_again(self) -> None:
        """Choose anew after a chosen node was lost. The number is burnt: some may have heard of it."""
        if any(one.node in self.roll.members and one.node not in self.seats for one in self._chosen):
            self.restart_count = self.roll.last.restart_count  # the last round lost a member after all: no charge
        self.next_round += 1
        self.phase = "gathering"

    def _start(self, now: float) -> None:
        last = self._new_standing()
        self.roll.begin(last, {one.node: one.local_world_size for one in self._chosen})
        self.next_round = last.next_round
        self.phase = "running"
        self._lost_one = self._held = False
        self._failed = []
        self._told = ""
        self._valid = None
        left_s = self._left_s(now)
        for node, slot in self.roll.members.items():
            seat = self.seats[node]
            seat.runs, seat.failed, seat.done = last.round, None, -1
            seat.answered_at = now  # the order grants a lease as an answer does
            standing = replace(last, slot=slot, home=slot, ran=last.round)
            seat.join = replace(seat.join, fenced=False, standing=standing)
            self._send(seat, Start(last.round, left_s))

    def _note_failed(self, seat: Seat, message: Failed, now: float) -> None:
        seat.runs, seat.owes_report = -1, False
        if message.round == self.roll.last.round and seat.failed is None:
            seat.failed = message
            self._failed.append((message, seat.join, now))

    # The end.

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
        away = any(True for _ in self.roll.absent()) or any(node not in self.seats for node in self.roll.spares_alive())
        if self.settings.external:  # the store will tell them, once it knows
            away = not self._outcome_written and now < self.ended_at + PATIENCE_TTLS * self.settings.ttl_s
            return not away and all(seat.knows_end for seat in others)
        waiting = away or any(not seat.knows_end for seat in others)
        return not waiting or now >= self.ended_at + 2 * self.settings.ttl_s

    def repeat_end(self, ended: Ended, now: float) -> None:
        """Tell again how the run ended, in the place of a leader that was lost while it told."""
        self.phase = "ended"
        self.ended, self.ended_at, self.end_told = ended, now, True

    def hand_over(self) -> list[Effect]:
        """Say goodbye as a leader: name a successor to everybody, and say that our own node is gone."""
        own = self.settings.node
        line = [deputy.node for deputy in self.roll.last.deputies] + list(self.seats)
        heir = next((node for node in line if node in self.seats and node != own), None)
        return self.resign(self.roll.addresses[heir] if heir is not None else "", self.term, gone=own)

    def resign(self, address: str, term: int, gone: str = "") -> list[Effect]:
        """Send everybody to another leader, or (no address) to look for one."""
        out: list[Effect] = []
        for seat in self.seats.values():
            if seat.conn != SELF:
                out += [Send(seat.conn, Redirect(address, term, gone)), Close(seat.conn)]
        return out

    # Small things.

    def _touch(self) -> None:
        self.is_dirty = True

    def _send(self, seat: Seat, message: ToMember) -> None:
        self._out.append(Send(seat.conn, message))

    def _wake(self, when: float) -> None:
        """Look again at this moment; one that has passed has been looked at."""
        if self._now < when < self._wake_at:
            self._wake_at = when


def _shows_no_start(join: Join, standing: Standing) -> bool:
    """Tell whether a node proves that a round never started: it held to its leader all the time and was not told."""
    older = (join.standing.term, join.standing.round) < (standing.term, standing.round)
    return older and join.bound_term == standing.term and not join.fenced and join.standing.round >= 0
