"""Find a leader by asking around, or find that it has to be us. For runs without a store. No clock, no sockets."""

from __future__ import annotations

from planaria.rendezvous.model import AskAround

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.rendezvous.messages import Ask, Leads
    from planaria.rendezvous.model import Answered, Effect, Settings, Standing

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0
ANSWER_S = 1.5  # an answer, or the news that there is none, comes within a second


class Seeker:
    """One search, which may take many rounds of questions."""

    def __init__(self, settings: Settings, now: float) -> None:
        self.settings = settings
        self._pause_s = FIRST_PAUSE_S
        self._asked: dict[str, Answered | None] = {}
        self._is_asking = False
        self._asked_at = now
        self._next_at = now
        self._refused_since: dict[str, float] = {}

    def restart(self, now: float) -> None:
        """Begin a new search at once."""
        self._pause_s = FIRST_PAUSE_S
        self._asked = {}
        self._is_asking = False
        self._next_at = now

    def is_time(self, now: float) -> bool:
        """Tell whether the pause is over."""
        return now >= self._next_at

    def ask_if_due(self, targets: list[str], ask: Ask, now: float) -> list[Effect]:
        """Return the questions of a new round, if it is time for one."""
        if self._is_asking or now < self._next_at:
            return []
        self._is_asking = True
        self._asked = dict.fromkeys(targets)
        self._asked_at = now
        return [AskAround(address, ask) for address in self._asked]

    def answered(self, answer: Answered, now: float) -> None:
        """Take an answer."""
        if answer.address in self._asked:
            self._asked[answer.address] = answer
        if answer.leads is not None:
            self._refused_since.pop(answer.address, None)
        else:
            self._refused_since.setdefault(answer.address, now)

    def is_complete(self, now: float) -> bool:
        """Tell whether everybody has answered this round's question, or never will."""
        return self._is_asking and (all(self._asked.values()) or now >= self._asked_at + ANSWER_S)

    def pause(self, now: float) -> None:
        """End this round of questions; the next comes a little later than the last."""
        self._asked = {}
        self._is_asking = False
        self._next_at = now + self._pause_s
        self._pause_s = min(self._pause_s * 1.5, LONGEST_PAUSE_S)

    def wakes_at(self) -> float:
        """Return when something is due."""
        return self._asked_at + ANSWER_S if self._is_asking else self._next_at

    def leads(self) -> list[Leads]:
        """Return what the others said."""
        found = [answer.leads for answer in self._asked.values() if answer is not None and answer.leads is not None]
        return [one for one in found if one.run_id == self.settings.run_id]

    def own_words(self) -> list[Leads]:
        """Return what leaders said of themselves."""
        said = ((address, answer.leads) for address, answer in self._asked.items() if answer is not None)
        found = [leads for address, leads in said if leads is not None and leads.address == address]
        return [one for one in found if one.run_id == self.settings.run_id]

    def refused(self) -> set[str]:
        """Return the addresses where nobody listens."""
        return {address for address, answer in self._asked.items() if answer is not None and answer.refused}

    def has_been_away(self, address: str, now: float, at_least_s: float) -> bool:
        """Tell whether an address has not answered for so long."""
        since = self._refused_since.get(address)
        return since is not None and now >= since + at_least_s


def leads_newer(one: Ask | Leads, known: Standing) -> bool:
    """Tell whether a leader says that it is valid and has begun a newer round than the one that we know.

    Then it has waited until nobody else could lead ours. So whatever our vote about that was, it binds us no more. Nor does
    it if the leader was asked with that vote, and says that it is about to begin a newer one: whatever its number, if that
    is of a newer term, for we may have been told of one that never began.
    """
    is_newer = one.round > known.round or (one.vote > 0 and one.term > known.term)
    return one.valid and one.address != "" and is_newer


def newest_leader(said: list[Leads], known: Standing, avoid: set[str]) -> str | None:
    """Return the address of such a leader, whatever its term. One who knows of no round is bound to nobody, and needs none."""
    found = [one for one in said if known.round >= 0 and leads_newer(one, known) and one.address not in avoid]
    best = max(found, key=lambda one: (one.round, one.term), default=None)
    return best.address if best is not None else None


def best_leader(said: list[Leads], floor: int, avoid: set[str], *, has_round: bool = False) -> str | None:
    """Return the address of the leader to go to; `floor` is the lowest term that is not behind us.

    One who knows of a round does not go to a leader that has none: that one has to hear of ours.
    """
    named = [one for one in said if one.address and one.term >= floor and one.address not in avoid]
    named = [one for one in named if one.round >= 0 or not has_round]
    best = max(named, key=lambda one: (one.valid, one.round >= 0, one.term), default=None)
    return best.address if best is not None else None


def is_next_in_line(own: str, standing: Standing, said: list[Leads]) -> bool:
    """Tell whether this node has to lead: nobody who seeks knows more, and it is the first deputy of those who know as much.

    Whoever answered is alive; one that still holds to a leader would have named it.
    """
    seekers = [one for one in said if one.seeking]
    if any(one.round > standing.round for one in seekers):
        return False
    equals = {own} | {one.node for one in seekers if one.round == standing.round}
    return next((one.node for one in standing.deputies if one.node in equals), None) == own
