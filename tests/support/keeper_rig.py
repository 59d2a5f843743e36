"""A keeper of two workers, with nothing but its memory and directory: no agent, and no process."""

from __future__ import annotations

import os
from collections.abc import Callable

from clocks import Leaping
from unmapped import Unmapped

from planaria.agent.control import Peer
from planaria.agent.keeper import Keeper
from planaria.agent.settings import Shelter
from planaria.agent.stock import Stock
from planaria.base.loop import Loop
from planaria.contract import snapshot as snapshots
from planaria.contract import vault
from planaria.contract.commit import Stamp
from planaria.contract.env import Round

TIMEOUT_S = 60.0
MEGABYTE = 10**6


def life(number: int = 0, world_size: int = 2) -> Round:
    return Round(number, "run", "role", 0, 1, 0, world_size, 0, world_size, world_size, "::1", 1, number, 9)


class Rig:
    """A keeper of two workers whose control socket only writes down what was said."""

    def __init__(self, directory: str | None = None) -> None:
        self.clock = Leaping()
        self.loop = Loop(self.clock)
        self.said: list[str] = []
        self.free = 1000 * MEGABYTE
        self.memory = Unmapped()
        self.answers: list[tuple[Peer, vault.Message | None, tuple[int, ...]]] = []
        self.keeper = Keeper(
            self.loop,
            self,  # type: ignore[arg-type]  # all that it uses of a control server is `reply`
            Stock(2, lambda: self.free, self.memory),
            Shelter(directory),
            self.said.append,
        )
        self.new_life(0)

    def reply(self, peer: Peer, line: bytes, descriptors: tuple[int, ...] = ()) -> None:
        self.answers.append((peer, vault.decode(line), descriptors))

    def new_life(self, number: int) -> None:
        self.peers = [Peer(-1, 10 + rank, rank) for rank in (0, 1)]
        self.round = number
        self.keeper.begin(life(number))

    def ask(self, rank: int, message: vault.Message) -> vault.Message | None:
        """Return the answer, None when there is none yet."""
        before = len(self.answers)
        self.keeper.hear(self.peers[rank], message)
        return next((found for peer, found, _ in self.answers[before:] if peer is self.peers[rank]), None)

    def commit(self, rank: int, generation: int, size: int = 10_000) -> vault.Slot:
        before = len(self.answers)
        slot = self.ask(rank, vault.Open(1, size))
        if slot is None:  # the directory is being searched
            self.run_until(lambda: len(self.answers) > before)
            slot = self.answers[before][1]
        assert isinstance(slot, vault.Slot), slot
        self.seal(rank, slot, generation, size)
        return slot

    def seal(self, rank: int, slot: vault.Slot, generation: int, size: int = 10_000) -> None:
        stamp = Stamp(self.keeper._ledger.run, self.round, generation, generation * 10, 2, rank)
        layout = snapshots.arrange([], bytes(size - 5000))
        buffer = memoryview(bytearray(layout.size_bytes))
        snapshots.seal(buffer, layout, stamp)
        os.pwrite(self.keeper._stock._numbers[slot.number], buffer, 0)
        fields = (stamp.run, stamp.round, generation, stamp.step, stamp.world_size, rank)
        self.keeper.hear(self.peers[rank], vault.Sealed(slot.number, *fields))

    def spoil(self, rank: int) -> None:
        """Let the memory of everything that a rank has kept rot."""
        for slot in self.keeper._stock.slots.of(rank):
            self.keeper._stock.view(slot)[5000] ^= 1

    def run_until(self, done: Callable[[], object]) -> None:
        deadline = self.loop.now() + TIMEOUT_S
        while not done():
            assert self.loop.now() < deadline
            self.loop.run_once(1.0)
