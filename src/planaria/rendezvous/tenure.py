"""This agent's leadership while it has one: taking it up, deciding once a turn, giving it up. No clock, no sockets."""

from __future__ import annotations

from planaria.rendezvous.leader import Leader
from planaria.rendezvous.model import SELF, AskAround, Held, Say
from planaria.rendezvous.quorum import ALWAYS, NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.claim import Claim
    from planaria.rendezvous.member import Member
    from planaria.rendezvous.messages import Ended
    from planaria.rendezvous.model import Answered, Effect, Settings, Standing

LOOK_S = 0.25  # a leader that is awake decides anew if it has not for so long, whatever it was woken for
MEET_S = 0.05  # how often a leader looks whether somebody else leads at an endpoint where none of its members is
MOST_ADDRESSES = 256  # whose answers are remembered


class Tenure:
    """`leader` is None while another leads. `out` takes the orders of this agent's machine."""

    def __init__(self, settings: Settings, member: Member, out: list[Effect]) -> None:
        self.leader: Leader | None = None
        self.highest_term = 0
        self._settings = settings
        self._member = member
        self._out = out
        self._at: dict[str, str] = {}  # which node answered at an address: an endpoint may be a name of a member's
        self._meet_at = ALWAYS
        self._wakes_at = ALWAYS
        self._looked_at = NEVER
        self._said = ""

    @property
    def has_no_round(self) -> bool:
        """Tell whether this agent leads a run in which no round ever started."""
        return self.leader is not None and not self.leader.office.roll.has_round

    def note_answer(self, answer: Answered) -> None:
        """Remember who is at an address."""
        if len(self._at) >= MOST_ADDRESSES:
            self._at.clear()
        self._at[answer.address] = answer.leads.node if answer.leads is not None else ""

    def note_term(self, term: int) -> None:
        """Remember the highest term there has been."""
        self.highest_term = max(self.highest_term, term)

    def begin(self, term: int, standing: Standing, now: float) -> Leader:
        """Lead; our own node is the first to join."""
        member = self._member
        held = Held(member.last_ack_at, member.post.lease_until)
        member.is_appointed = False
        self.leader = Leader(self._settings, now, term=term, standing=standing, held=held)
        self.note_term(term)
        self._meet_at = ALWAYS if self._settings.external else now
        self._wakes_at = now
        member.join(SELF, now)
        return self.leader

    def stand_in(self, ended: Ended, now: float) -> None:
        """Stand in for a leader that was lost while it told how the run ended."""
        self._member.conn = ""
        self.begin(self._member.term + 1, self._member.post.standing, now).ending.repeat_end(ended, now)

    def give_way(self, address: str = "", term: int = 0) -> None:
        """Send everybody to another leader, or (no address) to look for one; our own node looks, too."""
        if self.leader is None:
            return
        self.note_term(self.leader.office.term)
        self._out += self.leader.resign(address, term)
        self._end()
        self._member.seek()

    def hand_over(self) -> None:
        """Leave: name an heir to everybody."""
        if self.leader is not None:
            self._out += self.leader.hand_over()
            self._end()

    def _end(self) -> None:
        self.leader = None
        self._meet_at = ALWAYS

    def wakes_at(self) -> float:
        """Return when a leader has something to do."""
        return min(self._meet_at, self._wakes_at)

    def go_on(self, leader: Leader, claim: Claim, now: float, *, looks: bool) -> None:
        """Pass on the leader's answers; let it decide once a turn, however many events the turn brought."""
        office = leader.office
        if self._settings.external:
            # A store that was emptied gives its key to whoever comes first: half is no majority by that alone.
            is_sure = claim.has_round_of(office.epoch) or not office.roll.has_round
            office.roll.tie_until = claim.held_until() if is_sure else NEVER
            leader.hear_of_dead(claim.buried | claim.farewell.everybody)  # believed when they would be fenced
            leader.hear_of_left(claim.farewell.left_of(office.roll.last), now)
            self._out += claim.claim_again(now)
        elif now >= self._meet_at or (looks and self._meet_at == ALWAYS):
            rivals = self._rivals(leader)
            self._meet_at = now + MEET_S if rivals else ALWAYS
            ask = office.ask(now, self._member.lapsed_vote(now))
            self._out += [AskAround(address, ask) for address in rivals]
        self._out += leader.take_orders()
        if looks and self._is_time_to_look(leader, now):
            self._looked_at = now
            out, self._wakes_at = leader.advance(now)
            self._out += [order for order in out if not self._was_said(order)]
        elif office.orders.is_dirty:
            self._wakes_at = now
        if self._member.phase == "ended" and leader.ending.is_over(now):
            self._end()

    def _is_time_to_look(self, leader: Leader, now: float) -> bool:
        """Tell whether the leader has something to decide: to meet others ten times a second is no reason."""
        due = leader.office.orders.is_dirty or now >= min(self._wakes_at, self._looked_at + LOOK_S)
        return due or self._settings.external

    def _was_said(self, order: Effect) -> bool:
        """Tell whether an order is a line that was the last one said: every candidacy finds itself holding anew."""
        if not isinstance(order, Say):
            return False
        said, self._said = self._said, order.text
        return said == order.text

    def _rivals(self, leader: Leader) -> list[str]:
        """Return where another leader could be: at endpoints that are no member's, and at deputies while nothing runs."""
        own, office = self._settings, leader.office
        wanted = list(own.endpoints)
        if office.phase != "running":
            wanted += [one.address for one in office.roll.last.deputies]
        taken = {own.address, own.endpoints[own.owned] if own.owned is not None else ""}
        taken |= {office.roll.addresses[node] for node in office.seats} if set(wanted) - taken else set()
        free = [address for address in dict.fromkeys(wanted) if address not in taken]
        return [address for address in free if self._at.get(address) not in office.seats]
