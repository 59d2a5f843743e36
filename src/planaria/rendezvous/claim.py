"""Find the leader through a store, or become it by writing the leader key. No clock, no sockets.

The key hangs on a lease, so it goes when its holder does; one whose holder is proven dead may be overwritten sooner.
"""

from __future__ import annotations

from planaria.base.value import Value, replace
from planaria.contract import burial
from planaria.rendezvous.farewell import Farewell
from planaria.rendezvous.keys import (
    LeaderRecord,
    epoch_of_outcome,
    leader_record,
    outcome_in_round,
    read_leader,
    read_outcome,
    read_round,
    round_record,
)
from planaria.rendezvous.model import (
    AskAround,
    KeyRead,
    KeyWritten,
    ReadKey,
    Say,
    Standing,
    StoreAnswered,
    StoreLeaseLost,
    StoreTrouble,
    WriteKey,
)
from planaria.rendezvous.quorum import ALWAYS, NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.messages import Ask, Ended
    from planaria.rendezvous.model import Answered, Effect, Settings

PROOF_S = 0.3  # between two refusals that together prove a leader dead
COMPLAIN_S = 6.0  # by then a store has answered or said why not, unless it keeps neither its time nor its word
RETRY_S = 0.5
ASK_S = 1.2


class Order(Value):
    """What to do next: join an address, lead with a term and a standing, or (neither) wait."""

    effects: tuple[Effect, ...] = ()
    join: str | None = None
    lead: tuple[int, Standing] | None = None


class Claim:
    """What this agent knows of the run's keys, and its own hold on the leader key.

    `buried` are nodes that are gone for good, by the word of whoever runs their machines.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.leader_revision = 0
        self.round_revision = 0
        self.farewell = Farewell()
        self.buried: frozenset[str] = frozenset()
        self._leader: LeaderRecord | None = None
        self._round: str | None = None
        self._newest = Standing()
        self._outcome: KeyRead | None = None
        self._known: set[str] = set()
        self._held_until = NEVER
        self._writing = False
        self._refusals: dict[str, tuple[float, float]] = {}
        self._retry_at = ALWAYS
        self._complain_at = ALWAYS
        self._asked: dict[str, Answered | None] = {}
        self._asked_until = NEVER
        self._asked_for = -1

    def begin(self, now: float) -> list[Effect]:
        """Ask for the run's keys; their changes are reported from then on."""
        self._complain_at = now + COMPLAIN_S
        # The leader is last: whoever goes there has read what is known of the run.
        return [ReadKey(key) for key in ("left", "round", "outcome", burial.KEY, "leader")]

    def held_until(self) -> float:
        """Return until when the store gives us the tie-break."""
        return self._held_until if self._is_mine() else NEVER

    def _is_mine(self) -> bool:
        return self._leader is not None and self._leader.node == self.settings.node

    def other_leader(self) -> LeaderRecord | None:
        """Return the leader that the store names, if it is not us."""
        return None if self._leader is None or self._is_mine() else self._leader

    def heard(self, event: KeyRead | KeyWritten | StoreAnswered | StoreLeaseLost | StoreTrouble, now: float) -> None:
        """Take what the store said."""
        match event:
            case KeyRead():
                self._read(event)
            case KeyWritten("leader", revision):
                self._writing = False
                self._retry_at = ALWAYS if revision else now + RETRY_S
                if revision:
                    self._leader = LeaderRecord(self.settings.node, self.settings.address)
                    self.leader_revision = revision
            case KeyWritten("round", revision) if revision:
                self.round_revision = revision
            case KeyWritten("left", revision):
                self.farewell.written(is_done=bool(revision))
            case StoreAnswered(sent_at):
                self._held_until = max(self._held_until, sent_at + self.settings.lease_s)
            case StoreLeaseLost():
                self._held_until = NEVER
                self._writing = False
                self._retry_at = now + RETRY_S
            case StoreTrouble():
                self._complain_at = ALWAYS  # people know more than that it has not answered

    def _read(self, event: KeyRead) -> None:
        match event:
            case KeyRead("leader", value, revision):
                self._leader, self.leader_revision = read_leader(value), revision
            case KeyRead("round", value, revision):
                # No agent takes it away: what a store has forgotten was there all the same.
                self._round, self.round_revision = value or self._round, revision
                self._newest = read_round(self._round)
            case KeyRead("left", value, revision):
                self.farewell.found(value, revision)
                return  # nothing waits for it
            case KeyRead("outcome"):
                self._outcome = event
            case KeyRead(burial.KEY, value):
                self.buried = burial.read(value)
                return  # nothing waits for it
        self._known.add(event.key)

    def outcome_for(self, age_s: float, epoch: str) -> Ended | None:
        """Return how the run ended, if it was this agent's: it knows its epoch, or had started before the end."""
        if self._outcome is None or self._outcome.value is None:
            return None
        own = epoch_of_outcome(self._outcome.value) == epoch if epoch else age_s >= self._outcome.age_s
        return read_outcome(self._outcome.value) if own else None

    def refused(self, address: str, now: float) -> None:
        """Note that nobody listens where the leader should."""
        first, _ = self._refusals.get(address, (now, now))
        self._refusals = {address: (first, now)}
        self._retry_at = now + PROOF_S

    def not_refused(self) -> None:
        """Forget refusals: somebody listens there, or nothing is known."""
        self._refusals = {}

    def answered(self, answer: Answered) -> None:
        """Take the answer of a deputy that was asked who leads."""
        if answer.address in self._asked:
            self._asked[answer.address] = answer

    def retries_at(self) -> float:
        """Return when a leader should write its key again."""
        return self._retry_at if self._leader is None and self.settings.external else ALWAYS

    def wakes_at(self) -> float:
        """Return when one who seeks should decide again."""
        if len(self._known) < 3:
            return self._complain_at
        if self._writing:
            return ALWAYS
        return min(self._retry_at, self._asked_until if self._asked else ALWAYS)

    def decide(self, ask: Ask, now: float) -> Order:
        """Say what a node without a leader should do."""
        if len(self._known) < 3:
            return self._complain(now)
        self._complain_at = ALWAYS
        if self._writing:
            return Order()
        if self._is_mine():
            return Order(lead=(self.leader_revision, self._standing()))
        if self._leader is not None:
            self._asked, self._asked_for = {}, -1
            return self._approach(self._leader, now)
        self._refusals = {}
        if now < self._retry_at < ALWAYS:
            return Order()
        self._retry_at = ALWAYS
        return self._ask_deputies(ask, now)

    def _complain(self, now: float) -> Order:
        if now < self._complain_at:
            return Order()
        self._complain_at = ALWAYS
        text = "the store has not answered yet; still trying (is it up, and are its address and password right?)"
        return Order((Say(text),))

    def is_ahead_of(self, term: int, last: Standing) -> bool:
        """Tell whether the store knows a newer round than a leader does, and not by its own hand."""
        known = self._newest
        return known.term != term and (known.term, known.round) > (last.term, last.round)

    def newest(self) -> Standing:
        """Return the newest round in the store."""
        return self._newest

    def wrote(self, standing: Standing | None) -> None:
        """Take note of a round that we have written; the store will tell us of it, but who knows when."""
        if standing is not None:
            self._round = round_record(standing)
            self._newest = read_round(self._round)

    @property
    def has_round(self) -> bool:
        """Tell whether there is a round in the store now."""
        return self.round_revision > 0

    def has_round_of(self, epoch: str) -> bool:
        """Tell whether the store has a round of this run now."""
        return self.has_round and self._newest.epoch == epoch

    def is_vacated(self, last: Standing) -> bool:
        """Tell whether the store says of this very round that nobody of it is left; it has to know that it is the newest."""
        return self.has_round and 0 < last.size <= len(self.farewell.left_of(last))

    def read_leader_again(self) -> list[Effect]:
        """Doubt what we know of the leader key: whoever wrote a newer round held it."""
        self._known.discard("leader")
        self._leader = None
        return [ReadKey("leader")]

    def _standing(self) -> Standing:
        standing = self._newest
        if self.over() is not None:
            return Standing()  # that run is over: this is a new one under the same id
        if self.is_vacated(standing):
            following = max(standing.next_round, self.farewell.left.next_round)
            return replace(standing, size=0, deputies=(), next_round=following)
        return standing

    def over(self) -> str | None:
        """Return the record of how the run of the newest round ended; None while it goes on."""
        told = self._outcome.value if self._outcome is not None else None
        was_told = told is not None and epoch_of_outcome(told) == self._newest.epoch
        return told if was_told else outcome_in_round(self._round)

    def end_since(self, term: int) -> Ended | None:
        """Return how the run of the newest round ended, if that round is newer than one announced in this term."""
        return read_outcome(self.over()) if term < self._newest.term else None

    def serves_another(self, epoch: str) -> bool:
        """Tell whether the newest round is one of another run under the same id."""
        return bool(epoch) and self._newest.epoch not in ("", epoch)

    def untold_end(self, epoch: str) -> Ended | None:
        """Return how a run ended whose leader was lost after that was certain and before it was told."""
        outcome = outcome_in_round(self._round)
        return read_outcome(outcome) if outcome is not None and epoch_of_outcome(outcome) == epoch else None

    def _approach(self, leader: LeaderRecord, now: float) -> Order:
        """Go to the leader that the store names; take its key only if its address refused us twice, a little apart."""
        if now < self._retry_at < ALWAYS:
            return Order()
        first, newest = self._refusals.get(leader.address, (now, now))
        if newest >= first + PROOF_S:
            self._refusals = {}
            return self._write(self.leader_revision)
        self._retry_at = now + RETRY_S
        return Order(join=leader.address)

    def _ask_deputies(self, ask: Ask, now: float) -> Order:
        """Before taking an empty seat, look whether a leader that lost the store still has its members."""
        standing = self._standing()
        if standing.round >= 0 and self._asked_for != self.round_revision:
            self._asked_for = self.round_revision
            self._asked = {one.address: None for one in standing.deputies if one.node != self.settings.node}
            self._asked_until = now + ASK_S
            if self._asked:
                return Order(tuple(AskAround(address, ask) for address in self._asked))
        found = [answer.leads for answer in self._asked.values() if answer is not None and answer.leads is not None]
        found = [one for one in found if one.run_id == self.settings.run_id]
        named = [one for one in found if one.address and one.address != self.settings.address]
        if named:
            best = max(named, key=lambda one: (one.valid, one.term))
            self._asked = {}
            self._asked_for = -1
            return Order(join=best.address)
        if self._asked and not all(self._asked.values()) and now < self._asked_until:
            return Order()
        self._asked = {}
        return self._write(0)

    def _write(self, expect: int) -> Order:
        self._writing = True
        self._retry_at = ALWAYS
        return Order((WriteKey("leader", leader_record(self.settings), expect, leased=True),))

    def claim_again(self, now: float) -> list[Effect]:
        """Write the leader key anew if the store lost it."""
        if now >= self._retry_at:
            self._retry_at = ALWAYS
        if self._writing or self._leader is not None or self._retry_at < ALWAYS or not self.settings.external:
            return []
        self._writing = True
        return [WriteKey("leader", leader_record(self.settings), 0, leased=True)]

    def release(self) -> list[Effect]:
        """Give up the leader key, so that nobody has to wait for its lease."""
        return [WriteKey("leader", None, self.leader_revision)] if self._is_mine() else []
