"""What an agent makes of what the store says: who leads, that another does, how the run ended, trouble. No clock, no sockets.

`claim.py` knows the run's keys; this gives up, keeps or takes up a leadership by them.
"""

from __future__ import annotations

from planaria.base.value import replace
from planaria.rendezvous import words
from planaria.rendezvous.keys import round_record
from planaria.rendezvous.messages import Ask, Ended
from planaria.rendezvous.model import KeyRead, KeyWritten, ReadKey, Say, Standing, WriteKey
from planaria.rendezvous.office import term_above

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.claim import Claim
    from planaria.rendezvous.leader import Leader
    from planaria.rendezvous.member import Member
    from planaria.rendezvous.model import Effect, Event, Settings, StoreAnswered, StoreLeaseLost, StoreTrouble
    from planaria.rendezvous.office import Office
    from planaria.rendezvous.tenure import Tenure

TROUBLE_S = 30.0  # the same words of the store after so much peace are a new trouble; it is asked again much more often


class Stored:
    """An agent's part that the store is concerned with. `trouble` is what the store last complained of, until it answers."""

    def __init__(self, settings: Settings, member: Member, tenure: Tenure, claim: Claim, out: list[Effect]) -> None:
        self._settings = settings
        self._member = member
        self._tenure = tenure
        self._claim = claim
        self._out = out
        self._troubles: dict[str, float] = {}
        self._reminder: Standing | None = None
        self.trouble = ""

    def heard(self, event: KeyRead | KeyWritten | StoreAnswered | StoreLeaseLost, now: float, *, age_s: float) -> None:
        """Take an answer of the store. `age_s` is how long this agent has taken part in the run."""
        self._claim.heard(event, now)
        self._out += self._claim.farewell.go_on(self._claim.newest())
        self.trouble = ""
        if isinstance(event, KeyRead) and event.key == "outcome" and self._member.phase != "ended":
            self._hear_outcome(age_s)
        leader = self._tenure.leader
        if leader is not None and not self._contradicts(leader, event, now):
            self._tell_leader(leader, event, now)
        if self._tenure.leader is not None:
            self._out += self._remind(self._tenure.leader, event, now)

    def _contradicts(self, leader: Leader, event: Event, now: float) -> bool:
        """Tell whether the newest round in the store is not the one that a leader knows, and let it see to that."""
        match event:
            case KeyWritten("round", 0) if leader.ending.stands(now):
                self._reminder, leader.office.withdrawn = None, False
                leader.ending.is_refused = True
                self._out.append(ReadKey("round"))  # another came first, or the store was emptied
            case KeyWritten("round", 0):
                self._tenure.give_way()
            case KeyRead("round", None) if leader.ending.stands(now):
                leader.ending.mark_again(0)
            case KeyRead("round") if self._claim.is_ahead_of(leader.office.term, leader.office.roll.last):
                self._tenure.give_way()  # while we were away from the store, another led
                self._out += self._claim.read_leader_again()
            case KeyRead("round") if leader.ending.is_refused and self._has_other_end(leader.office):
                self._tenure.give_way()  # that one is certain, and ours is not
            case KeyRead("round") if leader.ending.is_refused and self._claim.has_round_of(leader.office.epoch):
                leader.ending.mark_again(event.revision)  # it is no newer one: another has only written it again
            case _:
                return False
        return True

    def _has_other_end(self, office: Office) -> bool:
        """Tell whether the store has an end of this run that is not the one that a leader knows."""
        found = self._claim.untold_end(office.epoch)
        return found is not None and office.ended is not None and found.kind != office.ended.kind

    def _tell_leader(
        self, leader: Leader, event: KeyRead | KeyWritten | StoreAnswered | StoreLeaseLost, now: float
    ) -> None:
        claim, tenure = self._claim, self._tenure
        other = claim.other_leader()
        match event:
            case KeyRead("left") if not leader.office.established and claim.is_vacated(leader.office.roll.last):
                tenure.give_way()  # the last of that round left after we had read of it: begin with what it said
            case _ if other is not None and not leader.ending.stands(now):
                tenure.give_way(other.address, claim.leader_revision)
            case KeyWritten("leader", revision) if revision:
                leader.raise_term(revision)
            case KeyWritten("round", revision):
                written = leader.office.announced if leader.office.phase == "starting" else self._reminder
                claim.wrote(written)
                if self._reminder is not None and revision:
                    self._out.append(Say(words.reminded(self._reminder.round)))
                self._reminder = None
                leader.round_written(revision, now)
            case KeyWritten("outcome", revision) if revision:
                leader.ending.outcome_written()
            case KeyRead("leader", None):
                self._out += claim.claim_again(now)

    def _remind(self, leader: Leader, event: Event, now: float) -> list[Effect]:
        """Write the round that runs again into a store that was emptied, for those who come later or have to lead.

        Only one that more than half hold to knows that it is the newest: the word of the store for the other half is lost.
        """
        office, claim = leader.office, self._claim
        if event == KeyRead("round", None, 0):
            leader.ending.round_revision = 0
        roll, is_settled = office.roll, office.phase in ("running", "stopping", "gathering")
        knows = is_settled and roll.has_round and roll.last.size > 0 and roll.is_started and roll.has_majority(now)
        if office.withdrawn or claim.has_round_of(office.epoch) or not knows:
            return []
        self._reminder, office.withdrawn = replace(office.roll.last, epoch=office.epoch), True
        return [WriteKey("round", round_record(self._reminder), claim.round_revision)]

    def _hear_outcome(self, age_s: float) -> None:
        """End with the run. A leader that did not end it itself had lost the store meanwhile."""
        ended, leader = self._claim.outcome_for(age_s, self._member.post.standing.epoch), self._tenure.leader
        if ended is not None and (leader is None or leader.office.ended is None):
            self._tenure.give_way()
            self._member.end(ended)

    def part(self, now: float) -> list[Effect]:
        """Say in the store that this node has left, and who else has, of all rounds that may turn out to be the newest."""
        own, leader, claim = self._settings.node, self._tenure.leader, self._claim
        if not self._settings.external or self._member.phase == "ended":
            return []
        newest, last = claim.newest(), self._member.post.standing
        rounds = [(last, _members(last) | ({own} if last.slot is not None else set()))]
        gone = {own, *self._member.gone}
        if own in _members(newest) or (newest.epoch, newest.round) == (last.epoch, last.ran):
            rounds.append((newest, {*_members(newest), own}))
        if leader is not None:
            office = leader.office
            rounds += [(office.roll.last, set(office.roll.members))]
            rounds += [(office.announced, {one.node for one in office.chosen})] if office.is_making else []
            gone |= office.roll.gone_for_good(now)
        return claim.farewell.begin(gone, rounds, newest)

    def hear_trouble(self, trouble: StoreTrouble, now: float) -> None:
        """Go at once if only people can help and nothing would be lost; else say what the store says, once a trouble."""
        self._claim.heard(trouble, now)
        self.trouble = trouble.why
        if trouble.final and self._member.post.standing.round < 0 and self._member.phase != "ended":
            self._tenure.give_way()
            self._member.end(Ended("refused", 2, trouble.why, (), 0))
            return
        leader = self._tenure.leader
        waits = leader is not None and leader.office.phase == "starting"
        line = f"{'the next round waits for the store' if waits else 'trouble with the store'}: {trouble.why}; still trying"
        recent = {known: at for known, at in self._troubles.items() if now < at + TROUBLE_S}
        if line not in recent and self._member.phase != "ended":
            self._out.append(Say(line))
        self._troubles = {**recent, line: now}

    def seek(self, now: float) -> bool:
        """Find a leader by the keys, or be it; return whether what this agent knew was of a run that is over."""
        own, member, claim = self._settings, self._member, self._claim
        is_over = claim.serves_another(member.post.standing.epoch)
        if is_over and member.post.standing.ran >= 0:
            member.end(Ended("refused", 2, words.another_run(own.run_id), (), 0))
            return False
        if is_over:
            ended = claim.end_since(member.post.standing.term)
            member.post.standing = Standing()  # it waited for a place in that run
            if ended is not None:  # and it was here before the run ended that came of it
                member.end(ended)
                return False
        order = claim.decide(Ask(own.run_id, own.node, "", member.term, member.post.standing.round, valid=False), now)
        self._out += order.effects
        if order.lead is not None and self._tenure.leader is None:
            self._lead(*order.lead, now)
        elif order.join is not None:
            member.join(order.join, now)
        return is_over

    def _lead(self, term: int, standing: Standing, now: float) -> None:
        """Lead with the newest round that can have started: one that was only announced to us started if the store has it.

        Where the store has none though one has started, it was emptied: then those who know of rounds decide, as without one.
        """
        own, claim = self._member.post.standing, self._claim
        self._reminder = None
        newest = max(standing, own, key=lambda one: (one.term, one.round))
        ended = claim.untold_end(own.epoch) if own.epoch else None
        if newest is own and own.ran < own.round and ended is None and (claim.has_round or own.begun < 0):
            newest = replace(standing, next_round=max(standing.next_round, own.next_round))
        leader = self._tenure.begin(term_above(term, max(newest.term, self._member.term)), newest, now)
        leader.office.roll.is_stored = claim.has_round
        leader.office.roll.is_started = claim.has_round or newest.has_begun
        if newest.round >= 0 and not claim.has_round:  # whose key was lost with the rest may have led by it until now
            leader.office.roll.fence_floor = max(leader.office.roll.fence_floor, now)
        leader.office.over = claim.newest().epoch if claim.over() is not None and ended is None else ""
        leader.ending.round_revision = claim.round_revision
        if ended is not None:
            leader.ending.repeat_end(ended, now)


def _members(standing: Standing) -> set[str]:
    return {one.node for one in standing.deputies[: standing.size]}
