"""The roll of the newest round: who belongs to it, who of them is here, dead, gone or silent, and until when that is enough.

What a leader knows about others, with all the arithmetic of promise and proof; `leader.py` decides by it. No clock.
"""

from __future__ import annotations

from planaria.rendezvous import quorum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from planaria.rendezvous.messages import Join
    from planaria.rendezvous.model import Settings, Standing
    from planaria.rendezvous.seats import Seat

DEAD_S = 0.3  # from the proof of an agent's death until the last of its workers is gone for certain


class Roll:
    """`last` is the newest round known, `members` its nodes by slot as far as they are known, `here` who is connected.

    `settled` have stopped their workers for the next round, `finished` are done with this one: nothing is lost with them.
    `dead` says since when we know it, `gone` until when one may have counted for another leader; `fence_floor` is that moment
    for all who have joined us, see `floor`. `tie_until` says how long half of a round is enough. `is_stored`: `last` is the
    newest round in an external store, or newer; not so where the store has none. `base` are the members of the round before it
    whom we know, as far as they have a say: while it may not have started.
    """

    def __init__(self, settings: Settings, standing: Standing, here: Mapping[str, Seat], heard_until: float) -> None:
        self.settings = settings
        self.here = here
        self.last = standing
        self.members: dict[str, int] = {}
        self.spares: list[str] = []
        self.base: set[str] = set()
        self.is_started = settings.external
        self.is_stored = settings.external
        self.announced: list[tuple[str, ...]] = []
        self.sizes: dict[int, int] = {}
        self.addresses: dict[str, str] = {}
        self.hosts: dict[str, str] = {}
        self.gone: dict[str, float] = {}
        self.dead: dict[str, float] = {}
        self.settled: set[str] = set()
        self.finished: set[str] = set()
        self.heard: dict[str, float] = {}
        self.answered: dict[str, float] = {}
        self.fence_floor = heard_until
        self.tie_until = quorum.ALWAYS if standing.round < 0 and not settings.external else quorum.NEVER
        self._learn_deputies(standing)

    # What is learnt.

    def adopt(self, standing: Standing) -> None:
        """Take a newer round from a node that knows it, or an older one that turned out to be the last to start."""
        self.last = standing
        self.members = {}
        self.base = set()
        self.finished = set()
        self.is_started = False
        self._learn_deputies(standing)
        for seat in self.here.values():
            self.enter(seat.join)

    def enter(self, join: Join) -> None:
        """Take a node's word for its own place in the newest round."""
        known = join.standing
        is_same = (known.term, known.round) == (self.last.term, self.last.round)
        slot = known.slot if is_same else self._slot_before(known)
        if slot is not None:
            self.members[join.node] = slot
            self.sizes[slot] = join.local_world_size
        if is_same and known.slot is not None and join.state == "done":
            self.finished.add(join.node)
        if (is_same and known.in_base) or self._was_before(known):
            self.base.add(join.node)
        self.is_started |= known.ran >= self.last.round

    def _slot_before(self, known: Standing) -> int | None:
        """Return the slot of a node in our round that was told of another since, which may never have started.

        No two rounds that started have one number. A round's record names few of its members, so this is how others are known.
        """
        is_newer = (known.term, known.round) > (self.last.term, self.last.round)
        was_in = known.epoch == self.last.epoch and known.ran == self.last.round >= 0
        return known.home if is_newer and was_in else None

    def _was_before(self, known: Standing) -> bool:
        """Tell whether a node was in the last round that began before ours, whatever it was told of since.

        Before any has begun that is the very first that was announced: the only one that has none before it.
        """
        if known.epoch != self.last.epoch or known.ran != self.last.begun:
            return False
        was_first = known.base == 0 and known.slot is not None
        return known.ran >= 0 or (self.last.base > 0 > known.begun and (known.in_base or was_first))

    def has_strangers(self) -> bool:
        """Tell whether members of the round before may be away whose names we do not know."""
        if not self.has_round or self.is_started:
            return False
        return self._left_of(self.base, self.last.base) > sum(node in self.here for node in self.base)

    def _learn_deputies(self, standing: Standing) -> None:
        """Take the members and, after them, the spectators that a round was announced with."""
        self.spares = [deputy.node for deputy in standing.deputies[standing.size :]]
        for slot, deputy in enumerate(standing.deputies):
            if slot < standing.size:
                self.members[deputy.node] = slot
            if deputy.in_base:
                self.base.add(deputy.node)
            self.addresses.setdefault(deputy.node, deputy.address)

    def begin(self, standing: Standing, sizes: Mapping[str, int]) -> None:
        """Turn to a round that starts now; `sizes` says how many workers each member has, in slot order."""
        self.last = standing
        self.members = {node: slot for slot, node in enumerate(sizes)}
        self.sizes = dict(enumerate(sizes.values()))
        self.spares = [deputy.node for deputy in standing.deputies[standing.size :]]
        self.gone = {node: at for node, at in self.gone.items() if node not in self.members}
        self.settled = set()
        self.finished = set()
        self.is_started = True
        self.announced = []

    def announce(self, nodes: tuple[str, ...]) -> None:
        """Remember whom a round was announced with: until one starts, they might go on with it without us."""
        if not self.has_round:
            self.announced.append(nodes)

    def note_heard(self, node: str, since: float) -> None:
        """Note that a node still held to us at some moment: it answered what we sent then."""
        self.heard[node] = max(self.heard.get(node, quorum.NEVER), since)

    def come_back(self, join: Join) -> None:
        """Note where a node is that is here, whatever was said of it before."""
        self.hosts[join.node] = join.host
        self.addresses[join.node] = join.address
        self.gone.pop(join.node, None)
        self.dead.pop(join.node, None)

    def gone_for_good(self, now: float) -> set[str]:
        """Return who has said goodbye, and whose death was proven so long ago that none of its workers is left."""
        return self.gone.keys() | {node for node, at in self.dead.items() if now >= at + DEAD_S}

    def leave(self, nodes: frozenset[str], now: float) -> bool:
        """Take the word of members, said in the store, that they have left; tell whether that was news.

        Not of one that has been here, at once: others may have thought it dead, and mostly its goodbye comes to us, too.
        """
        absent = {node for node in nodes if node not in self.here and node not in self.hosts}
        news = {node for node in absent if node not in self.gone or node not in self.members}
        free = (slot for slot in range(self.last.size) if slot not in self.members.values())
        for node in sorted(news - self.members.keys()):  # of a large round a leader may know some by nothing else
            self.members[node] = next(free, 0)
        self.gone |= dict.fromkeys(news, now)
        return bool(news)

    def forget_strangers(self) -> None:
        """Forget nodes that neither are here nor had, or may have, a say in the newest round."""
        told = (node for nodes in self.announced for node in nodes)
        kept = {*self.members, *self.base, *self.spares, *self.here, *told}
        self.addresses = {node: address for node, address in self.addresses.items() if node in kept}
        self.hosts = {node: host for node, host in self.hosts.items() if node in kept}
        self.heard = {node: at for node, at in self.heard.items() if node in kept}
        self.answered = {node: at for node, at in self.answered.items() if node in kept}
        self.dead = {node: at for node, at in self.dead.items() if node in kept}
        self.gone = {node: at for node, at in self.gone.items() if node in kept}

    # What follows.

    @property
    def has_round(self) -> bool:
        """Tell whether a round was ever started in this run, as far as we know."""
        return self.last.round >= 0

    def size(self) -> int:
        """Count the members of the newest round that may still be alive somewhere."""
        return self._left_of(self.members, self.last.size)

    def present(self) -> int:
        """Count the members that are here."""
        return sum(1 for node in self.members if node in self.here)

    def has_unknown(self) -> bool:
        """Tell whether the round has members of whom we do not even know the name."""
        return self.last.size > len(self.members)

    def has_enough(self, now: float) -> bool:
        """Tell whether the members that are here may decide for the others."""
        sets = [(list(self.members), self.size()), *self._others_to_ask()]
        return all(self.is_enough(sum(node in self.here for node in nodes), nodes, size, now) for nodes, size in sets)

    def is_enough(self, count: int, nodes: Iterable[str], size: int, now: float) -> bool:
        """Tell whether `count` of some nodes, `size` of which are not gone, may decide for the others."""
        helped = self.tie_until > now and quorum.is_enough(count, size + self._doubtful(nodes), tie_break=True)
        return helped or quorum.is_enough(count, size, tie_break=False)

    def _doubtful(self, nodes: Iterable[str]) -> int:
        """Count the dead: half of the others is not enough without them.

        One of them may have gone over to another leader and made it one, unseen by us, before it died: then that one counts
        half of the others for enough as we do, and they can be the other half. A store names one leader at a time. One
        that was emptied may name another while the first still leads by what it was granted: see `fence_floor`, in `stored.py`.
        """
        return 0 if self.settings.external else sum(node in self.dead and node not in self.gone for node in nodes)

    def _others_to_ask(self) -> list[tuple[list[str], int]]:
        """Return further sets of nodes, with their sizes, of each of which enough have to agree.

        A round that may not have started is not the word of those alone who were told of it: the members of the round
        before decide, too. And until a first round has started, so do all with whom one was announced.
        """
        found = [(list(nodes), self._left_of(nodes, len(nodes))) for nodes in self.announced]
        if self.has_round and not self.is_started:
            found.append((list(self.base), max(self._left_of(self.base, self.last.base), 0)))
        return found

    def _left_of(self, nodes: Iterable[str], size: int) -> int:
        return size - sum(node in self.gone or node in self.dead for node in nodes)

    def before(self) -> tuple[Iterable[str], int]:
        """Return the members of the last round that has begun, for all we know, and how many of it may still be alive.

        Whoever goes on with a round that is announced now has to have more than half of them, as those have who were never
        told of it: so both cannot be. Until one has begun, the very first that was announced takes that place.
        """
        if not self.has_round:
            first = self.announced[0] if self.announced else self.members
            return first, self._left_of(first, len(first))
        if self.is_started or (self.last.begun < 0 and not self.last.base):
            return self.members, max(self.size(), 0)
        return self.base, max(self._left_of(self.base, self.last.base), 0)

    def valid_until(self, now: float) -> float:
        """Return how long those who are known to hold to us are enough for the newest round."""
        size = self.size()
        if size > 0 or not self.has_round:
            sets = [(list(self.members), size), *self._others_to_ask()]
            return min(self.valid_for(nodes, count, now, self._doubtful(nodes)) for nodes, count in sets)
        if self.settings.external:
            return self.tie_until
        # Every member is dead or gone: those who stood by decide.
        spares = self.spares_alive()
        return self.valid_for(spares, len(spares), now, self._doubtful(self.spares))

    def spares_alive(self) -> list[str]:
        """Return the spectators that the round was announced with and that are not known to be gone."""
        return [node for node in self.spares if node not in self.gone and node not in self.dead]

    def spares_away(self) -> list[str]:
        """Return those of them who are not here."""
        return [node for node in self.spares_alive() if node not in self.here]

    def valid_for(self, nodes: Iterable[str], size: int, now: float, doubtful: int = 0) -> float:
        """Return how long those of `nodes` who are known to hold to us are enough for a round of `size`."""
        heard = self._heard_from(nodes, now)
        alone = quorum.valid_until(heard, size, self.settings.lease_s, tie_break=False)
        helped = quorum.valid_until(heard, size + doubtful, self.settings.lease_s, tie_break=True)
        return max(alone, min(helped, self.tie_until))

    def has_majority(self, now: float) -> bool:
        """Tell whether more than half of the round is known to hold to us."""
        heard = self._heard_from(self.members, now)
        return quorum.valid_until(heard, max(self.size(), 0), self.settings.lease_s, tie_break=False) > now

    def _heard_from(self, nodes: Iterable[str], now: float) -> list[float]:
        """Return until when each of those who still count is known to hold to us; ourselves we hear now."""
        own = self.settings.node
        left = [node for node in nodes if node not in self.gone and node not in self.dead]
        return [now if node == own else self.heard[node] for node in left if node == own or node in self.heard]

    def absent(self) -> Iterator[str]:
        """Yield the members that are not here and may have workers."""
        return (node for node in self.missing() if node not in self.settled and node not in self.finished)

    def missing(self) -> Iterator[str]:
        """Yield the members that are not here, also those whose workers are known to be dead."""
        for node in self.members:
            if node not in self.here and node not in self.gone and node not in self.dead:
                yield node

    def announced_and_away(self) -> Iterator[str]:
        """Yield those who heard of a first round that never started, and are not here."""
        for nodes in self.announced:
            for node in nodes:
                if node not in self.here and node not in self.gone and node not in self.dead:
                    yield node

    def floor(self) -> float:
        """Return the moment from which on no other leader can have granted a lease that outlives its own right.

        Such a leader needs half of a round, so it needs somebody of more than half. Those who are here counted for another
        until `fence_floor`. Where they are more than half only because others are gone, those counted for one until they
        went, and we know no more of that moment than when we heard of it. The later of them may not matter.
        """
        if not (self.gone or self.dead):
            return self.fence_floor
        sets = [(list(self.members), self.size()), *self._others_to_ask()]
        return max(self.fence_floor, *(self._counted_until(nodes, left) for nodes, left in sets))

    def _counted_until(self, nodes: list[str], left: int) -> float:
        """Return when the last of those went without whom the nodes that are here are more than half; `left` are not gone."""
        known = self.dead | self.gone
        went = sorted(known[node] for node in nodes if node in known)
        present = sum(node in self.here for node in nodes)
        for count, at in enumerate((quorum.NEVER, *went)):
            if quorum.is_enough(present, left + len(went) - count, tie_break=False):
                return at
        return max(went, default=quorum.NEVER)

    def fenced_at(self, node: str, floor: float | None = None) -> float:
        """Return when a node that is not here has killed its workers for certain. Whoever asks for many knows the `floor`."""
        since = self.floor() if floor is None else floor
        return max(since, self.answered.get(node, quorum.NEVER)) + self.settings.silence_s

    def fences(self) -> list[float]:
        """Return when each of those who are not here is fenced."""
        floor = self.floor()
        found = [self.fenced_at(node, floor) for node in self.absent()]
        if self.has_unknown():
            found.append(floor + self.settings.silence_s)
        return found

    def may_exclude(self, now: float) -> bool:
        """Tell whether we may go on without the silent: they cannot be the side that goes on without us."""
        return self.has_enough(now) or self.settings.on_lost_majority == "continue"

    def name(self, node: str) -> str:
        """Return what people call a node."""
        return self.hosts.get(node) or node.rpartition("-")[0] or node
