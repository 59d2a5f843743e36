"""Two leaders, or two worlds: answering who leads, and giving way to whoever has the better right. No clock, no sockets."""

from __future__ import annotations

from planaria.rendezvous.messages import Leads, Redirect
from planaria.rendezvous.model import AskAround, Close, Send
from planaria.rendezvous.quorum import NEVER
from planaria.rendezvous.seek import leads_newer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.leader import Leader
    from planaria.rendezvous.member import Member
    from planaria.rendezvous.messages import Ask, Join
    from planaria.rendezvous.model import Answered, Effect, Settings
    from planaria.rendezvous.tenure import Tenure

ELDER_S = 5.0  # how long one who was asked by an older world does not found another: the old one may be between leaders


class Rivals:
    """What this agent makes of others that lead, or belong to a world that is older than its own."""

    def __init__(self, settings: Settings, member: Member, tenure: Tenure, out: list[Effect]) -> None:
        self._settings = settings
        self._member = member
        self._tenure = tenure
        self._out = out
        self._elder_at = NEVER

    def may_found(self, now: float) -> bool:
        """Tell whether no older world was heard of lately."""
        return now >= self._elder_at + ELDER_S

    def asked(self, conn: str, ask: Ask, now: float) -> None:
        """Answer who leads; who asks may lead itself."""
        self._out += [Send(conn, self._leads(ask, now)), Close(conn)]
        if ask.run_id != self._settings.run_id or ask.node == self._settings.node:
            return
        if ask.round >= 0 and self._member.post.standing.round < 0:
            self._elder_at = now
        if ask.address:
            self._met(ask, now)
        elif ask.round >= 0 and self._tenure.has_no_round:
            self._tenure.give_way()  # there is a world already: whoever asks belongs to it

    def _leads(self, ask: Ask, now: float) -> Leads:
        """Say who leads, as far as we know. A valid leader names a round that began, and not one that it has only announced.

        To one whose vote for another has lapsed it names the next: with that node's help, too, nobody else can begin it. And
        nobody can begin another when enough members know that the run has ended: that is newer than any round.
        """
        own, member, leader = self._settings, self._member, self._tenure.leader
        number = member.post.standing.round
        if leader is not None:
            office = leader.office
            number = max(number, office.roll.last.round)
            if office.ended is None or office.ended.kind != "lost":
                valid = office.established and (office.ended is not None or office.is_valid(now))
                vote = ask.vote if valid and office.is_valid(now) else 0
                is_next = vote > 0 or leader.ending.is_known(now)
                number = office.next_round if is_next else office.begun_round if valid else number
                return Leads(own.run_id, own.node, own.address, office.term, number, valid, seeking=False, vote=vote)
        known = member.known_leader
        return Leads(own.run_id, own.node, known, member.term, number, valid=False, seeking=not known)

    def turns_away(self, conn: str, join: Join, now: float) -> bool:
        """Send away one that belongs to an older world, which is not ours to take over, and give way to that."""
        is_elder = join.run_id == self._settings.run_id and join.standing.round >= 0
        if not is_elder or not self._tenure.has_no_round or self._settings.external:
            return False
        self._elder_at = now
        self._out += [Send(conn, Redirect("", 0)), Close(conn)]
        self._tenure.give_way()
        return True

    def answered(self, leader: Leader, answer: Answered, now: float) -> None:
        """Take what somebody says who was asked while we lead."""
        office = leader.office
        leads = answer.leads if answer.leads and answer.leads.run_id == self._settings.run_id else None
        if leads is None:
            return
        if leads.address == answer.address:
            self._met(leads, now)
        elif leads.address and not office.is_valid(now):
            ask = office.ask(now, self._member.lapsed_vote(now))
            self._out.append(AskAround(leads.address, ask))  # hearsay: let it speak for itself
        elif leads.round >= 0 and not office.roll.has_round and not self._settings.external:
            self._elder_at = now
            self._tenure.give_way()

    def _met(self, other: Ask | Leads, now: float) -> None:
        """Hear of another leader, from itself: the weaker of two gives way."""
        if self._settings.external:
            return
        member, leader = self._member, self._tenure.leader
        claim = other.valid, other.round >= 0, other.term
        is_newer = leads_newer(other, member.post.standing) and member.is_freed_by(other.vote)
        if is_newer and (leader is not None or member.phase == "seeking"):
            member.pledge = 0
        if leader is None:
            is_behind = other.term < member.floor or not member.may_follow(other.term, other.node)
            is_fit = claim[1] >= (member.post.standing.round >= 0) and not is_behind
            if member.phase == "seeking" and (is_fit or is_newer):
                member.join(other.address, now)
            return
        office = leader.office
        own = (office.established and office.is_valid(now), office.roll.has_round, office.term)
        is_weaker = claim > own or (claim == own and other.node < self._settings.node)
        # One that has no round counts on nobody: it gives way to whoever comes with one.
        is_free = not claim[1] or member.may_follow(claim[2], other.node)
        if is_weaker and is_free and leader.ending.gives_way(other.round, now):
            self._tenure.give_way(other.address, claim[2])
            member.join(other.address, now)
