"""Tell this node's workers where they begin, and what becomes of it when one of them cannot read that."""

from __future__ import annotations

from planaria.agent.council_messages import order_of
from planaria.agent.errands import damage_of
from planaria.agent.stock import part_in
from planaria.contract import vault
from planaria.errors import StateRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.agent.control import Peer
    from planaria.agent.council_messages import Plan
    from planaria.agent.delegate import Delegate
    from planaria.agent.errands import Aside
    from planaria.agent.slots import Slot
    from planaria.agent.stock import Stock
    from planaria.contract.env import Round

LATE = "the commit to go back to is damaged, and others have gone on"
WHOLE = "this rank cannot read a commit that its agent finds whole"
ASTRAY = "this rank began from a commit that another could not read, and all begin from another one now"


class Beginners:
    """The workers of one life that ask for a commit. `answer(peer, message, descriptors)` sends them what they get."""

    def __init__(
        self, life: Round, delegate: Delegate, stock: Stock, aside: Aside, answer: Callable[..., object]
    ) -> None:
        self._life = life
        self._delegate = delegate
        self._stock = stock
        self._aside = aside
        self._answer = answer
        self._told: dict[Peer, Plan] = {}  # the plan that a worker was told last
        self._asked: set[int] = set()  # local ranks; a state that restores and one that commits have a connection each
        self._waiting: list[tuple[Peer, vault.Load, int]] = []  # from which version of the plan on they are answered

    def is_astray(self, peer: Peer) -> bool:
        """Tell whether a worker began from a commit that others could not read, so that all begin elsewhere now."""
        told, plan = self._told.get(peer), self._delegate.plan
        return told is not None and plan is not None and told.order != plan.order

    def passed_over(self, peer: Peer) -> int | None:
        """Return the step that is there to begin from, if this worker commits and has never asked for it."""
        plan = self._delegate.plan
        is_there = plan is not None and plan.kind in ("memory", "disk")
        return plan.step if plan is not None and is_there and peer.local_rank not in self._asked else None

    def load(self, peer: Peer, message: vault.Load) -> None:
        """Take a worker's question; `hand_out` answers it."""
        self._asked.add(peer.local_rank)
        plan = self._delegate.plan
        told = self._told.get(peer, plan)
        version = plan.version if plan is not None else 0
        is_unknown = plan is not None and plan.kind == "unknown" and peer in self._told
        if message.is_damaged or is_unknown:
            version = told.version + 1 if told is not None else 1
        self._waiting.append((peer, message, version))
        if message.is_damaged:
            self._examine(peer)
        elif is_unknown:
            self._delegate.seek()

    def hand_out(self) -> None:
        """Tell workers where they begin, once that is known and here."""
        delegate, plan = self._delegate, self._delegate.plan
        if plan is None or not (delegate.is_ready or delegate.trouble or plan.kind == "unknown"):
            return
        waiting, self._waiting = self._waiting, []
        for peer, message, version in waiting:
            if version > plan.version:
                self._waiting.append((peer, message, version))
                continue
            self._told[peer] = plan
            self._tell(peer, message, plan)

    def _tell(self, peer: Peer, message: vault.Load, plan: Plan) -> None:
        if plan.kind == "unknown" and not self._has_committed:
            self._answer(peer, vault.Refused(message.id, plan.why, "a commit of an earlier run may lie there"))
        elif self._delegate.trouble:
            self._answer(peer, vault.Refused(message.id, self._delegate.trouble, "raise the memory limit"))
        elif plan.kind == "disk" and not self._has_committed:
            self._answer(peer, vault.Found(message.id, (), (), self._delegate.directory, plan.order))
        else:
            parts = self._parts_for(peer)
            memory = tuple(self._stock.descriptor(slot) for slot in parts.values())
            numbers = tuple(slot.number for slot in parts.values())
            self._answer(peer, vault.Found(message.id, tuple(parts), numbers, "", ()), memory)

    @property
    def _has_committed(self) -> bool:
        """Tell whether this life has completed a commit: whoever restores now goes back to the newest."""
        plan, complete = self._delegate.plan, self._stock.slots.complete
        return plan is not None and complete is not None and complete > plan.order

    def _parts_for(self, peer: Peer) -> dict[str, Slot]:
        plan, slots = self._delegate.plan, self._stock.slots
        order = order_of(plan.order) if plan is not None else None
        shared_rank = plan.shared if plan is not None else 0
        if self._has_committed:
            order, shared_rank = slots.complete, self._life.first_rank
        if order is None:
            return {}
        own = slots.find(order, self._life.first_rank + peer.local_rank)
        shared = slots.find(order, shared_rank)
        found = {"own": own, "shared": shared if shared is not own else None}
        return {name: slot for name, slot in found.items() if slot is not None}

    def _examine(self, peer: Peer) -> None:
        """Find out which of the parts that a worker was given are damaged; if none is, the trouble is the worker's own."""
        delegate = self._delegate
        given = [*self._parts_for(peer).values()]
        if not given or given[0].stamp is None:
            return
        order = given[0].stamp.order
        try:
            mapped = [(slot, self._stock.view(slot)) for slot in given]
        except StateRefused as problem:
            self._refuse(peer, problem.message, "raise the memory limit")
            return
        looked_at = [(part_in(slot), view, self._stock.hold(slot)) for slot, view in mapped]
        bad: list[int] = []

        def look() -> str:
            bad.extend(part.rank for part, view, _ in looked_at if damage_of(view, part))
            return ""

        def found(why: str) -> None:
            for _, _, release in looked_at:
                release()
            if delegate.is_over:
                return
            if why:
                self._refuse(peer, why, "the agent's log has the reason")
            elif bad:
                delegate.report_damage(order, bad)
                self._refuse_late(peer)
                self.hand_out()
            else:
                self._refuse(peer, WHOLE, "look at this rank's memory and device")

        self._aside(look, found)

    def _refuse_late(self, peer: Peer) -> None:
        """Refuse to begin elsewhere once this life has completed a commit; the next one has other parts, or another commit."""
        if self._has_committed:
            self._refuse(peer, LATE, "the next life begins from another copy, or another commit")

    def _refuse(self, peer: Peer, why: str, hint: str) -> None:
        for one in [one for one in self._waiting if one[0] is peer]:
            self._waiting.remove(one)
            self._answer(peer, vault.Refused(one[1].id, why, hint))
