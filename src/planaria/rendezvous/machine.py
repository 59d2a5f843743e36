"""One agent's whole part in the rendezvous: its membership, and its leadership while it has one. No clock, no sockets.

Events go in with the time, orders come out. `member.py` holds to a leader, `leader.py` is one, `seek.py` finds one by asking
around, `claim.py` through a store; `tenure.py` takes a leadership up and gives it up, `rivals.py` to other leaders, `stored.py`
by what the store says. This file passes events to whom they concern.
"""

from __future__ import annotations

from planaria.rendezvous.claim import Claim
from planaria.rendezvous.member import Member
from planaria.rendezvous.messages import Ask, Ended, Join, Leads, Redirect
from planaria.rendezvous.model import (
    SELF,
    Answered,
    Close,
    EndRequested,
    KeyRead,
    KeyWritten,
    LeaveAnnounced,
    LeaveRequested,
    Lost,
    Opened,
    Received,
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
from planaria.rendezvous.quorum import ALWAYS
from planaria.rendezvous.rivals import Rivals
from planaria.rendezvous.seek import Seeker, best_leader, is_next_in_line, newest_leader
from planaria.rendezvous.stored import Stored
from planaria.rendezvous.tenure import Tenure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.leader import Leader
    from planaria.rendezvous.messages import Message
    from planaria.rendezvous.model import Effect, Event, LocalEvent, Settings


class Rendezvous:
    """The machine that a driver, or the simulator, feeds."""

    def __init__(self, settings: Settings, now: float) -> None:
        self.settings = settings
        self.member = Member(settings, now)
        self._out: list[Effect] = []
        self._seeker = Seeker(settings, now)
        self._claim = Claim(settings)
        self._tenure = Tenure(settings, self.member, self._out)
        self._rivals = Rivals(settings, self.member, self._tenure, self._out)
        self._stored = Stored(settings, self.member, self._tenure, self._claim, self._out)
        self._began_at = now
        self._wake_at = ALWAYS

    @property
    def leader(self) -> Leader | None:
        """Return this agent's leadership, if it has one."""
        return self._tenure.leader

    @property
    def standing(self) -> Standing:
        """Return the newest round this node knows of."""
        return self.member.post.standing

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

    @property
    def is_parting(self) -> bool:
        """Tell whether this agent has left and the store has yet to take its word for it."""
        return self._claim.farewell.is_under_way

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
                self._stored.heard(event, now, age_s=now - self._began_at)
            case StoreTrouble():
                self._stored.hear_trouble(event, now)
            case _:
                self._heard_from_agent(event, now)
        return self._finish(now, looks=isinstance(event, Ticked))

    def _heard_from_agent(self, event: LocalEvent, now: float) -> None:
        match event:
            case WorkersStopped(port):
                self.member.post.stopped(port)
            case WorkersFailed():
                self.member.post.failed(event, now)
            case WorkersDone():
                self.member.post.done(now)
            case LeaveAnnounced(reason):
                self.member.announce_leave(reason)
            case LeaveRequested(reason):
                self._leave(reason, now)
            case EndRequested(reason, grace_s):
                self.member.ask_end(reason, grace_s)

    # After every event: what is due, what follows, when to look again.

    def _finish(self, now: float, *, looks: bool) -> tuple[Effect, ...]:
        if self.member.tick(now):
            self._give_up_leader(now)
        if self.member.phase == "seeking":
            self._seek(now)
        if self.leader is not None:
            self._tenure.go_on(self.leader, self._claim, now, looks=looks)
        wake_at = self._wakes_at(now)
        out = [*self._out, *self._take_member()]
        self._out.clear()  # its parts write to the same list
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
            self._tenure.stand_in(self.member.parting, now)
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
            moments += [self._tenure.wakes_at(), self._claim.retries_at()]
        return max(min(moments), now)

    # Messages.

    def _received(self, conn: str, message: Message, now: float) -> None:
        if isinstance(message, Ask):
            self._rivals.asked(conn, message, now)
        elif conn == self.member.conn:
            self._told(message, now)
        elif isinstance(message, Join) and self._rivals.turns_away(conn, message, now):
            pass  # it was sent on, and so were ours
        elif self.leader is not None:
            self.leader.received(conn, message, now)  # type: ignore[arg-type]  # likewise
        elif isinstance(message, Leads):
            self._out.append(Close(conn))  # nobody asked on this connection
        else:
            self._out += [Send(conn, Redirect(self.member.known_leader, self.member.term)), Close(conn)]

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

    # Looking for a leader.

    def _lost(self, conn: str, now: float, *, refused: bool) -> None:
        if conn == self.member.conn and self.member.parting is not None:
            self._tenure.stand_in(self.member.parting, now)
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

    def _answered(self, answer: Answered, now: float) -> None:
        self._note_deaths(answer, now)
        self._tenure.note_answer(answer)
        if self.leader is not None:
            self.leader.answered_probe(answer, now)
            self._rivals.answered(self.leader, answer, now)
            return
        self._seeker.answered(answer, now)
        self._claim.answered(answer)

    def _note_deaths(self, answer: Answered, now: float) -> None:
        """Remember which deputies are gone for certain, as long as our own lease says that we missed nothing."""
        if not self.member.post.is_fresh(now):
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
            if self._stored.seek(now):
                self._began_at = now
            return
        self._ask_around(now)

    def _gave_up(self, now: float) -> bool:
        if self.standing.round >= 0 or now < self._began_at + self.settings.join_timeout_s or self.leader is not None:
            return False
        where = "through the store" if self.settings.external else f"at {', '.join(self.settings.endpoints)}"
        why = f"no leader was found {where} within {self.settings.join_timeout_s:g} s"
        why += f"; the store last said: {self._stored.trouble}" if self._stored.trouble else ""
        self.member.end(Ended("timeout", 124, why, (), 0))
        return True

    def _ask_around(self, now: float) -> None:
        """Ask, and decide when the answers are there."""
        seeker, own = self._seeker, self.settings
        if self._knocks(now):
            return
        vote = self.member.lapsed_vote(now)
        ask = Ask(own.run_id, own.node, "", self.member.term, self.standing.round, valid=False, vote=vote)
        self._out += seeker.ask_if_due(self._targets(), ask, now)
        said = seeker.leads()
        for one in said:
            self._tenure.note_term(one.term)
        address = self._find_leader(said)
        if address is not None:
            seeker.pause(now)
            self.member.join(address, now)
        elif seeker.is_complete(now) or self.member.is_appointed:
            if self.member.is_appointed or self._has_to_lead(now):
                self._tenure.begin(max(self.member.term, self._tenure.highest_term) + 1, self.standing, now)
            else:
                seeker.pause(now)

    def _find_leader(self, said: list[Leads]) -> str | None:
        """Return where to go, by what others said; nobody is gone to who may not count on us."""
        member, seeker = self.member, self._seeker
        avoid = seeker.refused() | {self.settings.address}
        newest = newest_leader([one for one in said if member.is_freed_by(one.vote)], self.standing, avoid)
        if newest is not None:
            member.pledge = 0
            return newest
        avoid |= {one.address for one in seeker.own_words() if not member.may_follow(one.term, one.node)}
        return best_leader(said, member.floor, avoid, has_round=self.standing.round >= 0)

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
        if own.owned is None or not self._rivals.may_found(now):
            return False
        earlier = own.endpoints[: own.owned]
        return all(self._seeker.has_been_away(address, now, own.boot_quiet_s) for address in earlier)

    # Leaving.

    def _leave(self, reason: str, now: float) -> None:
        self._out += self._stored.part(now)
        if self.leader is not None:
            self._tenure.hand_over()
            self._out += self._claim.release()
        self.member.leave(reason)
