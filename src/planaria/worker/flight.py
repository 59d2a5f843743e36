"""A commit's copy from a GPU into shared memory, under way while training goes on.

    the program's thread      begin: mark the current stream            hold, before optimizer.step(): the device waits
    the sealing thread        issue: digests and copies beside, done mark            land: wait for the mark, then seal

Parameters and optimizer state may be read until the next `optimizer.step()`, since its hook calls `hold`. Everything else was
copied within the device, in the order of the program's stream, before `begin`.
"""

from __future__ import annotations

import sys
import threading

from planaria.contract.snapshot import BLOCKS, of_blocks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from planaria.contract.snapshot import Tensor
    from planaria.worker.device import Cuda


class Pad:
    """Where flights of one layout start from and land: views of each slot, and room for sums. Made once, used every commit."""

    def __init__(self, device: Cuda, rows: Sequence[tuple[int, Tensor]]) -> None:
        self.device = device
        self.rows = [*rows]
        self._summed: list[int] = []
        self._slots: dict[int, list[Any]] = {}
        self._addresses: list[int] = []
        self._blocks: Any = None
        self._sums: Any = None

    def targets(self, memory: Any) -> list[Any]:
        """Return each tensor's place in a slot, a tensor of bytes, which is registered."""
        self.device.register(memory)  # where that fails, copies are slower and right all the same
        address = memory.data_ptr()
        if address not in self._slots:
            torch: Any = sys.modules["torch"]
            self._slots = {at: views for at, views in self._slots.items() if len(self._slots) < 3}
            self._slots[address] = [
                memory[row.offset : row.offset + row.length].view(getattr(torch, row.dtype)).view(row.shape)
                for _, row in self.rows
            ]
        return self._slots[address]

    def sum(self, sources: list[Any]) -> None:
        """Compute the digests of the sources on the current stream, and have their sums brought here.

        Of those that begin where the device can read fast; the digests of the others are left to the host.
        """
        rows = enumerate(self.rows)
        self._summed = [at for at, (_, row) in rows if row.digest_kind == BLOCKS and sources[at].data_ptr() % 16 == 0]
        summed = [sources[at] for at in self._summed]
        if not summed:
            return
        addresses = [source.data_ptr() for source in summed]
        if addresses != self._addresses:
            self._blocks, self._addresses = self.device.blocks(summed), addresses
            self._sums = self.device.empty_on_host(sum(self._blocks.counts), "int32")
        self.device.sum_blocks(self._blocks, summed)
        self.device.copy(self._sums, self._blocks.sums)

    def digests(self) -> dict[int, int]:
        """Return what `sum` found, by the number of the tensor. The device must have come so far."""
        if not self._summed:
            return {}
        sums, at, found = memoryview(self._sums.numpy()).cast("B"), 0, {}
        for place, count in zip(self._summed, self._blocks.counts, strict=True):
            found[self.rows[place][0]] = of_blocks(sums[4 * at : 4 * (at + count)])
            at += count
        return found


class Flight:
    """One commit's copy. `sources` are kept until it has landed: their memory is not given to anything else."""

    def __init__(self, pad: Pad, sources: list[Any], memory: Any) -> None:
        self._pad = pad
        self._sources = sources
        self._memory = memory
        self._issued = threading.Event()
        self._begun = pad.device.mark()
        self._done: Any = None

    def issue(self) -> None:
        """Ask for digests and copies, behind all that the program had asked for. For the sealing thread."""
        device, torch = self._pad.device, sys.modules["torch"]
        try:
            with device.here(), torch.no_grad(), device.beside():
                targets = self._pad.targets(self._memory)
                device.wait_beside(self._begun)
                self._sources = [source.contiguous() for source in self._sources]
                self._pad.sum(self._sources)
                for target, source in zip(targets, self._sources, strict=True):
                    device.copy(target, source)
                self._done = device.mark()
        finally:
            self._issued.set()

    def land(self) -> dict[int, int]:
        """Wait for the copies; return the digests. For the sealing thread."""
        self._pad.device.wait(self._done)
        self._sources = []
        return self._pad.digests()

    def hold(self) -> None:
        """Have the device wait for the copies before it goes on: parameters are about to change. Not this thread."""
        self._issued.wait()
        if self._done is not None:
            self._pad.device.wait_here(self._done)
