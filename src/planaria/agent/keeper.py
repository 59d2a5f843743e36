"""Keep the snapshots of this node's workers: in memory that outlives them, and in a directory that outlives this agent.

An agent imports this when a worker asks for memory the first time. `slots` has the rules; here are descriptors, peers and
the thread that writes to disk. A thread, not a process: whatever process an agent has is ended with its workers at every
restart, and digests and writes let go of the interpreter's lock. It runs at a low priority of its own.
"""

from __future__ import annotations

import _thread
import os

from planaria.agent.slots import Slots
from planaria.base.mailbox import Mailbox
from planaria.base.memory import free_bytes
from planaria.contract import vault
from planaria.contract.commit import TIERS, Stamp
from planaria.errors import StateRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.agent.control import ControlServer, Peer
    from planaria.agent.disk import Disk
    from planaria.agent.model import Shelter
    from planaria.agent.slots import Slot
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
    """Keeps the commits of one node's workers through their lives. Called on the loop, but for `disk`'s own thread."""

    def __init__(
        self,
        loop: Loop,
        control: ControlServer,
        local_world_size: int,
        shelter: Shelter,
        say: Callable[[str], object],
        free: Callable[[], int] = free_bytes,
    ) -> None:
        self._loop = loop
        self._control = control
        self._free_bytes = free
        self._lock = _thread.allocate_lock()  # around slots: the disk's thread pins and lets go of them
        self._slots = Slots(local_world_size)
        self._memory: dict[int, int] = {}  # descriptors, by the number of the slot
        self._given: set[tuple[Peer, int]] = set()
        self._opening: list[tuple[Peer, vault.Open]] = []
        self._awaiting: list[_Waiting] = []
        self._life: Round | None = None
        self._mailbox = Mailbox(loop)
        self.disk: Disk | None = None
        self.newest: dict[str, Stamp] = {}  # by tier
        if shelter.directory is None:
            say(
                "commits are kept in this agent's memory: they outlive the workers, not the agent "
                "(--snapshot-dir keeps them on disk too)"
            )
        else:
            self.disk = self._open_disk(shelter.directory, shelter.keep, say)
        self._run = self.disk.next_run if self.disk is not None else 1

    def _open_disk(self, directory: str, keep: int, say: Callable[[str], object]) -> Disk:
        from planaria.agent.disk import Disk

        return Disk(directory, keep, self._pin, self._mailbox.post, say, self._on_disk)

    def begin(self, life: Round) -> None:
        """Serve the workers of a new life. What the last one did not complete is over."""
        self._life = life
        self._given.clear()
        self._opening.clear()
        for waiting in self._awaiting:
            waiting.timer.cancel()
        self._awaiting.clear()
        with self._lock:
            self._slots.end_round()

    def memory_of(self, local_rank: int) -> dict[int, int]:
        """Return the descriptors of a worker's slots, by number: for whoever will take its place."""
        return {slot.number: self._memory[slot.number] for slot in self._slots.of(local_rank)}

    def hear(self, peer: Peer, message: vault.Message) -> None:
        """Take a worker's message.

        Raises:
            ValueError: No worker of this life says so; a commit of a round that is over is refused here.
        """
        match message:
            case vault.Join(number):
                self._answer(peer, self._place(peer, number))
            case vault.Open():
                self._opening.append((peer, message))
                self._lend()
            case vault.Sealed():
                self._on_sealed(peer, message)
            case vault.Await():
                self._await(peer, message)
            case vault.Load():
                self._load(peer, message)
            case _:
                raise ValueError("that is for an agent to say")

    def _place(self, peer: Peer, number: int) -> vault.Place:
        life = self._current()
        rank = life.first_rank + peer.local_rank
        return vault.Place(number, self._run, life.number, rank, life.world_size, peer.local_rank == 0)

    def _current(self) -> Round:
        if self._life is None:
            raise ValueError("there is no life")
        return self._life

    def _answer(self, peer: Peer, message: vault.Message, descriptors: tuple[int, ...] = ()) -> None:
        self._control.reply(peer, vault.encode(message), descriptors)

    def _lend(self) -> None:
        """Lend memory to those who wait for it, where there is some now."""
        waiting, self._opening = self._opening, []
        for peer, message in waiting:
            try:
                slot = self._take_slot(peer.local_rank, message.size_bytes)
            except StateRefused as problem:
                self._answer(peer, vault.Refused(message.id, problem.message, problem.hint))
                continue
            if slot is None:
                self._opening.append((peer, message))
                continue
            is_new = (peer, slot.number) not in self._given
            self._given.add((peer, slot.number))
            numbers = tuple(one.number for one in self._slots.of(peer.local_rank))
            memory = (self._memory[slot.number],) if is_new else ()
            self._answer(peer, vault.Slot(message.id, slot.number, is_new, numbers), memory)

    def _take_slot(self, local_rank: int, size_bytes: int) -> Slot | None:
        with self._lock:
            free, touched = self._free_bytes(), self._touched_bytes()
            found = self._slots.choose(local_rank, may_add=self._slots.has_room(size_bytes, free, touched))
            if found is None:
                return None
            if not isinstance(found, int):
                found.stamp = None
                if found.size_bytes >= size_bytes:
                    return found
                self._let_go(found)  # the old one goes first: there may be no room for both
            self._slots.check(local_rank, size_bytes, self._free_bytes(), self._touched_bytes())
            slot = self._slots.add(local_rank, size_bytes)
            try:
                self._memory[slot.number] = new_memory(slot.size_bytes)
            except OSError as problem:
                self._slots.remove(slot)
                raise StateRefused(f"the system gives no memory for a snapshot: {problem.strerror}") from problem
            return slot

    def _let_go(self, slot: Slot) -> None:
        self._slots.remove(slot)
        os.close(self._memory.pop(slot.number))

    def _touched_bytes(self) -> int:
        return sum(os.fstat(descriptor).st_blocks * 512 for descriptor in self._memory.values())

    def _on_sealed(self, peer: Peer, message: vault.Sealed) -> None:
        life = self._current()
        stamp = Stamp(message.run, message.round, message.generation, message.step, message.world_size, message.rank)
        here = (self._run, life.number, life.world_size, life.first_rank + peer.local_rank)
        if (stamp.run, stamp.round, stamp.world_size, stamp.rank) != here:
            raise ValueError("a commit of another round, or of another rank")
        with self._lock:
            is_complete = self._slots.seal(peer.local_rank, message.number, stamp)
        if not is_complete:
            return
        self.newest["node"] = stamp
        if self.disk is not None:
            self.disk.wake()
        self._lend()
        self._settle()

    def _await(self, peer: Peer, message: vault.Await) -> None:
        if message.tier not in TIERS:
            raise ValueError("no tier of ours")
        timer = self._loop.call_later(message.timeout_s, lambda: self._settle(late=message))
        self._awaiting.append(_Waiting(peer, message, timer))
        self._settle()

    def _settle(self, late: vault.Await | None = None) -> None:
        """Answer those whose commit has come as far as they want, or as far as it will."""
        for waiting in [*self._awaiting]:
            reached = self._reached(waiting.order)
            if waiting.message is late or self._is_settled(waiting, reached):
                self._awaiting.remove(waiting)
                waiting.timer.cancel()
                self._answer(waiting.peer, vault.Reached(waiting.message.id, reached))

    def _reached(self, order: Order) -> str:
        found = [tier for tier in TIERS if tier in self.newest and self.newest[tier].order >= order]
        return found[-1] if found else ""

    def _is_settled(self, waiting: _Waiting, reached: str) -> bool:
        if not reached:
            return False
        wants_disk = waiting.message.tier == "disk" and reached != "disk"
        return not (wants_disk and self.disk is not None and not self.disk.has_failed(waiting.order))

    def _load(self, peer: Peer, message: vault.Load) -> None:
        if message.is_damaged:  # no rank may go on from memory when one of them cannot
            with self._lock:
                self._slots.forget_commits()
            self.newest.pop("node", None)
        kept = self._slots.kept()
        if kept:
            own = kept.get(self._current().first_rank + peer.local_rank)
            shared = kept[min(kept)]
            found = {"own": own, "shared": shared if shared is not own else None}
            numbers = {name: slot.number for name, slot in found.items() if slot is not None}
            memory = tuple(self._memory[number] for number in numbers.values())
            self._answer(peer, vault.Found(message.id, (*numbers,), (*numbers.values(),), "", ()), memory)
        elif self.disk is not None:
            self.disk.find(lambda order: self._found_on_disk(peer, message, order))
        else:
            self._answer(peer, vault.Found(message.id, (), (), "", ()))

    def _found_on_disk(self, peer: Peer, message: vault.Load, found: Stamp | str | None) -> None:
        if isinstance(found, str):
            self._answer(peer, vault.Refused(message.id, found, "a commit of an earlier run may lie there"))
            return
        if found is None or self.disk is None:
            self._answer(peer, vault.Found(message.id, (), (), "", ()))
            return
        self.newest.setdefault("disk", found)
        self._answer(peer, vault.Found(message.id, (), (), self.disk.directory, found.order))

    def _pin(self) -> list[tuple[Stamp, int, int, Callable[[], None]]]:
        """Return the newest complete commit for the disk's thread: stamps, descriptors, sizes, and how to let go."""
        with self._lock:
            pinned = []
            for slot in self._slots.kept().values():
                assert slot.stamp is not None
                pinned.append((slot.stamp, self._memory[slot.number], slot.size_bytes, self._hold(slot)))
            return pinned

    def _hold(self, slot: Slot) -> Callable[[], None]:
        slot.pins += 1

        def let_go() -> None:
            with self._lock:
                slot.pins -= 1
            self._mailbox.post(self._lend)

        return let_go

    def _on_disk(self, stamp: Stamp | None) -> None:
        """Hear, on the loop, that the disk has written a commit, or (None) tried to."""
        if stamp is not None:
            self.newest["disk"] = stamp
        self._settle()

    def close(self) -> None:
        """Let go of all memory: for a process that goes on without this agent."""
        for slot in self._slots.all():
            self._let_go(slot)
        self._mailbox.close()

    def flush(self, within_s: float) -> bool:
        """Have the newest complete commit on disk, within so many seconds; tell whether it is. For the end of a run."""
        if self.disk is None or self._slots.complete is None:
            return False
        return self.disk.flush(self._slots.complete, within_s)


def new_memory(size_bytes: int) -> int:
    """Return a descriptor of anonymous memory whose size nobody can change: who reads it never meets a missing page."""
    import fcntl

    descriptor = os.memfd_create("planaria-snapshot", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size_bytes)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
