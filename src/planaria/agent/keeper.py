"""Keep the snapshots of this node's workers: in memory that outlives them, on a second node, and on disk.

An agent imports this when a worker asks for memory the first time, or another node does. Here workers are answered; `stock` has
the memory, `delegate` and `council` agree with the other nodes on what counts, `guests` serves them, `disk` has the directory.
"""

from __future__ import annotations

from planaria.agent.beginners import ASTRAY, Beginners
from planaria.agent.council import Council
from planaria.agent.delegate import Delegate, Gear
from planaria.agent.guests import Guests
from planaria.agent.hall import Hall
from planaria.agent.ledger import Ledger
from planaria.agent.refuge import Refuge
from planaria.agent.rounds import Neighbours
from planaria.base.mailbox import Mailbox
from planaria.base.text import safe_line
from planaria.contract import vault
from planaria.contract.commit import TIERS, Stamp, anew, hint_for
from planaria.errors import StateRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planaria.agent.control import ControlServer, Peer
    from planaria.agent.delegate import Dock
    from planaria.agent.disk import Disk
    from planaria.agent.disk_wait import DiskWait
    from planaria.agent.dock import Host
    from planaria.agent.settings import Shelter
    from planaria.agent.stock import Stock
    from planaria.base.loop import Loop, Timer
    from planaria.contract.commit import Order
    from planaria.contract.env import Round


class _Waiting:
    """A worker that waits for a commit to reach a tier."""

    def __init__(self, peer: Peer, message: vault.Await, timer: Timer) -> None:
        self.peer = peer
        self.message = message
        self.timer = timer

    @property
    def order(self) -> Order:
        return self.message.run, self.message.round, self.message.generation


class Keeper:
    """Keeps the commits of one node's workers through their lives. Called on the loop."""

    def __init__(
        self,
        loop: Loop,
        control: ControlServer,
        stock: Stock,
        shelter: Shelter,
        say: Callable[[str], object],
        open_dock: Callable[[Host], Dock] | None = None,
    ) -> None:
        self._loop = loop
        self._control = control
        self._shelter = shelter
        self._say = say
        self._mailbox = Mailbox(loop)
        self.disk: Disk | None = None if shelter.directory is None else self._open_disk(shelter.directory)
        self._stock = stock
        self._disk_wait = None if self.disk is None else self._open_disk_wait(self.disk)
        self.guests = Guests(self._stock, self._aside)
        self._dock = None if open_dock is None else open_dock(self.guests)
        self._stock.on_free = self._lend
        self._ledger = Ledger()
        self._delegate: Delegate | None = None
        self._beginners: Beginners
        self._life: Round | None = None
        self._given: set[tuple[Peer, int]] = set()
        self._joining: list[tuple[Peer, vault.Join]] = []
        self._opening: list[tuple[Peer, vault.Open]] = []
        self._awaiting: list[_Waiting] = []
        self._leaving: Callable[[bool], object] | None = None
        self._has_said_anew = False
        self._refuge = Refuge(shelter.directory)

    def _open_disk(self, directory: str) -> Disk:
        from planaria.agent.disk import Disk

        return Disk(directory, self._shelter.keep, self._loop, self._mailbox.post, self._say)

    def _open_disk_wait(self, disk: Disk) -> DiskWait:
        from planaria.agent.disk_wait import DiskWait

        return DiskWait(self._loop, self._stock.slots, disk, self._say)

    @property
    def newest(self) -> Mapping[str, Stamp]:
        """Return the newest commit of each tier."""
        return self._ledger.newest

    def begin(self, life: Round, neighbours: Neighbours | None = None) -> None:
        """Serve the workers of a new life, and agree with the others on what it begins from."""
        self._end_round()
        self._life = life
        self.guests.round, self.guests.is_leaving = life.number, False
        gear = Gear(
            loop=self._loop,
            stock=self._stock,
            disk=self.disk,
            dock=self._dock,
            ledger=self._ledger,
            aside=self._aside,
            say=self._say,
            on_change=self._go_on,
        )
        has_buddies = self._shelter.has_buddies
        self._delegate = delegate = Delegate(life, neighbours or Neighbours(), gear, has_buddies)
        if line := self._refuge.line(has_buddy=delegate.has_buddy):
            self._say(line)
        if life.group_rank == 0:
            council = Council(
                life.number,
                life.group_world_size,
                life.world_size,
                has_directory=self.disk is not None,
                has_buddies=has_buddies,
            )
            self.guests.hall = Hall(council, delegate.hear, self._loop, self._say)
        self._beginners = Beginners(life, delegate, self._stock, self._aside, self._answer)
        delegate.begin(self.guests.hall)

    def _end_round(self) -> None:
        self._given.clear()
        self._joining.clear()
        self._opening.clear()
        self._look_at_disk()
        for waiting in self._awaiting:
            waiting.timer.cancel()
        self._awaiting.clear()
        if self._delegate is not None:
            self._delegate.close()
        if self.guests.hall is not None:
            self.guests.hall.close()
            self.guests.hall = None

    def _aside(self, work: Callable[[], str], then: Callable[[str], object]) -> None:
        """Do work in a thread, because digests of gigabytes take seconds and let go of the interpreter's lock.

        What the work never thought of is told, and counts as damage: whoever waits for it would wait for ever.
        """
        import threading

        def run() -> None:
            try:
                found = work()
            except Exception as problem:  # noqa: BLE001  # a thread has nobody else to tell
                what = safe_line(f"could not be verified: {type(problem).__name__}: {problem}")
                found = f"it {what}"
                self._mailbox.post(lambda: self._say(f"a part of a commit {what}; training goes on"))
            self._mailbox.post(lambda: then(found))

        threading.Thread(target=run, name="planaria verifier", daemon=True).start()

    # What workers ask.

    def memory_of(self, local_rank: int) -> dict[int, int]:
        """Return the descriptors of a worker's slots, by number: for whoever will take its place."""
        return {slot.number: self._stock.descriptor(slot) for slot in self._stock.slots.of(local_rank)}

    @property
    def has_parts(self) -> bool:
        """Tell whether any memory here is, or was to be, part of a commit."""
        return bool(self._stock.slots.all())

    @property
    def claimed_bytes(self) -> int:
        """Return how much of the memory that is free belongs to commits that are still to come."""
        return self._stock.claimed_bytes

    def hear(self, peer: Peer, message: vault.Message) -> None:
        """Take a worker's message.

        Raises:
            ValueError: No worker of this life says so; a commit of a round that is over is refused here.
        """
        match message:
            case vault.Join():
                self._joining.append((peer, message))
            case vault.Open():
                self._opening.append((peer, message))
            case vault.Sealed():
                self._on_sealed(peer, message)
            case vault.Skipped():
                self._on_skipped(peer, message)
            case vault.Await():
                self._await(peer, message)
            case vault.Load():
                self._current()[1].seals.mistake(peer.local_rank)  # who goes back need not hear of what it made before
                self._beginners.load(peer, message)
            case _:
                raise ValueError("that is for an agent to say")
        self._go_on()

    def _go_on(self) -> None:
        """Answer whoever can be answered now."""
        self._welcome()
        self._lend()
        self._beginners.hand_out()
        self._settle()
        complete, leaving = self._stock.slots.complete, self._leaving
        if leaving is not None and complete is not None:
            is_there = self._ledger.order("disk") >= complete
            if is_there or self._has_failed("disk", complete):  # the last writing tries once more, and needs the time
                self._leaving = None
                leaving(is_there)

    def _welcome(self) -> None:
        life, delegate = self._current()
        if not delegate.run:
            return
        joining, self._joining = self._joining, []
        for peer, message in joining:
            rank = life.first_rank + peer.local_rank
            place = (delegate.run, life.number, rank, life.world_size, peer.local_rank == 0)
            self._answer(peer, vault.Place(message.id, *place))

    def _current(self) -> tuple[Round, Delegate]:
        if self._life is None or self._delegate is None:
            raise ValueError("there is no life")
        return self._life, self._delegate

    def _answer(self, peer: Peer, message: vault.Message, descriptors: tuple[int, ...] = ()) -> None:
        self._control.reply(peer, vault.encode(message), descriptors)

    def _lend(self) -> None:
        """Lend memory to those who wait for it, where there is some now; not before it is clear what is needed of it."""
        if self._delegate is None or self._delegate.plan is None:
            return
        waiting, self._opening = self._opening, []
        for peer, message in waiting:
            if self._beginners.is_astray(peer):
                self._answer(peer, vault.Refused(message.id, ASTRAY, "its next life begins with all others"))
                continue
            if why := self._delegate.seals.mistake(peer.local_rank):
                self._answer(peer, vault.Refused(message.id, why, hint_for(why)))
                continue
            try:
                slot = self._stock.lend(peer.local_rank, message.size_bytes)
            except StateRefused as problem:
                if self._stock.make_room():
                    self._opening.append((peer, message))
                    continue
                self._answer(peer, vault.Refused(message.id, problem.message, problem.hint))
                continue
            if slot is None:
                self._opening.append((peer, message))
                continue
            self._look_whether_restored(peer)
            is_new = (peer, slot.number) not in self._given
            self._given.add((peer, slot.number))
            numbers = tuple(one.number for one in self._stock.slots.of(peer.local_rank))
            memory = (self._stock.descriptor(slot),) if is_new else ()
            self._answer(peer, vault.Slot(message.id, slot.number, is_new, numbers), memory)
        self._look_at_disk()

    def _look_whether_restored(self, peer: Peer) -> None:
        """Tell, once, of a program that has not gone back to what there is."""
        step = None if self._has_said_anew else self._beginners.passed_over(peer)
        if step is not None:
            self._has_said_anew = True
            self._say(f"rank {self._current()[0].first_rank + peer.local_rank} {anew(f'the commit of step {step}')}")

    def _look_at_disk(self) -> None:
        """See that nobody waits without a limit for memory that the disk reads."""
        if self._disk_wait is not None:
            self._disk_wait.look(peer.local_rank for peer, _ in self._opening)

    def _on_sealed(self, peer: Peer, message: vault.Sealed) -> None:
        life, delegate = self._current()
        stamp = Stamp(message.run, message.round, message.generation, message.step, message.world_size, message.rank)
        here = (delegate.run, life.number, life.world_size, life.first_rank + peer.local_rank)
        if (stamp.run, stamp.round, stamp.world_size, stamp.rank) != here:
            raise ValueError("a commit of another round, or of another rank")
        if self._beginners.is_astray(peer):
            raise ValueError(ASTRAY)
        delegate.seals.seal(peer.local_rank, message.number, stamp)

    def _on_skipped(self, peer: Peer, message: vault.Skipped) -> None:
        life, delegate = self._current()
        if (message.run, message.round) != (delegate.run, life.number):
            raise ValueError("a commit of another round")
        if not self._beginners.is_astray(peer):
            delegate.seals.skip(peer.local_rank, (message.run, message.round, message.generation))

    def _await(self, peer: Peer, message: vault.Await) -> None:
        if message.tier not in TIERS:
            raise ValueError("no tier of ours")
        timer = self._loop.call_later(message.timeout_s, lambda: self._settle(late=message))
        self._awaiting.append(_Waiting(peer, message, timer))

    def _settle(self, late: vault.Await | None = None) -> None:
        """Answer those whose commit has come as far as they want, or as far as it will."""
        for waiting in [*self._awaiting]:
            reached = self._reached(waiting.order)
            if waiting.message is late or self._is_settled(waiting, reached):
                self._awaiting.remove(waiting)
                waiting.timer.cancel()
                self._answer(waiting.peer, self._outcome(waiting, reached))

    def _outcome(self, waiting: _Waiting, reached: str) -> vault.Message:
        why = self._stock.slots.voids.get(waiting.order, "")
        if not why or reached:
            return vault.Reached(waiting.message.id, reached)
        self._current()[1].seals.mistake(waiting.peer.local_rank)  # heard of now
        return vault.Refused(waiting.message.id, why, hint_for(why))

    def _reached(self, order: Order) -> str:
        found = [tier for tier in TIERS if tier in self.newest and self.newest[tier].order >= order]
        return found[-1] if found else ""

    def _is_settled(self, waiting: _Waiting, reached: str) -> bool:
        tier = waiting.message.tier
        if waiting.order in self._stock.slots.voids:
            return True
        if not reached or [*TIERS].index(reached) >= [*TIERS].index(tier):  # type: ignore[arg-type]  # both are tiers
            return bool(reached)
        is_tried = self._current()[1].has_buddy if tier == "buddy" else self.disk is not None
        return not is_tried or self._has_failed(tier, waiting.order)

    def _has_failed(self, tier: str, order: Order) -> bool:
        """Tell whether a commit will not get to a tier any more, unless somebody writes it by himself."""
        failed = self._current()[1].failed.get(tier)
        return failed is not None and failed >= order

    # The end.

    def ended(self) -> None:
        """Hear that the workers are gone: none of them waits for memory any more, and the disk may keep what it reads."""
        self._opening.clear()
        self._look_at_disk()

    def close(self) -> None:
        """Let go of all memory: for a process that goes on without this agent."""
        self._end_round()
        self._stock.close()
        if self.disk is not None:
            self.disk.close()
        self._mailbox.close()

    def hand_over(self, on_done: Callable[[bool], object]) -> None:
        """Bring what only this node has to one that stays, or have it on disk; tell whether all of it is there.

        The disk is for all nodes to write, so that there is nothing to be done but to wait.
        """
        self.ended()
        self.guests.is_leaving = True
        if self._delegate is not None and self._delegate.has_buddy:
            self._delegate.hand_over(on_done)
        elif self.disk is None or self._stock.slots.complete is None:
            on_done(False)
        else:
            self._leaving = on_done
            self._go_on()

    def flush(self, within_s: float) -> bool:
        """Have the newest complete commit on disk, within so many seconds; tell whether it is. For the end of a run."""
        self.ended()
        if self.disk is None or self._stock.slots.complete is None:
            return False
        from planaria.agent.last_writing import LastWriting

        is_alone = self._life is None or self._life.group_world_size == 1
        last = LastWriting(self._loop, self.disk, self._stock, self._loop.now() + within_s)
        return last.bring(self._stock.slots.complete, is_alone=is_alone)
