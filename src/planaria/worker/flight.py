"""A commit's copy from a GPU into shared memory, under way while training goes on.

    the program's thread      begin: mark the current stream            hold, before optimizer.step(): the device waits
    the sealing thread        issue: copies beside, sums aside, done mark     digests: of what is here; land: wait for the mark

Parameters and optimizer state may be read until the next `optimizer.step()`, since its hook calls `hold`. Everything else was
copied within the device, in the order of the program's stream, before `begin`.

A device sends one tensor of 3 kB in the time of 100 kB. So small ones, most of all tensors, are gathered on the device and sent
in one piece. The first of the large ones go ahead of everything, so that the bus is busy at once; sums and what was gathered
follow them, and the host puts those to their places while the other large ones are on their way.
"""

from __future__ import annotations

import sys
import threading
from zlib import crc32

from planaria.contract import snapshot as snapshots
from planaria.contract.snapshot import ALIGNMENT, BLOCKS, of_blocks
from planaria.errors import StateRefused
from planaria.worker.readiness import marks_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from planaria.contract.commit import Stamp
    from planaria.contract.snapshot import Layout, Tensor
    from planaria.worker.device import Cuda

    Row = tuple[int, Tensor]


_SLOTS = 4  # a worker is lent four at most
_AHEAD_OF_ALL = 4  # one part in so many of the large ones


class Sums:
    """Digests of large tensors, computed on the device. Made once for some tensors, used every commit."""

    def __init__(self, device: Cuda, rows: Sequence[Row]) -> None:
        self._device = device
        self._rows = [*rows]
        self._summed: list[int] = []
        self._addresses: list[int] = []
        self._blocks: Any = None
        self._sums: Any = None

    def ask(self, sources: list[Any]) -> None:
        """Compute the sums of the sources on the current stream.

        Of those that begin where the device can read fast; the digests of the others are left to the host.
        """
        self._summed = [at for at, source in enumerate(sources) if source.data_ptr() % 16 == 0]
        summed = [sources[at] for at in self._summed]
        if not summed:
            return
        addresses = [source.data_ptr() for source in summed]
        if addresses != self._addresses:
            self._blocks, self._addresses = self._device.blocks(summed), addresses
            self._sums = self._device.empty_on_host(sum(self._blocks.counts), "int32")
        self._device.sum_blocks(self._blocks, summed)

    def bring(self) -> None:
        """Have the sums brought here, on the current stream, behind what `ask` began."""
        if self._summed:
            self._device.copy(self._sums, self._blocks.sums)

    def digests(self) -> dict[int, int]:
        """Return what was found, by the number of the tensor. The device must have come so far."""
        if not self._summed:
            return {}
        sums, at, found = memoryview(self._sums.numpy()).cast("B"), 0, {}
        for place, count in zip(self._summed, self._blocks.counts, strict=True):
            found[self._rows[place][0]] = of_blocks(sums[4 * at : 4 * (at + count)])
            at += count
        return found


class Gather:
    """Small tensors in one piece: on the device, and on the host."""

    def __init__(self, device: Cuda, rows: Sequence[Row]) -> None:
        self._device = device
        self._rows = [*rows]
        self._places: list[int] = []
        at = 0
        for _, row in rows:
            self._places.append(at)
            at += -(-row.length // ALIGNMENT) * ALIGNMENT
        self._here = device.empty(at)
        self._on_host = device.empty_on_host(at, "uint8")
        self._views = [view_of(self._here, row, place) for (_, row), place in zip(rows, self._places, strict=True)]

    def ask(self, sources: list[Any]) -> None:
        """Gather the sources, on the current stream."""
        if sources:
            self._device.copy_each(self._views, sources)

    def bring(self) -> None:
        """Have them brought here, on the current stream, behind what `ask` began."""
        if self._rows:
            self._device.copy(self._on_host, self._here)

    def spread(self, buffer: memoryview) -> dict[int, int]:
        """Put them where they belong; return their digests, by number. The device must have come so far."""
        if not self._rows:
            return {}
        content, digests = memoryview(self._on_host.numpy()), {}
        for (number, row), place in zip(self._rows, self._places, strict=True):
            part = content[place : place + row.length]
            buffer[row.offset : row.offset + row.length] = part
            digests[number] = crc32(part)
        return digests


class Pad:
    """Where flights of one layout start from and land: views of each slot, room for sums and for what is gathered."""

    def __init__(self, device: Cuda, rows: Sequence[Row]) -> None:
        self.device = device
        self._small = [at for at, (_, row) in enumerate(rows) if row.digest_kind != BLOCKS]
        self._large = [at for at, (_, row) in enumerate(rows) if row.digest_kind == BLOCKS]
        self._large_rows = [rows[at] for at in self._large]
        self._rows = [*rows]
        self.ahead = _ahead([row.length for _, row in self._large_rows])
        self.gather = Gather(device, [rows[at] for at in self._small])
        self.sums = Sums(device, self._large_rows)
        self._slots: dict[int, tuple[int, list[Any]]] = {}

    def name(self, at: int) -> str:
        """Return the name of a source."""
        return self._rows[at][1].name

    def find_other(self, sources: list[Any]) -> str:
        """Return the name of a source that has another form than its row: the second walk does not look at that."""
        torch: Any = sys.modules["torch"]
        rows = [row for _, row in self._rows]
        pairs = zip(rows, sources, strict=True)
        others = (row for row, one in pairs if row.shape != one.shape or getattr(torch, row.dtype) is not one.dtype)
        return next((row.name for row in others), "")

    def small(self, sources: list[Any]) -> list[Any]:
        """Return those that are gathered."""
        return [sources[at] for at in self._small]

    def large(self, sources: list[Any]) -> list[Any]:
        """Return those that are copied and digested one by one, each as plain bytes in the order of its elements."""
        return [_straight(sources[at]) for at in self._large]

    def targets(self, buffer: memoryview) -> list[Any]:
        """Return each large tensor's place in a slot. Those of the last slots are kept."""
        torch: Any = sys.modules["torch"]
        memory = torch.frombuffer(buffer, dtype=torch.uint8)
        address = memory.data_ptr()
        if address not in self._slots or self._slots[address][0] != len(memory):
            views = [view_of(memory, row, row.offset) for _, row in self._large_rows]
            kept = [*self._slots.items()][-(_SLOTS - 1) :]
            self._slots = {**dict(kept), address: (len(memory), views)}
        return self._slots[address][1]


def _ahead(lengths: list[int]) -> int:
    """Return how many of the large tensors go ahead of all else."""
    sent = count = 0
    while sent * _AHEAD_OF_ALL < sum(lengths):
        sent += lengths[count]
        count += 1
    return count


def view_of(memory: Any, row: Tensor, at: int) -> Any:
    """Return the tensor of a row at a place in a tensor of bytes."""
    torch: Any = sys.modules["torch"]
    return memory[at : at + row.length].view(getattr(torch, row.dtype)).view(row.shape)


def _straight(source: Any) -> Any:
    is_plain = source.is_contiguous() and not source.is_conj() and not source.is_neg()
    return source if is_plain else source.detach().resolve_conj().resolve_neg().contiguous()


class Flight:
    """One commit's copy. `sources` are kept until it has landed: their memory is not given to anything else."""

    def __init__(self, pad: Pad, sources: list[Any], marks: list[int] | None = None) -> None:
        """Begin. `marks` are counts of changes from before, which were made ready."""
        self._pad = pad
        self._sources = sources
        self._is_ready_made = marks is not None
        self.marks = marks_of(sources) if marks is None else marks
        self._changed = ""
        self._is_held = False
        self.is_summed = False
        self._large: list[Any] = []
        self._issued = threading.Event()
        self._begun = pad.device.mark()
        self._brought: Any = None
        self._done: Any = None

    def is_as_made_ready(self) -> bool:
        """Tell whether nothing has been changed since the marks were made ready. For the sealing thread, before `issue`."""
        return not self._is_ready_made or marks_of(self._sources) == self.marks

    def issue(self, buffer: memoryview) -> None:
        """Ask for copies and digests, behind all that the program had asked for. For the sealing thread."""
        pad, device, torch = self._pad, self._pad.device, sys.modules["torch"]
        is_registered = device.register(buffer)  # where that fails, copies are slower and right all the same
        targets = pad.targets(buffer)
        with device.here(), torch.no_grad():
            with device.beside():
                device.wait_here(self._begun)
                self._large = large = pad.large(self._sources)
                ready = device.mark()
                device.copy_many(targets[: pad.ahead], large[: pad.ahead], is_registered=is_registered)
            with device.aside():
                device.wait_here(ready)
                pad.gather.ask(pad.small(self._sources))
                pad.sums.ask(large)
                summed = device.mark()
            with device.beside():
                device.wait_here(summed)
                pad.gather.bring()
                pad.sums.bring()
                self._brought = device.mark()
                device.copy_many(targets[pad.ahead :], large[pad.ahead :], is_registered=is_registered)
                self._done = device.mark()
        self._issued.set()

    def give_up(self) -> None:
        """Let nobody wait for what will not be issued, and go of its sources. After `issue` it does nothing."""
        if not self._issued.is_set():
            self._sources = []
        self._issued.set()

    def seal(self, buffer: memoryview, layout: Layout, stamp: Stamp | None) -> None:
        """Land in a buffer, and seal it where there is a stamp. All but the header is written while copies are under way.

        For the sealing thread.

        Raises:
            StateRefused: Something was changed before its copy was over, by other means than a step with a hook.
        """
        digests = self.digests(buffer)
        checksum = snapshots.write_table(buffer, layout, digests) if self.is_summed else None
        self.land()
        if stamp is not None:
            if checksum is None:
                checksum = snapshots.write_table(buffer, layout, digests)
            snapshots.write_header(buffer, layout, stamp, checksum)

    def digests(self, buffer: memoryview) -> dict[int, int]:
        """Wait for what was gathered, and put it to its places; return the digests. For the sealing thread.

        `is_summed` tells whether they are all: the others are of what is not there before `land`.
        """
        self._pad.device.wait(self._brought)
        found = self._pad.gather.spread(buffer) | self._pad.sums.digests()
        self.is_summed = len(found) == len(self._sources)
        other = self._pad.find_other(self._sources)
        if other:  # never set to nothing: `hold` may have found something meanwhile
            self._changed = other
        return found

    def land(self) -> None:
        """Wait for the copies. For the sealing thread.

        Raises:
            StateRefused: Something was changed before its copy was over, by other means than a step with a hook.
        """
        self._pad.device.wait(self._done)
        changed = self._find_changed()
        if changed and not self._is_held:  # in this order: who holds has looked before
            self._changed = changed
        self._sources, self._large = [], []
        if self._changed:
            raise StateRefused(
                f"{self._changed} was changed by other means than a step of its optimizer, before its copy was over",
                hint='call commit(wait="node") before such a change',
            )

    def hold(self) -> None:
        """Have the device wait for the copies before it goes on: parameters are about to change. Not this thread.

        This thread waits only until they are asked for: when it is two commits ahead of the device.
        """
        if changed := self._find_changed():
            self._changed = changed
        self._is_held = True
        self._issued.wait()
        if self._done is not None:
            self._pad.device.wait_here(self._done)

    def _find_changed(self) -> str:
        """Return the name of a tensor that is not as it was when the flight began; nothing once it has landed."""
        sources = self._sources
        if not sources or (marks := marks_of(sources)) == self.marks:
            return ""
        pairs = zip(marks, self.marks, strict=True)
        return next(self._pad.name(at) for at, (one, other) in enumerate(pairs) if one != other)
