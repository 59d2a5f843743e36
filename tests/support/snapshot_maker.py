"""Small sealed snapshots, whose content tells which commit and rank they are of."""

from __future__ import annotations

from planaria.contract import snapshot as snapshots
from planaria.contract.commit import Stamp
from planaria.contract.snapshot import Tensor


def content(generation: int, rank: int, size: int) -> bytes:
    return bytes((generation * 31 + rank * 7 + place) % 251 for place in range(256)) * (size // 256)


def sealed(
    generation: int, rank: int = 0, world_size: int = 1, *, run: int = 1, round_: int = 1, size: int = 8192
) -> tuple[memoryview, Stamp]:
    """Return a snapshot and its stamp; `size` is that of its one tensor, a multiple of 256."""
    stamp = Stamp(run, round_, generation, generation * 10, world_size, rank)
    layout = snapshots.arrange([Tensor("weights", "torch", "uint8", (size,), size)], b"values")
    buffer = memoryview(bytearray(layout.size_bytes + 100))
    place = layout.tensors[0].offset
    buffer[place : place + size] = content(generation, rank, size)
    snapshots.seal(buffer, layout, stamp)
    return buffer, stamp


def generation_of(memory: memoryview, found: snapshots.Snapshot) -> int:
    """Return the commit of a snapshot after having compared its content with what it must be."""
    tensor = found.tensors[0]
    assert memory[tensor.offset : tensor.offset + tensor.length] == content(
        found.stamp.generation, found.stamp.rank, tensor.length
    )
    return found.stamp.generation
