"""What the anchor of a round decides about commits: where all members begin, what is complete, copied and written. Pure.

The anchor is the agent of slot 0: a member like the others, so when it dies the round is over anyway. A node alone is its own.

Completeness is evidence: at the beginning of a round its members tell which parts they hold, and the newest commit of which the
parts of all ranks are found is where everybody begins. While training goes on the council only has to say what is complete, so
that older parts may be overwritten, and which commit is copied to buddies and written to disk next: the newest, one at a time.
"""

from __future__ import annotations

from planaria.agent.council_messages import (
    Complete,
    Copied,
    Damaged,
    Drop,
    Failed,
    Plan,
    Present,
    Reached,
    Ready,
    Sealed,
    Search,
    Searched,
    Seek,
    Source,
    Unreached,
    Unsealed,
    Void,
    Welcome,
    Written,
    order_of,
)
from planaria.agent.holdings import Holdings
from planaria.agent.members import Members, orders
from planaria.agent.tally import Tally
from planaria.agent.task import BUDDY, DISK, Task, request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.agent.council_messages import Ruling, Saying
    from planaria.contract.commit import Order

    Rulings = list[tuple[int, Ruling]]

MOST_SEALED = 64  # commits that one member may be ahead of the others before it is no member of ours


class Council:
    """One round's. `hear` takes what a member says and returns what members are told, by slot."""

    def __init__(self, round_: int, size: int, world_size: int, *, has_directory: bool, has_buddies: bool) -> None:
        self._round = round_
        self._size = size
        self._members = Members(size, world_size)
        self._tiers = (*((BUDDY,) if has_buddies and size > 1 else ()), *((DISK,) if has_directory else ()))
        self._commits: dict[Order, Holdings] = {}
        self._is_searching = False
        self._run = self._told_run = 0
        self._version = self._moved = 0
        self._kind = ""
        self._begin: Order | None = None
        self._plans: dict[int, Plan] = {}
        self._ready: set[int] = set()
        self._sent_to: dict[tuple[int, int], int] = {}  # by slot and rank: a holder that is tried after another
        self._tally = Tally(size)
        self._complete: Order | None = None
        self._facts: dict[Order, tuple[int, int]] = {}  # step and world size of what is complete
        self._reached: dict[str, Order | None] = {}
        self._failed: dict[str, Order] = {}
        self._tasks: dict[str, Task] = {}
        self._last_task = 0

    def hear(self, slot: int, message: Saying) -> Rulings:
        """Take what the member of a slot says.

        Raises:
            ValueError: No member of this round says so.
        """
        match message:
            case Present():
                return self._welcome(slot, message)
            case _ if not self._members.are_all_here:
                raise ValueError("not everybody is present")
            case Ready(version):
                return self._on_ready(slot, version)
            case Sealed() | Unsealed():
                return self._on_worked(slot, message) if self._counts(message.version) else []
            case Copied(number, why):
                return self._on_answer(BUDDY, slot, number, why)
            case Written(number, is_whole, why):
                return self._on_answer(DISK, slot, number, why, is_whole=is_whole)
            case Damaged(numbers, rank, holder) | Unreached(numbers, rank, holder):
                lacks = self._on_damage if isinstance(message, Damaged) else self._on_unreached
                return lacks(slot, _known(numbers), rank, holder)
            case Seek():
                return self._decide() if self._kind == "unknown" else []
            case Searched() if slot == 0:  # who alone was asked
                return self._on_searched(message)
        raise ValueError("not for a member to say")

    def missing(self) -> tuple[int, ...]:
        """Return the slots whose word is missing for the next commit to be complete; none where nobody has sealed one."""
        if not self._members.are_all_here:
            return self._members.missing()
        return self._tally.missing()

    @property
    def void_count(self) -> int:
        """Return how many commits since the last complete one are void, as far as anybody has to know that."""
        return len(self._tally.void)

    @property
    def place(self) -> tuple[bool, Order | None]:
        """Return how far the round has come: whether everybody is present, and the newest commit that is complete."""
        return self._members.are_all_here, self._complete

    def address_of(self, slot: int) -> str:
        """Return where the agent of a slot is, as the one before it has told; empty where it has not."""
        return self._members.address_of(slot)

    # Where everybody begins.

    def _welcome(self, slot: int, present: Present) -> Rulings:
        members = self._members
        if members.has(slot) and present.slot == slot:
            return self._again(slot) if members.are_all_here else []
        members.add(slot, present)
        if not members.are_all_here:
            return []
        for at, part in members.parts():
            self._commits.setdefault(part.order, Holdings(part.step, part.world_size)).note(at, part)
        self._run = self._choose_run()
        self._reached[DISK] = max(members.on_disk(), default=None)
        return self._decide()

    def _again(self, slot: int) -> Rulings:
        """Tell a member that was out of reach what counts; in this order, so that it still has what it is asked for."""
        told: list[Ruling] = [Welcome(self._run), self._plans[slot]] if self._plans else []
        told += [
            Reached(tier, order, *self._facts[order]) for tier, order in self._reached.items() if order in self._facts
        ]
        for tier, task in self._tasks.items():
            if slot in task.asked and slot not in task.answers:
                told.append(request(tier, task, slot))
        if self._complete is not None and self._complete != self._begin:
            told.append(Complete(self._complete, self._facts[self._complete][0]))
        told += [Void(order, why) for order, why in self._tally.void.items()]
        return [(slot, one) for one in told]

    def _choose_run(self) -> int:
        """Return the run that goes on, or the next; the next also where rounds were counted anew: an order must be newer."""
        run = self._members.run or 1
        known = (*self._commits, *self._members.complete().values(), *self._members.on_disk())
        newest = max((order[:2] for order in known), default=(0, 0))
        return newest[0] + 1 if newest >= (run, self._round) else run

    def _count_on(self, newest: Order | None) -> None:
        """Choose a later run than any that the directory knows, where ours is new or would make older orders than it has."""
        is_new = not self._members.run
        has_begun = self._complete is not None and self._complete[:2] == (self._run, self._round)
        if newest is not None and not has_begun and (is_new or newest[:2] >= (self._run, self._round)):
            self._run = newest[0] + 1

    def _best(self) -> Order | None:
        return max((order for order, commit in self._commits.items() if commit.is_covered), default=None)

    def _decide(self) -> Rulings:
        """Choose what everybody begins from, after a look at the directory where that may have something newer."""
        best = self._best()
        # Who was in the round before this one knows what was complete in it; if nobody was, nobody may know.
        is_sure = self._members.last_round + 1 >= self._round
        known = [self._reached.get(DISK) or (), *self._members.complete().values()]
        if DISK in self._tiers and (best is None or not is_sure or max(known) > best):
            self._kind, self._is_searching = "", True
            return [(0, Search(best or ()))]
        return self._announce("memory", best) if best is not None else self._announce("none", None)

    def _on_searched(self, found: Searched) -> Rulings:
        if not self._is_searching:
            return []
        self._is_searching = False
        best, on_disk, order = self._best(), self._reached.get(DISK), order_of(found.order)
        if found.why and (best is None or (on_disk is not None and on_disk > best)):
            return self._announce("unknown", None, found.why)
        self._reached[DISK] = None
        self._count_on(order_of(found.newest))
        if order is not None and (best is None or order > best):
            self._facts[order] = found.step, found.world_size
            self._reached[DISK] = order
            return self._announce("disk", order)
        return self._announce("memory", best) if best is not None else self._announce("none", None)

    def _announce(self, kind: str, order: Order | None, why: str = "") -> Rulings:
        teller = self._who_tells(order) if kind != "unknown" else None
        if self._plans and order != self._begin:
            self._moved = self._version  # whoever began there is to begin again
            self._tally = Tally(self._size)
        self._version += 1
        self._kind, self._begin, self._ready = kind, order, set()
        self._tasks.pop(BUDDY, None)
        safe = None
        if kind == "memory" and order is not None:
            safe = max((one for one in self._members.safe() if one <= order and self._is_covered(one)), default=None)
            self._facts[order] = self._commits[order].step, self._commits[order].world_size
            self._complete = order
        if kind != "unknown":
            self._commits = {one: found for one, found in self._commits.items() if one in (order, safe)}
        self._plans = {slot: self._plan_for(slot, safe, why, is_loss=slot == teller) for slot in range(self._size)}
        welcome = self._all(Welcome(self._run)) if self._run != self._told_run else []
        self._told_run = self._run
        return [*welcome, *self._plans.items()]

    def _is_covered(self, order: Order) -> bool:
        return order in self._commits and self._commits[order].is_covered

    def _who_tells(self, order: Order | None) -> int | None:
        """Return who knew of a newer commit to be complete, so that it can tell what is lost; None where nothing is."""
        if self._kind == "memory" and self._begin is not None:
            return 0 if order is None or order < self._begin else None
        known = {slot: one for slot, one in self._members.complete().items() if one > (order or ())}
        return max(known, key=lambda slot: (known[slot], -slot), default=None)

    def _plan_for(self, slot: int, safe: Order | None, why: str, *, is_loss: bool) -> Plan:
        order = self._begin
        step, world_size = self._facts[order] if order is not None else (0, 0)
        shared, fetch = 0, tuple[Source, ...]()
        if self._kind == "memory" and order is not None:
            shared, fetch = self._lacking(slot, self._commits[order])
        return Plan(
            self._version,
            self._kind,
            order or (),
            step,
            world_size,
            shared,
            safe or (),
            fetch,
            self._members.ring(slot),
            is_loss,
            why,
        )

    def _lacking(self, slot: int, commit: Holdings) -> tuple[int, tuple[Source, ...]]:
        """Return the rank whose part has what is shared for this member, and which parts it does not hold."""
        own = self._members.ranks_of(slot)
        shared = commit.shared_for(own.start)
        needed = sorted({shared, *(rank for rank in own if rank < commit.world_size)})
        fetch = []
        for rank in needed:
            holders = commit.holders[rank]
            if slot not in holders:
                at = self._sent_to.get((slot, rank), -1)
                at = at if at in holders else holders[slot % len(holders)]
                fetch.append(Source(rank, at, self.address_of(at), rank in commit.shared, commit.sizes[rank]))
        return shared, tuple(fetch)

    def _on_ready(self, slot: int, version: int) -> Rulings:
        if version != self._version or slot in self._ready:
            return []
        self._ready.add(slot)
        if self._begin is not None and self._kind == "memory":
            for source in self._plans[slot].fetch:
                self._commits[self._begin].holders[source.rank].append(slot)
        return self._progress()

    def _on_damage(self, _slot: int, order: Order, rank: int, holder: int) -> Rulings:
        """Do without a part; while all stand at that commit, from another holder or from another commit."""
        commit = self._commits.get(order)
        if commit is None or holder not in commit.holders.get(rank, ()):
            return []
        commit.holders[rank].remove(holder)
        told: Rulings = [(holder, Drop(order, rank))]
        if self._kind == "memory" and order == self._begin == self._complete:
            self._complete = self._reached[BUDDY] = None
            return [*told, *self._decide()]
        return told

    def _on_unreached(self, slot: int, order: Order, rank: int, holder: int) -> Rulings:
        """Send a member to the next holder of a part that it cannot get. If there is none, it goes on trying there."""
        plan = self._plans.get(slot)
        is_asked = plan is not None and any((one.rank, one.slot) == (rank, holder) for one in plan.fetch)
        if not is_asked or self._kind != "memory" or not order == self._begin == self._complete:
            return []
        holders = self._commits[order].holders[rank]
        if len(holders) < 2:
            return []
        self._sent_to[slot, rank] = holders[(holders.index(holder) + 1) % len(holders)]
        return self._announce("memory", order)

    # What is complete, and how far it has come.

    def _counts(self, version: int) -> bool:
        """Tell whether who began from this version of the plan began where all do now."""
        return version > self._moved and version <= self._version

    def _on_worked(self, slot: int, message: Sealed | Unsealed) -> Rulings:
        """Take in what the workers of a member have sealed, or will not. What is complete all of them have sealed."""
        order = _known(message.order)
        if order[:2] != (self._run, self._round):
            raise ValueError("a commit of another round")
        if self._complete is not None and order <= self._complete:
            return []
        if isinstance(message, Sealed):
            return self._on_sealed(slot, order, message.step)
        if self._tally.reject(order, message.why):
            return self._all(Void(order, message.why))
        return [(slot, Void(order, self._tally.void[order]))]

    def _on_sealed(self, slot: int, order: Order, step: int) -> Rulings:
        tally = self._tally
        if tally.count(slot) >= MOST_SEALED:
            raise ValueError("too many commits that the others do not have")
        found = tally.seal(slot, order, step, self._members.ranks_of(slot).start)
        told = [one for void, why in found.items() for one in self._all(Void(void, why))]
        if order in tally.void and order not in found:  # it sealed before it could hear that
            told.append((slot, Void(order, tally.void[order])))
        if not tally.is_whole(order):
            return told
        self._complete = order
        self._facts[order] = tally.step(order), self._members.world_size
        tally.complete(order)
        return [*told, *self._all(Complete(order, self._facts[order][0])), *self._progress()]

    def _progress(self) -> Rulings:
        """Send the newest complete commit on its way to each tier where nothing is on its way."""
        order = self._complete
        told: Rulings = []
        if order is None or (order == self._begin and len(self._ready) < self._size):
            return told
        for tier in self._tiers:
            done = max(orders([self._reached.get(tier) or (), self._failed.get(tier, ())]), default=None)
            if tier in self._tasks or (done is not None and done >= order):
                continue
            self._last_task += 1
            task = self._tasks[tier] = Task(self._last_task, order, self._shares(tier, order))
            # Whoever has nothing to copy keeps what it has of the commit until that is safe, so everybody is asked.
            if any(task.ranks.values()):
                task.asked = {slot for slot, ranks in task.ranks.items() if ranks or tier == BUDDY}
            told += [(slot, request(tier, task, slot)) for slot in sorted(task.asked)]
            told += self._conclude(tier)
        keep = {order, self._begin, *self._reached.values(), *(task.order for task in self._tasks.values())}
        self._facts = {one: fact for one, fact in self._facts.items() if one in keep}
        return told

    def _shares(self, tier: str, order: Order) -> dict[int, tuple[int, ...]]:
        """Return the ranks that each slot copies or writes: its own, or of a commit of an earlier round one holder's each."""
        if order != self._begin:
            return {slot: tuple(self._members.ranks_of(slot)) for slot in range(self._size)}
        holders = self._commits[order].holders
        alone = [rank for rank, slots in holders.items() if tier == DISK or len(slots) == 1]
        return {slot: tuple(rank for rank in alone if holders[rank][0] == slot) for slot in range(self._size)}

    def _on_answer(self, tier: str, slot: int, number: int, why: str, *, is_whole: bool = False) -> Rulings:
        task = self._tasks.get(tier)
        if task is None or task.number != number:
            return []
        task.answers[slot] = why
        task.is_whole |= is_whole
        return [*self._conclude(tier)]

    def _conclude(self, tier: str) -> Rulings:
        """End what is on its way to a tier once everybody has answered, and send the next."""
        task = self._tasks[tier]
        if not task.asked <= task.answers.keys():
            return []
        del self._tasks[tier]
        why = next((one for one in task.answers.values() if one), "")
        is_news = tier == BUDDY or not why
        if not why and tier == DISK and not task.is_whole:
            why = "every node has written its part, and no commit is whole: is it one directory that all nodes share?"
        if why:
            self._failed[tier] = task.order
            return [*self._all(Failed(tier, task.order, is_news, why)), *self._progress()]
        self._reached[tier] = task.order
        if tier == BUDDY and task.order == self._begin and task.order in self._commits:
            for slot, ranks in task.ranks.items():
                for rank in ranks:
                    self._commits[task.order].holders[rank].append((slot + 1) % self._size)
        return [*self._all(Reached(tier, task.order, *self._facts[task.order])), *self._progress()]

    def _all(self, message: Ruling) -> Rulings:
        return [(slot, message) for slot in range(self._size)]


def _known(numbers: tuple[int, ...]) -> Order:
    found = order_of(numbers)
    if found is None:
        raise ValueError("no commit is named")
    return found
