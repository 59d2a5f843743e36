"""Snapshots in memory that the agent owns: they outlive this process. See `contract/vault.py` for what is said.

A connection of its own, beside the one for progress and notices: here a worker asks and waits for the answer.
"""

from __future__ import annotations

import itertools
import mmap
import os
import socket
import threading
from array import array
from contextlib import suppress
from time import monotonic
from weakref import WeakMethod

from planaria.contract import snapshot as snapshots
from planaria.contract import vault
from planaria.contract.commit import Origin
from planaria.errors import StateRefused
from planaria.worker import here
from planaria.worker.vault import Loaded, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from planaria.contract.commit import Stamp, Tier
    from planaria.contract.snapshot import Snapshot

    Answer = TypeVar("Answer", vault.Place, vault.Slot, vault.Found, vault.Reached)

WAIT_S = 30.0  # how long a commit waits for memory before that is worth a line
SLACK_S = 5.0  # what an answer may come later than it was asked for
_CHUNK_BYTES = 1 << 16
_MOST_DESCRIPTORS = 16


_AHEAD: dict[int, memoryview] = {}  # what this process mapped while it was a standby, by the number of the slot
_PREPARE: list[WeakMethod[Callable[[memoryview], object]]] = []


class AgentVault:
    """Memory lent by the agent whose control socket lies at `path`. Connects when it is used first."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._ids = itertools.count(1)
        self._sending = threading.Lock()  # a commit is sealed by a thread of its own
        self._socket: socket.socket | None = None
        self._partial = b""
        self._lines: list[bytes] = []
        self._descriptors: list[int] = []
        self._origin: Origin | None = None
        self._slots: dict[int, memoryview] = {}
        self._found: dict[str, memoryview] = {}
        self._lent = 0
        self._told: tuple[int, int, int] | None = None  # the commit that the agent was told of last
        self._begun = 0, 0  # the number of a question for memory whose answer nobody has waited for, and how much
        self._has_said_wait = False

    def __del__(self) -> None:  # a state is never closed; it goes when the program lets go of it
        if self._socket is not None:
            self._socket.close()

    @property
    def origin(self) -> Origin:
        """Return where this worker's commits come from, as its agent says."""
        if self._origin is None:
            place = self._ask(vault.Join, vault.Place, None)  # known once all nodes are there
            self._origin = Origin(place.run, place.round, place.rank, place.world_size, place.keeps_shared)
        return self._origin

    def begin_open(self, size_bytes: int) -> None:
        """Ask for what `open` will want. Whatever was lent before is sealed by now."""
        if self._begun[1] >= size_bytes:  # asked for by a commit that was refused on its way
            return
        number = next(self._ids)
        with suppress(OSError):  # `open` says it
            self._send(vault.Open(number, size_bytes))
            self._begun = number, size_bytes

    def open(self, size_bytes: int) -> memoryview:
        """Lend memory; waits until the agent has some: for the other ranks' last commit, or for the disk."""
        (number, begun_bytes), self._begun = self._begun, (0, 0)
        if number and begun_bytes >= size_bytes:
            return self._memory_of(self._answer(number, vault.Slot, None))
        return self._memory_of(self._ask(lambda number: vault.Open(number, size_bytes), vault.Slot, None))

    def _memory_of(self, slot: vault.Slot) -> memoryview:
        for mapped in (self._slots, _AHEAD):
            for number in mapped.keys() - slot.numbers:
                del mapped[number]
        self._lent = slot.number
        return self._slots[slot.number]

    def sealed(self, stamp: Stamp) -> None:
        """Tell the agent. Without an agent there is nobody to tell, and soon no worker."""
        message = vault.Sealed(
            self._lent, stamp.run, stamp.round, stamp.generation, stamp.step, stamp.world_size, stamp.rank
        )
        self._told = None
        with suppress(OSError):
            self._send(message)
            self._told = stamp.order

    def skipped(self, generation: int) -> None:
        """Tell the agent, which tells the others, so that nobody waits for this rank's part."""
        if self._origin is not None:
            with suppress(OSError):
                self._send(vault.Skipped(self._origin.run, self._origin.round, generation))

    def wait(self, stamp: Stamp, tier: Tier, timeout_s: float) -> Tier | None:
        """Wait until the agent says that a commit has come so far, or will not.

        One that is whole by itself and that the agent is told of has reached this node: the agent hears all that was said
        before it looks at a worker's end.
        """
        order = stamp.order
        if (tier, stamp.world_size, order) == ("node", 1, self._told):
            return "node"
        found = self._ask(lambda number: vault.Await(number, *order, tier, float(timeout_s)), vault.Reached, timeout_s)
        return found.tier or None  # type: ignore[return-value]  # one of the tiers

    def load(self, *, is_damaged: bool = False) -> Loaded | None:
        """Return the newest complete commit of the agent's memory, else of its directory."""
        try:
            return self._load(is_damaged=is_damaged)
        except ValueError as problem:
            say(f"what the agent's memory holds is damaged ({problem}); another copy is used, or an older commit")
        try:
            return self._load(is_damaged=True)
        except ValueError as problem:
            raise StateRefused(
                f"what the agent gave instead of a damaged commit is damaged, too: {problem}",
                hint="the next life begins from another one: is this node's memory in order?",
            ) from problem

    def _load(self, *, is_damaged: bool) -> Loaded | None:
        found = self._ask(lambda number: vault.Load(number, is_damaged), vault.Found, None)
        if found.directory:
            return self._load_from_disk(found.directory, found.order)
        memory, self._found = self._found, {}  # not held any longer: the agent may want to let go of it
        read = {name: _verified(part) for name, part in memory.items()}
        return Loaded(read.get("own"), read.get("shared")) if read else None

    def _load_from_disk(self, directory: str, order: tuple[int, ...]) -> Loaded | None:
        """Read what the agent has chosen for all ranks."""
        from planaria.archive.shelf import Shelf

        shelf, rank = Shelf(directory), self.origin.rank
        try:
            manifest = next(one for one in shelf.commits() if one.order == order)
            shared = shelf.open(manifest, 0)
            own = shelf.open(manifest, rank) if 0 < rank < manifest.world_size else None
        except (StopIteration, OSError, ValueError) as problem:
            raise StateRefused(f"the commit in {directory} cannot be read any more: {problem!r}") from problem
        return Loaded(shared) if rank == 0 else Loaded(own, shared)

    def _ask(self, message: Callable[[int], vault.Message], kind: type[Answer], timeout_s: float | None) -> Answer:
        """Ask, and wait for the answer; without a limit, a line tells of a long wait."""
        self._begun = 0, 0  # whoever waits for another answer passes over that one, and nobody gets it any more
        number = next(self._ids)
        try:
            self._send(message(number))
        except OSError as problem:
            raise _silent(problem) from problem
        return self._answer(number, kind, timeout_s)

    def _answer(self, number: int, kind: type[Answer], timeout_s: float | None) -> Answer:
        """Wait for the answer to a question."""
        try:
            while True:
                answer = self._next(timeout_s)
                if answer is not None and getattr(answer, "id", None) == number:
                    break
        except (OSError, ValueError) as problem:
            raise _silent(problem) from problem
        if isinstance(answer, vault.Refused):
            raise StateRefused(answer.message, hint=answer.hint)
        if not isinstance(answer, kind):
            raise StateRefused(f"the agent answered with a {type(answer).__name__}")
        return answer

    def _next(self, timeout_s: float | None) -> vault.Message | None:
        deadline = None if timeout_s is None else monotonic() + timeout_s + SLACK_S
        peer = self._connected()
        while not self._lines:
            left_s = WAIT_S if deadline is None else deadline - monotonic()
            if left_s <= 0:
                raise OSError("its time is over")
            peer.settimeout(left_s)
            try:
                chunk, descriptors, _, _ = _receive(peer)
            except TimeoutError:
                self._say_wait()
                continue
            if not chunk:
                raise OSError("it has hung up")
            self._descriptors += descriptors
            *lines, self._partial = (self._partial + chunk).split(b"\n")
            self._lines += lines
        answer = vault.decode(self._lines.pop(0))
        self._take_memory(answer)
        return answer

    def _take_memory(self, answer: vault.Message | None) -> None:
        """Map what came along, also with an answer that nobody waits for any more: a signal may have ended the wait."""
        if isinstance(answer, vault.Slot) and answer.is_new:
            self._slots[answer.number] = _mapped(answer.number, self._descriptors.pop(0))
        elif isinstance(answer, vault.Found):
            found = zip(answer.descriptors, answer.numbers, strict=True)
            self._found = {name: self._readable(number, self._descriptors.pop(0)) for name, number in found}

    def _readable(self, number: int, descriptor: int) -> memoryview:
        """Return memory to read a commit from: that of a slot which is mapped here, and perhaps registered, or a new map."""
        for mapped in (self._slots, _AHEAD):
            if number in mapped:
                os.close(descriptor)
                return mapped[number]
        # To be read only; torch warns of memory that cannot be written, so writing would make a copy of the page.
        return _map(descriptor, mmap.MAP_PRIVATE)

    def _say_wait(self) -> None:
        if not self._has_said_wait:
            self._has_said_wait = True
            say(
                f"this rank has waited {WAIT_S:.0f} s for its agent: all nodes begin together, all ranks commit the "
                "same steps, and a disk or a buddy may be slow (said once)"
            )

    def _send(self, message: vault.Message) -> None:
        with self._sending:
            self._connected().sendall(vault.encode(message))

    def _connected(self) -> socket.socket:
        if self._socket is None:
            if here.is_waiting():
                raise StateRefused(
                    "the state is used before planaria.worker.join(): this process is a standby, and has no commits yet",
                    hint="call join() first (in a process that is a worker already it returns at once)",
                )
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                peer.connect(self._path)
            except OSError:
                peer.close()
                raise
            self._socket = peer
        return self._socket


def _silent(problem: Exception) -> StateRefused:
    return StateRefused(f"the agent does not answer: {problem}", hint="its last lines may say why")


def _receive(peer: socket.socket) -> tuple[bytes, list[int], int, object]:
    room = socket.CMSG_SPACE(_MOST_DESCRIPTORS * 4)
    chunk, rights, flags, address = peer.recvmsg(_CHUNK_BYTES, room, socket.MSG_CMSG_CLOEXEC)
    found = array("i")
    for level, kind, content in rights:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(content[: len(content) - len(content) % found.itemsize])
    return chunk, [*found], flags, address


def map_ahead(slots: Mapping[int, int | None]) -> None:
    """Map, in a standby, what it will be lent as a worker: its first commits then touch no page for the first time.

    `slots` has all slots of its local rank by number: a descriptor, which is closed, or None for one that came before. What is
    not among them is let go. Nothing here writes: the memory is the running worker's until this process is promoted.
    """
    for number in _AHEAD.keys() - slots.keys():
        del _AHEAD[number]
    for number, descriptor in slots.items():
        if descriptor is not None:
            with suppress(
                Exception
            ):  # no room for it, or a device that refuses: the worker will see to it when it must
                _AHEAD[number] = _map_slot(descriptor)
                _prepare(_AHEAD[number])


def prepare_ahead(prepare: Callable[[memoryview], object]) -> None:
    """Have everything that this process maps ahead prepared too, what it has mapped already and what is to come.

    For a device that must register memory before it can copy into it, some 0.2 s a GB: a standby has the time. `prepare` is a
    method, of an object that is not kept alive by this.
    """
    _PREPARE.append(WeakMethod(prepare))
    for memory in _AHEAD.values():
        prepare(memory)


def _prepare(memory: memoryview) -> None:
    _PREPARE[:] = [known for known in _PREPARE if known() is not None]
    for known in _PREPARE:
        prepare = known()
        if prepare is not None:
            prepare(memory)


def _mapped(number: int, descriptor: int) -> memoryview:
    """Return a slot's memory, which may have been mapped ahead."""
    if number not in _AHEAD:
        return _map_slot(descriptor)
    os.close(descriptor)
    return _AHEAD.pop(number)


def _map_slot(descriptor: int) -> memoryview:
    """Map a slot to write commits into: once in the life of a process, by the standby where there is one.

    All its pages are touched here, in one go, which takes half as long as touching each while it is written.
    """
    try:
        return memoryview(mmap.mmap(descriptor, 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE))
    finally:
        os.close(descriptor)


def _map(descriptor: int, flags: int) -> memoryview:
    try:
        return memoryview(mmap.mmap(descriptor, 0, flags=flags))
    finally:
        os.close(descriptor)


def _verified(memory: memoryview) -> tuple[memoryview, Snapshot]:
    found = snapshots.read(memory)
    if found is None:
        raise ValueError("it is not sealed")
    snapshots.verify(memory, found, leave=(snapshots.BLOCKS,))
    return memory, found
