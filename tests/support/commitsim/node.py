"""A node whose workers commit: the shipped delegate, council, guests and stock; memory, disk and workers are pretended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commitsim.net import Dock
from planaria.agent.council import Council
from planaria.agent.council_messages import order_of
from planaria.agent.delegate import Delegate, Gear
from planaria.agent.errands import damage_of
from planaria.agent.guests import Guests
from planaria.agent.hall import Hall
from planaria.agent.ledger import Ledger
from planaria.agent.stock import Stock, part_in
from planaria.archive.plan import Failed, Skipped, Written, is_fenced, superseded
from planaria.contract import snapshot as snapshots
from planaria.contract.commit import Stamp
from planaria.contract.env import Round
from planaria.worker.tenancy import Tenancy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from commitsim.clock import Timer
    from commitsim.world import World
    from planaria.agent.council_messages import Plan, Saying
    from planaria.agent.rounds import Neighbours
    from planaria.agent.slots import Slot
    from planaria.archive.writer import Pinned
    from planaria.contract.commit import Order

VALUES_BYTES = 300
LAYOUT = snapshots.arrange([], bytes(VALUES_BYTES))  # how large all of them are
REFUSALS = 0.04  # of commits, each on one rank alone
SLIPS = 0.02  # of commits in which a rank counts its steps for itself
LOOK_S = 0.06
IDLE_S = 1.0


class Heap:
    """Memory that is counted by numbers."""

    def __init__(self) -> None:
        self.last = 0
        self.pieces: dict[int, bytearray] = {}

    def new(self, size_bytes: int) -> int:
        self.last += 1
        self.pieces[self.last] = bytearray(size_bytes)
        return self.last

    def view(self, number: int, _size_bytes: int) -> memoryview:
        return memoryview(self.pieces[number])

    def touched(self, number: int) -> int:
        return len(self.pieces[number])

    def close(self, number: int) -> None:
        del self.pieces[number]


class Directory:
    """The one directory of all nodes."""

    def __init__(self) -> None:
        self.files: dict[tuple[Order, int], Stamp] = {}
        self.whole: dict[Order, Stamp] = {}
        self.fails = False

    def write(self, pinned: Pinned, writer: tuple[int, int] | None) -> Written | Skipped | Failed:
        stamp = pinned.stamp
        if self.fails:
            return Failed(stamp, "the disk is full")
        if is_fenced(writer or stamp.order[:2], [order for order, _ in self.files]):
            return Failed(stamp, "its round is over")
        if any(order >= stamp.order for order in self.whole):
            return Skipped(stamp, "as new a commit is there")
        try:
            found = snapshots.read(pinned.memory)
        except ValueError as problem:
            return Failed(stamp, str(problem))
        if found is None or found.stamp != stamp:
            return Failed(stamp, "its memory holds something else")
        self.files[stamp.order, stamp.rank] = stamp
        if any(one.step != stamp.step for (order, _), one in self.files.items() if order == stamp.order):
            return Failed(stamp, "its parts are of different steps")
        if not all((stamp.order, rank) in self.files for rank in range(stamp.world_size)):
            return Written(stamp, complete=False)
        self.whole[stamp.order] = stamp
        for order in superseded([*self.whole], [*self.whole], 2):
            del self.whole[order]
        return Written(stamp, complete=True)


class Disk:
    """One node's hold on it: one commit at a time."""

    def __init__(self, node: Node, directory: Directory) -> None:
        self.node = node
        self.shared = directory
        self.is_busy = False
        self.writer: tuple[int, int] | None = None
        self.waiting: tuple[Sequence[Pinned], Callable[[object], object], tuple[int, int] | None] | None = None

    def write(self, parts: Sequence[Pinned], tell: Callable[[object], object]) -> None:
        if self.waiting is not None:
            for pinned in self.waiting[0]:
                pinned.release()
        self.waiting = parts, tell, self.writer
        self.go_on()

    def go_on(self) -> None:
        if self.is_busy or self.waiting is None:
            return
        (parts, tell, writer), self.waiting = self.waiting, None
        self.is_busy = True

        def done() -> None:
            outcomes = [self.shared.write(pinned, writer) for pinned in parts]
            for pinned in parts:
                pinned.release()
            self.is_busy = False
            failed = [one for one in outcomes if isinstance(one, Failed)]
            tell(failed[0] if failed else outcomes[-1])
            self.go_on()

        self.node.call_later(self.node.world.rng.choice((0.02, 0.3, 2.0)) * self.node.world.rng.random(), done)

    def find(self, than: Order | None, tell: Callable[[Stamp | str | None, Order | None], object]) -> None:
        def found() -> None:
            if self.shared.fails:
                tell("the directory cannot be read", None)
                return
            newest = max(self.shared.whole, default=None)
            is_newer = newest is not None and (than is None or newest > than)
            last = max((order for order, _ in self.shared.files), default=None)
            tell(self.shared.whole[newest] if is_newer and newest is not None else None, last)

        self.node.call_later(0.05 * self.node.world.rng.random(), found)


class Watched(Council):
    """A council whose rulings are looked at."""

    world: World
    number: int

    def hear(self, slot: int, message: Saying) -> list:  # type: ignore[type-arg]
        rulings = super().hear(slot, message)
        for at, ruling in rulings:
            self.world.checks.ruled(self.number, at, ruling)
        return rulings


class Node:
    def __init__(self, world: World, name: str, local: int) -> None:
        self.world = world
        self.name = name
        self.local = local
        self.alive = True
        self.is_leaving = False
        self.stock = Stock(local, lambda: world.free_bytes, Heap())
        self.disk = Disk(self, world.directory) if world.has_disk else None
        self.ledger = Ledger()
        self.guests = Guests(self.stock, self.aside)
        self.dock = Dock(world.net, self)
        self.delegate: Delegate | None = None
        self.hall: Hall | None = None
        self.life: Round | None = None
        self.workers: list[Worker] = []
        self.said: list[str] = []

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return self.world.clock.call_later(delay_s, lambda: callback() if self.alive else None)

    def aside(self, work: Callable[[], str], then: Callable[[str], object]) -> None:
        self.call_later(0.05 * self.world.rng.random(), lambda: then(work()))

    def begin(self, life: Round, neighbours: Neighbours) -> None:
        self.end_round()
        self.life = life
        self.guests.round, self.guests.is_leaving = life.number, False
        gear = Gear(
            self,
            self.stock,
            self.disk,
            self.dock,
            self.ledger,
            self.aside,
            self.said.append,
            lambda: None,  # type: ignore[arg-type]
        )
        buddies = self.world.has_buddies
        self.delegate = Delegate(life, neighbours, gear, buddies)
        if life.group_rank == 0:
            council = Watched(
                life.number,
                life.group_world_size,
                life.world_size,
                has_directory=self.disk is not None,
                has_buddies=buddies,
            )
            council.world, council.number = self.world, life.number
            self.hall = self.guests.hall = Hall(council, self.delegate.hear, self, self.said.append)
        self.delegate.begin(self.hall)
        self.workers = [Worker(self, rank, self.delegate) for rank in range(self.local)]

    def end_round(self) -> None:
        self.stop_workers()
        if self.delegate is not None:
            self.delegate.close()
            self.delegate = None
        if self.hall is not None:
            self.hall.close()
            self.hall = self.guests.hall = None

    def stop_workers(self) -> None:
        for worker in self.workers:
            worker.is_over = True
        self.workers = []

    def holds(self, order: Order | None) -> bool:
        return any(slot.stamp is not None and slot.stamp.order == order for slot in self.stock.slots.parts())


class Worker:
    """One rank of one life: begin from the plan, then commit again and again; now and then all ranks go back.

    What it has restored last, and how often it has called commit() since then, is the content of its state. It counts
    generations as the shipped library does.
    """

    def __init__(self, node: Node, local_rank: int, delegate: Delegate) -> None:
        assert node.life is not None
        self.node = node
        self.local_rank = local_rank
        self.life = node.life
        self.rank = node.life.first_rank + local_rank
        self.delegate = delegate
        self.is_over = False
        self.plan: Plan | None = None
        self.waits_for = 0  # a version of the plan
        self.tenancy = Tenancy()
        self.base: tuple[Order | None, int] = None, 0  # what was restored last, and after how many calls
        self.restores = 0
        self.backs = node.world.backs.get(node.life.number, ())  # after which calls all ranks go back
        self.calls = 0
        self.number = 0  # of the step
        self.pace_s = node.world.rng.choice((0.1, 0.2, 0.5))
        self.later(self.load)

    def later(self, callback: Callable[[], object], delay_s: float = LOOK_S) -> None:
        self.node.call_later(delay_s, lambda: None if self.is_over else callback())

    def load(self) -> None:
        plan = self.delegate.plan
        if plan is None or not self.delegate.is_ready or plan.version < self.waits_for:
            is_unknown = plan is not None and plan.kind == "unknown"
            if is_unknown:
                self.delegate.seek()
            self.later(self.load, 0.3 if is_unknown else LOOK_S)
            return
        order = order_of(plan.order)
        if plan.kind == "memory" and order is not None:
            bad = self.read(order, plan.shared, plan.world_size)
            if bad:
                self.waits_for = plan.version + 1
                self.delegate.report_damage(order, bad)
                if self.node.world.rng.random() < 0.5:
                    self.node.world.net.cut_off(self.node)  # before anybody has heard of it
                self.later(self.load)
                return
        self.plan = plan
        self.restored(order, plan.step)
        self.step()

    def read(self, order: Order, shared: int, world_size: int) -> list[int]:
        """Return the ranks whose parts cannot be read; what can be is looked at."""
        wanted = {self.rank, shared} if self.rank < world_size else {shared}
        parts = {rank: self.node.stock.slots.find(order, rank) for rank in wanted}
        bad = [rank for rank, slot in parts.items() if slot is None or self.is_damaged(slot)]
        if not bad:
            for slot in parts.values():
                assert slot is not None
                self.node.world.checks.read(order, bytes(self.node.stock.view(slot)[-VALUES_BYTES:]))
        return bad

    def restored(self, order: Order | None, step: int) -> None:
        self.tenancy.restored(order)
        self.base = order, self.calls
        self.restores += 1
        self.number = step

    def is_damaged(self, slot: Slot) -> bool:
        return bool(damage_of(self.node.stock.view(slot), part_in(slot)))

    @property
    def is_astray(self) -> bool:
        """Tell whether it began where nobody begins any more."""
        return self.delegate.plan is None or self.plan is None or self.delegate.plan.order != self.plan.order

    def step(self) -> None:
        if self.node.world.is_done(self.node.stock.slots.complete):
            self.later(self.step, IDLE_S)
        elif self.calls in self.backs[self.restores - 1 :][:1]:
            self.later(self.go_back, self.pace_s * self.node.world.rng.random())
        else:
            self.later(self.commit, self.pace_s * self.node.world.rng.random())

    def go_back(self) -> None:
        """Restore in the middle of a life: the newest commit that this node knows to be complete."""
        plan, complete = self.plan, self.node.stock.slots.complete
        assert plan is not None
        self.delegate.seals.mistake(self.local_rank)
        order, step = order_of(plan.order), plan.step
        if complete is not None and complete > plan.order:
            order = complete
            if self.read(order, self.life.first_rank, self.life.world_size):
                self.node.world.crash()  # it is refused, and so ends
                return
            step = self.node.world.checks.step_of(order)
        self.restored(order, step)
        self.step()

    def commit(self) -> None:
        if self.is_astray:
            self.node.world.crash()
            return
        world, generation = self.node.world, self.tenancy.next_generation()
        self.calls += 1
        self.number += 1
        if self.delegate.seals.mistake(self.local_rank):
            if world.is_ending or world.rng.random() < 0.5:
                world.crash()  # the program ends with the error
            else:
                self.refused(generation)
        elif not world.is_ending and world.rng.random() < REFUSALS:
            self.refused(generation)
        else:
            self.open(generation)

    def refused(self, generation: int) -> None:
        """Go on without this commit; its agent hears of it, or will see that it is left out."""
        if self.node.world.rng.random() < 0.5:
            self.delegate.seals.skip(self.local_rank, (self.delegate.run, self.life.number, generation))
        self.step()

    def open(self, generation: int) -> None:
        if self.is_astray:
            self.node.world.crash()
            return
        slot = self.node.stock.lend(self.local_rank, LAYOUT.size_bytes)
        if slot is None:
            self.later(lambda: self.open(generation))
            return
        snapshots.unseal(self.node.stock.view(slot))
        self.later(lambda: self.seal(slot, generation), 0.02 * self.node.world.rng.random())

    def seal(self, slot: Slot, generation: int) -> None:
        world, life = self.node.world, self.life
        if self.is_astray:
            world.crash()
            return
        slip = 1000 + self.rank if not world.is_ending and world.rng.random() < SLIPS else 0
        stamp = Stamp(self.delegate.run, life.number, generation, self.number + slip, life.world_size, self.rank)
        order, before = self.base
        moment = f"round {life.number}: {order} and {self.calls - before} more"
        world.checks.sealed(stamp, moment, self.calls)
        layout = snapshots.arrange([], moment.encode().ljust(VALUES_BYTES)[:VALUES_BYTES])
        snapshots.seal(self.node.stock.view(slot), layout, stamp)
        self.delegate.seals.seal(self.local_rank, slot.number, stamp)
        self.step()
