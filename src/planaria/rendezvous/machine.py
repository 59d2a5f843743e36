"""One agent's whole part in the rendezvous: its membership, and its leadership while it has one. No clock, no sockets.

Events go in with the time, orders come out. `member.py` holds to a leader, `leader.py` is one, `seek.py` finds one by asking
around, `claim.py` through a store; this file passes events to whom they concern.
"""

from __future__ import annotations

from planaria.rendezvous import words
from planaria.rendezvous.claim import Claim
from planaria.rendezvous.leader import Leader
from planaria.rendezvous.member import Member
from planaria.rendezvous.messages import Ask, Ended, Join, Leads, Redirect
from planaria.rendezvous.model import (
    SELF,
    Answered,
    AskAround,
    Close,
    EndRequested,
    Held,
    KeyRead,
    KeyWritten,
    LeaveAnnounced,
    LeaveRequested,
    Lost,
    Opened,
    Received,
    Say,
    Send,
    Standing,
    StoreAnswered,
    StoreLeaseLost,
    StoreTrouble,
    Ticked,
    WakeAt,
    WorkersDone,
    WorkersFailed,
    WorkersStopped,
)
from planaria.rendezvous.quorum import ALWAYS, NEVER
from planaria.rendezvous.seek import Seeker, best_leader, is_next_in_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.messages import Message
    from planaria.rendezvous.model import Effect, Event, LocalEvent, Settings

LOOK_S = 0.25  # a leader that is awake decides anew if it has not for so long, whatever it was woken for
MEET_S = 0.05  # how often a leader looks whether somebody else leads at an endpoint where none of its members is
MOST_ADDRESSES = 256  # whose answers are remembered
TROUBLE_S = 30.0  # the same words of the store after so much peace are a new trouble; it is asked again much more often
ELDER_S = 5.0  # how long one who was asked by an older world does not found another: the old one may be between leaders


class Rendezvous:
    """The machine that a driver, or the simulator, feeds."""

    def __init__(self, settings: Settings, now: float) -> None:
        self.settings = settings
        self.member = Member(settings, now)
        self.leader: Leader | None = None
        self._seeker = Seeker(settings, now)
        self._claim = Claim(settings)
        self._began_at = now
        self._meet_at = ALWAYS
        self._elder_at = NEVER
        self._at: dict[str, str] = {}  # which node answered at an address: an endpoint may be a name of a member's
        self._highest_term = 0
        self._said = ""
        self._trouble = ""
        self._troubles: dict[str, float] = {}
        self._leader_wakes_at = ALWAYS
        self._looked_at = NEVER
        self._wake_at = ALWAYS
        self._out: list[Effect] = []

    @property
    def standing(self) -> Standing:
        """Return the newest round this node knows of."""
        return self.member.standing

    @property
    def is_leading(self) -> bool:
        """Tell whether this agent is, or claims to be, the leader."""
        return self.leader is not None

    @property
    def has_leader(self) -> bool:
        """Tell whether there is somebody who could be asked for something now."""
        return self.member.phase == "joined"

    @property
    def is_ended(self) -> bool:
        """Tell whether the run is over here."""
        return self.member.phase == "ended"

    def begin(self, now: float) -> tuple[Effect, ...]:
        """Start looking for the others."""
        if self.settings.external:
            self._out += self._claim.begin(now)
        return self._finish(now, looks=True)

    def handle(self, event: Event, now: float) -> tuple[Effect, ...]:
        """Take an event; return what is to be done."""
        self.member.fence_if_due(now)
        match event:
            case Received(conn, message):
                self._received(conn, message, now)
            case Opened(conn):
                if conn == self.member.conn:
                    self._claim.not_refused()
                    self.member.opened(now)
            case Lost(conn, refused):
                self._lost(conn, now, refused=refused)
            case Answered():
                self._answered(event, now)
            case Ticked():
                pass
            case KeyRead() | KeyWritten() | StoreAnswered() | StoreLeaseLost():
                self._store_said(event, now)
            case StoreTrouble():
                self._hear_trouble(event, now)
            case _:
                self._heard_from_agent(event, now)
        return self._finish(now, looks=isinstance(event, Ticked))

    def _heard_from_agent(self, event: LocalEvent, now: float) -> None:
        match event:
            case WorkersStopped(port):
                self.member.stopped(port)
            case WorkersFailed():
                self.member.failed(event, now)
            case WorkersDone():
                self.member.done(now)
            case LeaveAnnounced(reason):
                self.member.announce_leave(reason)
            case LeaveRequested(reason):
                self._leave(reason)
            case EndRequested(reason, grace_s):
                self.member.ask_end(reason, grace_s)

    # After every event: what is due, what follows, when to look again.

    def _finish(self, now: float, *, looks: bool) -> tuple[Effect, ...]:
        if self.member.tick(now):
            self._give_up_leader(now)
        if self.member.phase == "seeking":
            self._seek(now)
        if self.leader is not None:
            self._lead_on(self.leader, now, looks=looks)
        wake_at = self._wakes_at(now)
        out, self._out = [*self._out, *self._take_member()], []
        if wake_at != self._wake_at:
            self._wake_at = wake_at
            out.append(WakeAt(wake_at if wake_at < ALWAYS else None))
        return tuple(out)

    def _give_up_leader(self, now: float) -> None:
        """Let go of a leader that is silent."""
        before = self.member.phase
        self.member.seek()
        self._go_on_without(before, now)

    def _go_on_without(self, before: str, now: float) -> None:
        """Look for another leader. One that was telling how the run ended has to be stood in for."""
        if self.member.parting is not None:
            self._tell_the_rest(self.member.parting, now)
        else:
            self._search_again(before, now)

    def _take_member(self) -> list[Effect]:
        out, self.member.out = self.member.out, []
        return out

    def _wakes_at(self, now: float) -> float:
        moments = [self.member.wakes_at()]
        if self.member.phase == "seeking":
            moments.append(self._claim.wakes_at() if self.settings.external else self._seeker.wakes_at())
            if self.standing.round < 0:
                moments.append(self._began_at + self.settings.join_timeout_s)
        if self.leader is not None:
            moments += [self._meet_at, self._leader_wakes_at, self._claim.retries_at()]
        return max(min(moments), now)

    # Messages.

    def _received(self, conn: str, message: Message, now: float) -> None:
        if isinstance(message, Ask):
            self._asked(conn, message, now)
        elif conn == self.member.conn:
            self._told(message, now)
        elif isinstance(message, Join) and self._is_of_an_elder_world(message):
            self._elder_at = now
            self._out += [Send(conn, Redirect("", 0)), Close(conn)]
            self._yield("", 0)  # it belongs to an older world, which is not ours to take over
        elif self.leader is not None:
            self.leader.received(conn, message, now)  # type: ignore[arg-type]  # likewise
        elif isinstance(message, Leads):
            self._out.append(Close(conn))  # nobody asked on this connection
        else:
            self._out += [Send(conn, Redirect(self._known_leader(), self._term())), Close(conn)]

    def _is_of_an_elder_world(self, join: Join) -> bool:
        if join.run_id != self.settings.run_id or join.standing.round < 0:
            return False
        leader = self.leader
        return leader is not None and not leader.roll.has_round and not self.settings.external

    def _told(self, message: Message, now: float) -> None:
        before = self.member.phase
        if before == "ended":
            return
        self.member.received(message, now)  # type: ignore[arg-type]  # what is not for a member falls through its match
        if self.member.phase == "seeking":
            self._go_on_without(before, now)

    def _search_again(self, phase: str, now: float) -> None:
        """Look at once after a leader was lost; take a breath after one that would not have us."""
        if phase == "joined":
            self._seeker.restart(now)
        else:
            self._seeker.pause(now)

    def _known_leader(self) -> str:
        member = self.member
        return member.address if member.phase == "joined" and member.address != SELF else ""

    def _term(self) -> int:
        return max(self.member.bound_term, self.standing.term)

    def _asked(self, conn: str, ask: Ask, now: float) -> None:
        self._out += [Send(conn, self._leads(now)), Close(conn)]
        if ask.run_id != self.settings.run_id or ask.node == self.settings.node:
            return
        if ask.round >= 0 and self.standing.round < 0:
            self._elder_at = now
        if ask.address:
            self._met(ask, now)
        elif ask.round >= 0 and self.leader is not None and not self.leader.roll.has_round:
            self._yield("", 0)  # there is a world already: whoever asks belongs to it

    def _leads(self, now: float) -> Leads:
        own, leader = self.settings, self.leader
        number = max(self.standing.round, leader.roll.last.round if leader else -1)
        if leader is not None and (leader.ended is None or leader.ended.kind != "lost"):
            valid = leader.established and (leader.ended is not None or leader.is_valid(now))
            return Leads(own.run_id, own.node, own.address, leader.term, number, valid, seeking=False)
        known = self._known_leader()
        return Leads(own.run_id, own.node, known, self._term(), number, valid=False, seeking=not known)

    # Two leaders.

    def _met(self, other: Ask | Leads, now: float) -> None:
        """Hear of another leader, from itself: the weaker of two gives way."""
        if self.settings.external:
            return
        leader, address, claim = self.leader, other.address, (other.valid, other.round >= 0, other.term)
        if leader is None:
            if self.member.phase == "seeking" and claim[2] >= self._floor() and claim[1] >= (self.standing.round >= 0):
                self.member.join(address, now)
            return
        own = (leader.established and leader.is_valid(now), leader.roll.has_round, leader.term)
        is_weaker = claim > own or (claim == own and other.node < self.settings.node)
        if is_weaker and leader.gives_way(other.round, now):
            self._yield(address, claim[2])
            self.member.join(address, now)

    def _yield(self, address: str, term: int) -> None:
        if self.leader is None:
            return
        self._highest_term = max(self._highest_term, self.leader.term)
        self._out += self.leader.resign(address, term)
        self.leader = None
        self._meet_at = ALWAYS
        self.member.seek()

    def _floor(self) -> int:
        return max(self.standing.term, self.member.bound_term if self.standing.round >= 0 else 0)

    # Looking for a leader.

    def _lost(self, conn: str, now: float, *, refused: bool) -> None:
        if conn == self.member.conn and self.member.parting is not None:
            self._tell_the_rest(self.member.parting, now)
        elif conn == self.member.conn:
            member = self.member
            if refused and member.phase == "joining":
                self._claim.refused(member.address, now)
            else:
                self._claim.not_refused()
            before, member.conn = member.phase, ""
            member.seek()
            self._search_again(before, now)
        elif self.leader is not None:
            self.leader.lost(conn, now)

    def _tell_the_rest(self, ended: Ended, now: float) -> None:
        """Stand in for a leader that was lost while it told how the run ended."""
        self.member.conn = ""
        self._lead(self._term() + 1, self.standing, now).repeat_end(ended, now)

    def _answered(self, answer: Answered, now: float) -> None:
        self._note_deaths(answer, now)
        if len(self._at) >= MOST_ADDRESSES:
            self._at.clear()
        self._at[answer.address] = answer.leads.node if answer.leads is not None else ""
        if self.leader is not None:
            self.leader.answered_probe(answer, now)
            leads = answer.leads if answer.leads and answer.leads.run_id == self.settings.run_id else None
            if leads is not None and leads.address == answer.address:
                self._met(leads, now)
            elif leads is not None and leads.address and not self.leader.is_valid(now):
                self._out.append(AskAround(leads.address, self.leader.ask(now)))  # hearsay: let it speak for itself
            elif (
                leads is not None and leads.round >= 0 and not self.leader.roll.has_round and not self.settings.external
            ):
                self._elder_at = now
                self._yield("", 0)
            return
        self._seeker.answered(answer, now)
        self._claim.answered(answer)

    def _note_deaths(self, answer: Answered, now: float) -> None:
        """Remember which deputies are gone for certain, as long as our own lease says that we missed nothing."""
        if not self.member.is_fresh(now):
            return
        for deputy in self.standing.deputies:
            if deputy.address == answer.address and deputy.node != self.settings.node:
                another = answer.leads is not None and answer.leads.node != deputy.node
                if answer.refused or another:
                    self.member.dead.add(deputy.node)

    def _seek(self, now: float) -> None:
        if self._gave_up(now):
            return
        if self.settings.external:
            self._seek_in_store(now)
            return
        self._ask_around(now)

    def _gave_up(self, now: float) -> bool:
        if self.standing.round >= 0 or now < self._began_at + self.settings.join_timeout_s or self.leader is not None:
            return False
        where = "through the store" if self.settings.external else f"at {', '.join(self.settings.endpoints)}"
        why = f"no leader was found {where} within {self.settings.join_timeout_s:g} s"
        why += f"; the store last said: {self._trouble}" if self._trouble else ""
        self.member.end(Ended("timeout", 124, why, (), 0))
        return True

    def _ask_around(self, now: float) -> None:
        """Ask, and decide when the answers are there."""
        seeker, own = self._seeker, self.settings
        if self._knocks(now):
            return
        ask = Ask(own.run_id, own.node, "", self._term(), self.standing.round, valid=False)
        self._out += seeker.ask_if_due(self._targets(), ask, now)
        said = seeker.leads()
        self._highest_term = max([self._highest_term, *(one.term for one in said)])
        address = best_leader(said, self._floor(), seeker.refused() | {own.address}, has_round=self.standing.round >= 0)
        if address is not None:
            seeker.pause(now)
            self.member.join(address, now)
        elif seeker.is_complete(now) or self.member.is_appointed:
            if self.member.is_appointed or self._has_to_lead(now):
                self._lead(max(self._term(), self._highest_term) + 1, self.standing, now)
            else:
                seeker.pause(now)

    def _knocks(self, now: float) -> bool:
        """Go straight to the endpoint where there is only one place to look: whoever is there knows who leads."""
        own = self.settings
        if self.standing.round >= 0 or own.owned is not None or len(own.endpoints) != 1:
            return False
        if self._seeker.is_time(now):
            self._seeker.pause(now)
            self.member.join(own.endpoints[0], now)
        return True

    def _targets(self) -> list[str]:
        own = self.settings
        wanted = [self.member.address, *(one.address for one in self.standing.deputies), *own.endpoints]
        if own.owned is not None:
            wanted = [address for address in wanted if address != own.endpoints[own.owned]]
        return [address for address in dict.fromkeys(wanted) if address not in ("", SELF, own.address)]

    def _has_to_lead(self, now: float) -> bool:
        own = self.settings
        if self.standing.round >= 0 and is_next_in_line(own.node, self.standing, self._seeker.leads()):
            return True
        if self.standing.round >= 0 and any(one.seeking and one.round >= 0 for one in self._seeker.leads()):
            return False
        if own.owned is None or now < self._elder_at + ELDER_S:
            return False
        earlier = own.endpoints[: own.owned]
        return all(self._seeker.has_been_away(address, now, own.boot_quiet_s) for address in earlier)

    # Leading.

    def _lead(self, term: int, standing: Standing, now: float) -> Leader:
        held = Held(self.member.last_ack_at, self.member.lease_until)
        self.member.is_appointed = False
        self.leader = Leader(self.settings, now, term=term, standing=standing, held=held)
        self._highest_term = max(self._highest_term, term)
        self._meet_at = ALWAYS if self.settings.external else now
        self._leader_wakes_at = now
        self.member.join(SELF, now)
        return self.leader

    def _lead_on(self, leader: Leader, now: float, *, looks: bool) -> None:
        """Pass on the leader's answers; let it decide once a turn, however many events the turn brought."""
        if self.settings.external:
            leader.roll.tie_until = self._claim.held_until()
            self._out += self._claim.claim_again(now)
        elif now >= self._meet_at or (looks and self._meet_at == ALWAYS):
            rivals = self._rivals(leader)
            self._meet_at = now + MEET_S if rivals else ALWAYS
            self._out += [AskAround(address, leader.ask(now)) for address in rivals]
        self._out += leader.take_orders()
        if looks and self._is_time_to_look(leader, now):
            self._looked_at = now
            out, self._leader_wakes_at = leader.advance(now)
            self._out += [order for order in out if not self._was_said(order)]
        elif leader.is_dirty:
            self._leader_wakes_at = now
        if self.is_ended and leader.is_over(now):
            self.leader = None
            self._meet_at = ALWAYS

    def _is_time_to_look(self, leader: Leader, now: float) -> bool:
        """Tell whether the leader has something to decide: to meet others ten times a second is no reason."""
        due = leader.is_dirty or now >= min(self._leader_wakes_at, self._looked_at + LOOK_S)
        return due or self.settings.external

    def _was_said(self, order: Effect) -> bool:
        """Tell whether an order is a line that was the last one said: every candidacy finds itself holding anew."""
        if not isinstance(order, Say):
            return False
        said, self._said = self._said, order.text
        return said == order.text

    def _rivals(self, leader: Leader) -> list[str]:
        """Return where another leader could be: at endpoints that are no member's, and at deputies while nothing runs."""
        own = self.settings
        wanted = list(own.endpoints)
        if leader.phase != "running":
            wanted += [one.address for one in leader.roll.last.deputies]
        taken = {own.address, own.endpoints[own.owned] if own.owned is not None else ""}
        taken |= {leader.roll.addresses[node] for node in leader.seats} if set(wanted) - taken else set()
        free = [address for address in dict.fromkeys(wanted) if address not in taken]
        return [address for address in free if self._at.get(address) not in leader.seats]

    def _leave(self, reason: str) -> None:
        member, leader = self.member, self.leader
        if leader is not None:
            self._out += leader.hand_over()
            self._out += self._claim.release()
            self.leader = None
            self._meet_at = ALWAYS
        member.leave(reason)

    # The store.

    def _store_said(self, event: KeyRead | KeyWritten | StoreAnswered | StoreLeaseLost, now: float) -> None:
        claim = self._claim
        claim.heard(event, now)
        self._trouble = ""
        if isinstance(event, KeyRead) and event.key == "outcome" and self.member.phase != "ended":
            self._hear_outcome(now)
        leader = self.leader
        if leader is None:
            return
        other = claim.other_leader()
        match event:
            case KeyWritten("round", 0):
                self._yield("", 0)
            case KeyRead("round") if claim.is_ahead_of(leader.term, leader.roll.last):
                self._yield("", 0)  # while we were away from the store, another led
                self._out += claim.read_leader_again()
            case _ if other is not None:
                self._yield(other.address, claim.leader_revision)
            case KeyWritten("leader", revision) if revision:
                leader.raise_term(revision)
            case KeyWritten("round", revision):
                leader.round_written(revision, now)
            case KeyWritten("outcome", revision) if revision:
                leader.outcome_written()
            case KeyRead("leader", None):
                self._out += claim.claim_again(now)

    def _hear_trouble(self, trouble: StoreTrouble, now: float) -> None:
        """Go at once if only people can help and nothing would be lost; else say what the store says, once a trouble."""
        self._claim.heard(trouble, now)
        self._trouble = trouble.why
        if trouble.final and self.standing.round < 0 and self.member.phase != "ended":
            self._yield("", 0)
            self.member.end(Ended("refused", 2, trouble.why, (), 0))
            return
        waits = self.leader is not None and self.leader.phase == "starting"
        line = f"{'the next round waits for the store' if waits else 'trouble with the store'}: {trouble.why}; still trying"
        recent = {known: at for known, at in self._troubles.items() if now < at + TROUBLE_S}
        if line not in recent and self.member.phase != "ended":
            self._out.append(Say(line))
        self._troubles = {**recent, line: now}

    def _hear_outcome(self, now: float) -> None:
        """End with the run. A leader that did not end it itself had lost the store meanwhile."""
        ended = self._claim.outcome_for(now - self._began_at, self.standing.epoch)
        if ended is not None and (self.leader is None or self.leader.ended is None):
            self._yield("", 0)
            self.member.end(ended)

    def _seek_in_store(self, now: float) -> None:
        claim = self._claim
        own = self.settings
        if claim.serves_another(self.standing.epoch):
            if self.standing.ran >= 0:
                self.member.end(Ended("refused", 2, words.another_run(own.run_id), (), 0))
                return
            self.member.standing = Standing()  # it waited for a place in a run that is over
            self._began_at = now
        ask = Ask(own.run_id, own.node, "", self._term(), self.standing.round, valid=False)
        order = claim.decide(ask, now)
        self._out += order.effects
        if order.lead is not None and self.leader is None:
            term, standing = order.lead
            newest = max(standing, self.standing, key=lambda one: (one.term, one.round))
            leader = self._lead(term, newest, now)
            leader.round_revision = claim.round_revision
            ended = claim.untold_end(self.standing.epoch) if self.standing.epoch else None
            if ended is not None:
                leader.repeat_end(ended, now)
        elif order.join is not None:
            self.member.join(order.join, now)
