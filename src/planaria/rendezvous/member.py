"""One node's part in the run: hold to a leader, renew the lease, do at its post what it is told. No clock, no sockets."""

from __future__ import annotations

from planaria.rendezvous import words
from planaria.rendezvous.messages import (
    Ack,
    Departing,
    Ended,
    Farewell,
    Heard,
    Join,
    Leave,
    Place,
    Placed,
    Quit,
    Redirect,
    Refused,
    Renew,
    Start,
    Stop,
    Waiting,
    Welcome,
)
from planaria.rendezvous.model import SELF, Close, Connect, EndRun, Say, Send
from planaria.rendezvous.placing import MANY_NODES
from planaria.rendezvous.post import Post
from planaria.rendezvous.quorum import ALWAYS, NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.messages import ToLeader, ToMember
    from planaria.rendezvous.model import Effect, Settings

LONG_AGO_S = 1e9  # JSON knows no infinity


class Member:
    """Phases: seeking, joining, joined, ended.

    `pledge` is the highest term of a leader that this node was lost to and that never let it go, `pledged` who that was: it
    may have become the leader by this node's vote, so none of a lower term may count on it again, and nobody else of the same
    one. Two that do not see each other may lead in one term. With a store, that says who leads.
    """

    def __init__(self, settings: Settings, now: float) -> None:
        self.settings = settings
        self.post = Post(settings, self._order, self._send)
        self.phase = "seeking"
        self.address = ""
        self.leader = ""
        self.bound_term = 0
        self.pledge = 0
        self.pledged = ""
        self._pledged_at = NEVER
        self.conn = ""
        self.last_ack_at = NEVER
        self._asked_at = NEVER
        self._welcomed_at = NEVER
        self.dead: set[str] = set()
        self.gone: set[str] = set()
        self.is_appointed = False
        self.parting: Ended | None = None
        self._part_at = ALWAYS
        self._began_at = now
        self._conns = 0
        self._seq = 0
        self._echo = 0
        self._sent: dict[int, float] = {}
        self._renew_at = ALWAYS
        self._join_until = ALWAYS
        self._departing = ""
        self._quit: Quit | None = None
        self.out: list[Effect] = []

    # Holding to a leader.

    def join(self, address: str, now: float) -> None:
        """Go to a leader; `SELF` is the one in this process."""
        self._drop()
        self._conns += 1
        self.conn = f"to-{self._conns}"
        self.phase = "joining"
        self.address = address
        self._join_until = now + max(1.0, self.settings.suspect_s)
        self.out.append(Connect(self.conn, address))

    def seek(self, *, is_let_go: bool = False) -> None:
        """Let go of the leader; whoever drives this looks for another. `is_let_go`: it leads no more, by its own word."""
        has_voted = self.phase == "joined" and self.address != SELF and self.post.standing.round >= 0
        if has_voted and not is_let_go and self.bound_term >= self.pledge:
            self.pledge, self.pledged, self._pledged_at = self.bound_term, self.leader, self.last_ack_at
        self._drop()
        if self.phase != "ended":
            self.phase = "seeking"

    def _drop(self) -> None:
        if self.conn:
            self.out.append(Close(self.conn))
        self.conn = ""
        self.leader = ""
        self._renew_at = self._join_until = ALWAYS

    def may_follow(self, term: int, node: str = "") -> bool:
        """Tell whether no other leader of this term, or a newer one, may count on this node.

        Without a name, one of the same term may be the one we pledged to.
        """
        is_same = term == self.pledge and node in ("", self.pledged)
        return term > self.pledge or is_same or self.settings.external

    def lapsed_vote(self, now: float) -> int:
        """Return a number for the vote that this node is pledged by, once whoever got it cannot have counted on it lately.

        That one may have become the leader by it for one lease. A leader whose members went over to that one finds out within
        another. So one that is asked with this number, and is valid still, was left for nobody: there is only one.
        """
        has_lapsed = self.pledge > 0 and now >= self._pledged_at + 2 * self.settings.silence_s
        return self._conns if has_lapsed else 0

    def is_freed_by(self, vote: int) -> bool:
        """Tell whether this is the number of a vote, and we have gone to nobody since we asked with it; 0 is none."""
        return vote in (0, self._conns)

    @property
    def known_leader(self) -> str:
        """Return where the leader is that this node holds to, or nothing; its own is nobody's to be sent to."""
        return self.address if self.phase == "joined" and self.address != SELF else ""

    @property
    def term(self) -> int:
        """Return the newest term this node knows of."""
        return max(self.bound_term, self.post.standing.term)

    @property
    def floor(self) -> int:
        """Return the lowest term of a leader that is not behind this node."""
        return self.term if self.post.standing.round >= 0 else self.post.standing.term

    @property
    def _pace_s(self) -> float:
        """How long from one renewal to the next. One of thousands that know of no round has nothing to prove by a lease."""
        return self.settings.renew_s if self.post.standing.round >= 0 else self.settings.ttl_s * 0.6

    @property
    def _patience_s(self) -> float:
        """How long a leader may be silent. A node without a place can wait: thousands may be joining with it."""
        return self.settings.suspect_s if self.post.has_place else 2 * self.settings.ttl_s

    def opened(self, now: float) -> None:
        """Introduce ourselves."""
        own = self.settings
        self._asked_at = now
        self._join_until = now + self._patience_s
        self._send(
            Join(
                run_id=own.run_id,
                node=own.node,
                host=own.host,
                address=own.address,
                local_world_size=own.local_world_size,
                role=own.role,
                slot_wish=own.slot,
                standing=self.post.standing,
                state=self.post.state,
                bound_term=self.bound_term,
                fenced=self.post.fenced or not self.post.is_fresh(now),
                since_ack_s=min(now - self.last_ack_at, LONG_AGO_S),
                age_s=now - self._began_at,
                port=self.post.port,
                dead=tuple(sorted(self.dead))[:64],
                gone=tuple(sorted(self.gone))[:64],
                rules=own.rules,
            )
        )

    def _knows_newest(self, now: float) -> bool:
        """Tell whether no newer round than ours existed when the leader spoke: it told us this one, or we hold a lease."""
        return self.post.placed_at >= self._welcomed_at or self.post.is_fresh(now)

    def received(self, message: ToMember, now: float) -> None:
        """Take a message from the leader."""
        self.last_ack_at = now  # whatever it says shows that we still held to it at this moment
        match message:
            case Welcome():
                self._welcomed(message, now)
            case Ack():
                self._acked(message, now)
            case Stop():
                self._stop(message)
            case Place():
                self._placed(message, now)
            case Start(number, left_s):
                self.post.start(number, left_s, now)
            case Waiting(text):
                self.out.append(Say(text, passing=True))
            case Ended() | Farewell():
                self._part(message, now)
            case Redirect():
                self._redirected(message, now)
            case Refused(why):
                self.end(Ended("refused", 2, why, (), self.post.standing.restart_count))

    def _part(self, said: Ended | Farewell, now: float) -> None:
        """Note how the run ended, and stay until everybody knows: the leader might not live to tell them all."""
        if isinstance(said, Farewell):
            self.finish_parting()
            return
        self._send(Heard())
        if self.settings.external or self.address == SELF:
            self.end(said)
        elif self.parting is None:
            self.parting = said
            self._part_at = now + 2 * self.settings.ttl_s

    def finish_parting(self) -> None:
        """Go, if we know how it ended."""
        if self.parting is not None:
            self.end(self.parting)

    def _welcomed(self, welcome: Welcome, now: float) -> None:
        if not self.may_follow(welcome.term, welcome.node):
            self.seek(is_let_go=True)  # before the first renewal: only that is a vote
            return
        self.phase = "joined"
        self._welcomed_at = now
        self.leader = welcome.node
        self.bound_term = welcome.term
        self._join_until = ALWAYS
        self._seq = self._echo = 0
        self._sent = {0: self._asked_at}
        self.last_ack_at = now
        self.dead.discard(welcome.node)
        if self.post.standing.round >= 0:
            self._renew(now)
        else:
            self._renew_at = now + self._pace_s  # one of thousands may be: joining was renewal enough
        self.post.report(now)
        if self._departing:
            self._send(Departing(self._departing))
        if self._quit is not None:
            self._send(self._quit)
        self.post.repeat_stopped()

    def _renew(self, now: float) -> None:
        self._seq += 1
        self._sent[self._seq] = now
        self._renew_at = now + self._pace_s
        self._send(Renew(self._seq, self._echo))

    def _acked(self, ack: Ack, now: float) -> None:
        sent_at = self._sent.get(ack.seq)
        if sent_at is None:
            return
        self._sent = {seq: at for seq, at in self._sent.items() if seq > ack.seq}
        self._echo = max(self._echo, ack.seq)
        self.last_ack_at = now
        if self.parting is not None:
            self._part_at = now + 2 * self.settings.ttl_s  # `Farewell` says that nobody can undo the end
        self.post.extend(sent_at + min(ack.left_s, self.settings.lease_s))
        # A new leader has to hear from us, and others, before it can grant more.
        fresh = self.post.has_place and now < self._welcomed_at + self.settings.silence_s
        if fresh and ack.left_s < self.settings.lease_s / 4:
            hurry = 10 if self.post.standing.size <= MANY_NODES else 2
            self._renew_at = min(self._renew_at, now + self.settings.renew_s / hurry)

    def _redirected(self, said: Redirect, now: float) -> None:
        address, gone = said.address, said.gone
        if gone and self._knows_newest(now):
            self.gone.add(gone)
        if self.parting is not None and gone:  # it went while it told the end: that stands, and has to be told on
            self.seek(is_let_go=True)
            return
        # It gave way, so others have gone on: what it told of an end is void.
        self.parting, self._part_at = None, ALWAYS
        if address and address != self.settings.address and self.may_follow(said.term):
            self.join(address, now)
        else:
            self.is_appointed = address == self.settings.address
            self.seek(is_let_go=True)

    # At its post.

    def _stop(self, order: Stop) -> None:
        if order.final:
            self._keep_end(Quit(order.reason, order.grace_s))
        self.post.stop(order)

    def _placed(self, place: Place, now: float) -> None:
        if self.post.is_past(place):
            return
        if self.post.has_taken(place):
            self.post.take_again(place, now)
            self.dead |= self._dead_at_our_address(place)
        else:
            self.post.take(place, now)
            self.gone = set()
            self.dead = self._dead_at_our_address(place)
            self._renew_at = min(self._renew_at, now + self.settings.renew_s)
        self._send(Placed(place.round))

    def _dead_at_our_address(self, place: Place) -> set[str]:
        """Return the nodes that listened where we do now."""
        own = self.settings
        return {one.node for one in place.deputies if one.address == own.address and one.node != own.node}

    def announce_leave(self, reason: str) -> None:
        """Say that a goodbye is coming."""
        self._departing = reason
        self._send(Departing(reason))

    def ask_end(self, reason: str, grace_s: float) -> None:
        """Ask for the end of the run: this leader, and any other we hold to before it has come."""
        self._send(self._keep_end(Quit(words.asked(reason, self.settings.host), grace_s)))

    def _keep_end(self, said: Quit) -> Quit:
        """Remember that an owner wants the end of the run, and the shortest time that one gave for it."""
        self._quit = said if self._quit is None or said.hurries(self._quit) else self._quit
        return self._quit

    def leave(self, reason: str) -> None:
        """Say goodbye."""
        self._send(Leave(reason))
        self._drop()
        self.phase = "ended"
        self.post.clear_fence()

    def end(self, ended: Ended) -> None:
        """Finish: the run is over."""
        if self.phase == "ended":
            return
        self.phase = "ended"
        self.post.clear_fence()
        self.out.append(EndRun(ended))

    # Time.

    def fence_if_due(self, now: float) -> None:
        """Kill the workers whose lease is over, before anything else is looked at."""
        if self.phase != "ended":
            self.post.fence_if_due(now)

    def tick(self, now: float) -> bool:
        """Renew when it is time; return whether the leader has to be given up."""
        if now >= self._part_at:
            self.finish_parting()
        if self.phase == "joining":
            return now >= self._join_until
        if self.phase != "joined":
            return False
        if self.address != SELF and now >= self.last_ack_at + self._patience_s:
            return True
        if now >= self._renew_at:
            self._renew(now)
        return False

    def wakes_at(self) -> float:
        """Return when `tick` or `fence_if_due` should be asked again."""
        if self.phase == "ended":
            return ALWAYS
        moments = [self._renew_at, self._join_until, self._part_at, self.post.wakes_at()]
        if self.phase == "joined" and self.address != SELF:
            moments.append(self.last_ack_at + self._patience_s)
        return min(moments)

    def _send(self, message: ToLeader) -> None:
        if self.conn:
            self.out.append(Send(self.conn, message))

    def _order(self, effect: Effect) -> None:
        self.out.append(effect)
