"""This node in the council of one round: it says what it holds and what was sealed, and does what is ruled."""

from __future__ import annotations

from planaria.agent.chores import Chores
from planaria.agent.council_messages import (
    Complete,
    Copy,
    Damaged,
    Drop,
    Failed,
    Part,
    Plan,
    Present,
    Reached,
    Ready,
    Search,
    Seek,
    Unreached,
    Void,
    Welcome,
    Write,
    decode,
    encode,
    order_of,
)
from planaria.agent.errands import Fetch, Road, damage_of, settle
from planaria.agent.seals import Seals
from planaria.agent.stock import part_in
from planaria.base.text import safe_line
from planaria.base.value import Value
from planaria.contract.commit import Stamp
from planaria.errors import StateRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable
    from typing import Protocol

    from planaria.agent.council_messages import Message, Saying, Source
    from planaria.agent.disk import Disk
    from planaria.agent.errands import Aside, Cancelled, Loop
    from planaria.agent.errands import Dock as Carrier
    from planaria.agent.hall import Hall, Line
    from planaria.agent.ledger import Ledger
    from planaria.agent.rounds import Neighbours
    from planaria.agent.stock import Stock
    from planaria.contract.commit import Order
    from planaria.contract.env import Round

    class Dock(Carrier, Protocol):
        """What a delegate needs of a dock: see `agent/dock.py`."""

        def attend(
            self,
            address: str,
            round: int,  # noqa: A002  # the word of the domain
            header: object,
            on_message: Callable[[object], object],
            on_lost: Callable[[str], object],
        ) -> Line:
            """Open a line to an anchor."""


MOST_PARTS = 1500  # 200 kB of a header that may have 256; older ones than those of so many ranks nobody needs
LONGEST_LINE = 1000
TELL_AFTER = 50  # lost lines in a row: ten seconds or more
AGAIN = {"node": "count", "buddy": "are copied to another node", "disk": "reach the disk"}
AGAIN_S = 0.2  # after a line was lost: the anchor may not be in this round yet


class Gear(Value):
    """What a delegate works with. `say` tells people a line, `on_change` the keeper that something may go on."""

    loop: Loop
    stock: Stock
    disk: Disk | None
    dock: Dock | None
    ledger: Ledger
    aside: Aside
    say: Callable[[str], object]
    on_change: Callable[[], object]


class Delegate:
    """One round's. `hall` is the council's where this node is the anchor. `plan` is None until there is one."""

    def __init__(self, life: Round, neighbours: Neighbours, gear: Gear, has_buddies: bool) -> None:
        self._life = life
        self._neighbours = neighbours
        self._gear = gear
        self._stock = gear.stock
        self.has_buddy = has_buddies and bool(neighbours.buddy)
        self.run = 0
        self.plan: Plan | None = None
        self.is_ready = False
        self.trouble = ""  # why the plan cannot be followed here
        self.failed: dict[str, Order] = {}
        self._told: set[str] = set()  # tiers that were said to fail
        self._unanswered: list[Damaged | Seek] = []  # what a newer plan has to follow upon
        self._fetches: dict[Source, Fetch] = {}
        self._unreached: set[str] = set()  # where somebody was said to be out of reach
        self._hall: Hall | None = None
        self._line: Line | None = None
        self._losses = 0  # of lines, since we were heard
        self._timer: Cancelled | None = None
        self.is_over = False
        self._present = self._who_is_here()
        self._stock.slots.has_buddy = self.has_buddy
        dock = gear.dock
        self._road = None if dock is None else Road(gear.loop, dock, gear.stock, gear.aside, life.number)
        road = self._road if self.has_buddy else None
        self.chores = Chores(gear.stock, gear.disk, road, neighbours.buddy, self._send)
        self.seals = Seals(life, gear.stock, self._send)

    def _who_is_here(self) -> Present:
        life, ledger = self._life, self._gear.ledger
        newest = sorted(self._stock.parts(), key=lambda part: part.order, reverse=True)
        return Present(
            slot=life.group_rank,
            first_rank=life.first_rank,
            local_world_size=life.local_world_size,
            buddy=self._neighbours.buddy,
            run=ledger.run,
            last_round=ledger.last_round,
            parts=tuple(newest[:MOST_PARTS]),
            complete=ledger.order("node"),
            safe=ledger.order("buddy"),
            disk=ledger.order("disk"),
        )

    @property
    def directory(self) -> str:
        """Return where commits on disk are, empty without one."""
        return self._gear.disk.directory if self._gear.disk is not None else ""

    def begin(self, hall: Hall | None) -> None:
        """Take part: in our own hall, or over a line to the anchor's."""
        self._hall = hall
        if hall is not None:
            hall.hear(0, self._present)
        else:
            self._attend()

    def _attend(self) -> None:
        if self._gear.dock is not None and not self.is_over:
            self._line = self._gear.dock.attend(
                self._neighbours.anchor, self._life.number, encode(self._present), self._on_message, self._on_lost
            )

    def _on_lost(self, why: str) -> None:
        self._line = None
        self._losses += 1
        if self._losses == TELL_AFTER:
            self._say(f"{self._neighbours.anchor}, which keeps the books of commits, does not hear this node: {why}")
        self._timer = self._gear.loop.call_later(AGAIN_S, self._attend)

    def _on_message(self, value: object) -> None:
        try:
            message = decode(value)
        except ValueError:
            if self._line is not None:
                self._line.close()
            self._on_lost("it makes no sense")
            return
        self.hear(message)

    def _send(self, message: Saying) -> None:
        if self._hall is not None:
            self._hall.hear(0, message)
        elif self._line is not None:
            self._line.send(encode(message))

    def close(self) -> None:
        """End this node's part in the round."""
        self.is_over = True
        self._cancel()
        self.chores.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._line is not None:
            self._line.close()

    def _cancel(self, but: Container[Source] = ()) -> None:
        self.chores.cancel()
        for source in [one for one in self._fetches if one not in but]:
            self._fetches.pop(source).cancel()

    # What the council rules.

    def hear(self, message: Message) -> None:
        """Do what is ruled."""
        if self.is_over:
            return
        match message:
            case Welcome(run):
                self._on_welcome(run)
            case Plan():
                self._on_plan(message)
            case Copy():
                self.chores.copy(message)
            case Write():
                self.chores.write(message)
            case Search():
                self.chores.search(message)
            case Drop() | Complete() | Void() | Reached() | Failed():
                order = order_of(message.order)
                if order is not None:
                    self._on_news(message, order)
        self._gear.on_change()

    def _on_news(self, message: Drop | Complete | Void | Reached | Failed, order: Order) -> None:
        match message:
            case Drop(_, rank):
                self._doubt(order, rank)
            case Complete(_, step):
                self._note("node", order, step, self._life.world_size)
            case Void(_, why):
                self._on_void(order, why)
            case Reached(tier, _, step, world_size):
                self._note(tier, order, step, world_size)
            case Failed():
                self._on_failed(message, order)

    def _doubt(self, order: Order, rank: int) -> None:
        """Do without a part that somebody could not read, until it turns out to be whole: it may be the last one."""
        slots = self._stock.slots
        slot = slots.find(order, rank)
        if slot is None:
            return
        part, slot.stamp = part_in(slot), None
        try:
            view, release = self._stock.view(slot), self._stock.hold(slot)
        except StateRefused as problem:
            self._say(f"the part of rank {rank} cannot be read here either: {problem.message}")
            return

        def looked(why: str) -> None:
            is_needed = order in (slots.complete, slots.safe) and slots.find(order, rank) is None
            if not why and is_needed and not self.is_over:
                settle(slot, part)
            release()

        self._gear.aside(lambda: damage_of(view, part), looked)

    def _on_welcome(self, run: int) -> None:
        """Say what counts: what was said before may not have been heard."""
        self.run = self.seals.run = self._gear.ledger.run = run
        if self._gear.disk is not None:
            self._gear.disk.writer = run, self._life.number
        self._losses = 0
        self._gear.ledger.last_round = self._life.number
        if self.plan is not None and self.is_ready:
            self._send(Ready(self.plan.version))
        self.seals.repeat()
        for message in self._unanswered:
            self._send(message)
        self.chores.repeat()

    def _on_plan(self, plan: Plan) -> None:
        if self.plan is not None and plan.version == self.plan.version:
            if self.is_ready:
                self._send(Ready(plan.version))
            return
        before, self.plan = self.plan, plan
        self.seals.version = plan.version
        self.is_ready, self.trouble = False, ""
        self._unanswered.clear()
        order = order_of(plan.order)
        # The same commit from other holders leaves what was sealed since then, and what is on its way, as it is.
        is_same = before is not None and (before.kind, before.order) == (plan.kind, plan.order)
        self._cancel(but=plan.fetch if is_same else ())
        if plan.kind != "unknown" and not is_same:
            self._begin_from(plan, order)
        for source in plan.fetch:
            if order is not None and source not in self._fetches and self._stock.slots.find(order, source.rank) is None:
                self._fetch(plan, order, source)
        self._look_ready()

    def _begin_from(self, plan: Plan, order: Order | None) -> None:
        in_memory = order if plan.kind == "memory" else None
        newest = self._gear.ledger.newest
        if plan.is_loss and "node" in newest:
            where = f"at step {plan.step}" if order is not None else "anew"
            self._say(f"step {newest['node'].step} was complete and is lost; all begin {where}")
        self._stock.begin(in_memory, order_of(plan.safe))
        self.seals.begin()
        for tier in ("node", "buddy"):
            self._gear.ledger.forget_since(tier, in_memory)
        if order is not None:
            self._remember("node" if in_memory else "disk", order, plan.step, plan.world_size)

    def _fetch(self, plan: Plan, order: Order, source: Source) -> None:
        assert self._road is not None
        part = Part(*order, plan.step, plan.world_size, source.rank, source.shared, source.size_bytes)
        self._fetches[source] = Fetch(
            self._road,
            source.address,
            part,
            lambda why: self._fetched(order, source, why),
            lambda why: self._on_trouble(source, why),
            lambda why: self._on_unreached(order, source, why),
        )

    def _on_unreached(self, order: Order, source: Source, why: str) -> None:
        """Tell the council, which may know somebody else; nobody has to answer, it is told again after a while."""
        if source.address not in self._unreached:
            self._unreached.add(source.address)
            self._say(
                f"{source.address}, which has the part of rank {source.rank}, is out of reach: {why}; "
                "it is tried again, and every other node that has it; restore() waits for that"
            )
        self._send(Unreached(order, source.rank, source.slot))

    def _fetched(self, order: Order, source: Source, why: str) -> None:
        self._fetches.pop(source, None)
        if why:
            self._say(f"the part of rank {source.rank} cannot be had from {source.address}: {why}")
            self._insist(Damaged(order, source.rank, source.slot))
        self._look_ready()
        self._gear.on_change()

    def _on_trouble(self, source: Source, why: str) -> None:
        self._fetches.pop(source, None)
        self.trouble = why
        self._gear.on_change()

    def _look_ready(self) -> None:
        plan = self.plan
        if plan is None or self.is_ready or plan.kind == "unknown":
            return
        order = order_of(plan.order)
        lacking = [one for one in plan.fetch if order is None or self._stock.slots.find(order, one.rank) is None]
        if not lacking:
            self.is_ready = True
            self._send(Ready(plan.version))

    def _note(self, tier: str, order: Order, step: int, world_size: int) -> None:
        slots = self._stock.slots
        slots.note_complete(order)
        self.seals.complete(order)
        if tier == "buddy" and (slots.safe is None or order > slots.safe):
            slots.safe, slots.is_stuck = order, False
        self._stock.tidy()
        self._remember(tier, order, step, world_size)
        if tier in self._told:
            self._told.discard(tier)
            self._say(f"commits {AGAIN[tier]} again")

    def _remember(self, tier: str, order: Order, step: int, world_size: int) -> None:
        newest = self._gear.ledger.newest
        if tier not in newest or order > newest[tier].order:
            newest[tier] = Stamp(*order, step, world_size, self._life.first_rank)

    def _on_void(self, order: Order, why: str) -> None:
        self.seals.ruled_void(order, why)
        if why and self._life.group_rank == 0 and "node" not in self._told:
            self._told.add("node")
            self._say(f"a commit does not count: {why}")

    def _on_failed(self, failed: Failed, order: Order) -> None:
        tier, why = failed.tier, failed.why
        self.failed[tier] = max(order, self.failed.get(tier, order))
        if tier == "buddy":
            self._stock.slots.is_stuck, self._stock.slots.copying = True, None
        # A disk that fails has been told of where it did. All nodes hear of the rest; one of them tells it.
        if self._life.group_rank == 0 and tier not in self._told and failed.is_news:
            self._told.add(tier)
            where = "copied to another node" if tier == "buddy" else "on disk"
            self._say(f"commits are not {where}: {why}; training goes on, the next commit is tried")

    # What this node says.

    def hand_over(self, on_done: Callable[[bool], object]) -> None:
        """Bring what only this node may have to one that stays; tell whether it is there."""
        self.chores.hand_over(self.plan.ring if self.plan is not None else (), on_done)

    def seek(self) -> None:
        """Say that a worker asks again, after nobody knew what to begin from."""
        self._insist(Seek())

    def report_damage(self, order: Order, ranks: Iterable[int]) -> None:
        """Say that this node's own copies of these parts cannot be read."""
        for rank in ranks:
            self._stock.forget(order, rank)
            self._insist(Damaged(order, rank, self._life.group_rank))

    def _insist(self, message: Damaged | Seek) -> None:
        """Say what has to be answered by a plan, and again whenever a line was lost before that."""
        if message not in self._unanswered:
            self._unanswered.append(message)
        self._send(message)

    def _say(self, line: str) -> None:
        """Tell people; what other nodes sent is part of it."""
        self._gear.say(safe_line(line, LONGEST_LINE))
