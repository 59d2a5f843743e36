"""Who gets which part of the stream: arithmetic on one cursor, the same on every rank, without a word between them.

A *step* is one global batch, after which the optimizer moves: the next `global_batch` samples of the stream. With W ranks and
batches of B that is one *turn* if it is W*B samples, the default, and several if it is more: then gradients are accumulated.
A turn is a slice [c, c+W*B) of the stream, less at the end of a step, and rank r gets its r-th contiguous part, its *portion*.
Turns are prefixes of the stream: whatever the sizes of the worlds that took them, what was taken is everything below a cursor.
"""

from __future__ import annotations

from operator import index as whole

from planaria.base.value import Value
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

    Tail = Literal["exact", "pad", "drop"]

TAILS = ("exact", "pad", "drop")


class Shape(Value):
    """A rank's view of how the stream is cut: its rank and world, and the sizes of batches."""

    rank: int
    world_size: int
    batch_size: int
    global_batch: int
    tail: Tail

    @property
    def width(self) -> int:
        """How many samples the world takes in a turn."""
        return self.world_size * self.batch_size


class Portion(Value):
    """What one rank gets in one turn, and what it weighs."""

    start: int  # of this rank's part, as a position in the stream
    size: int
    repeats: int  # how many of them, the last ones, are repeats that fill the batch (tail "pad")
    of: int  # the samples of the whole step, all ranks and turns together
    world_size: int
    reach: int  # the cursor once every rank has taken this turn
    closes: bool  # the last turn of its step: let gradients meet and the optimizer move

    @property
    def share(self) -> float:
        """This portion's part of the step: what its mean loss weighs in a sum over all ranks and turns."""
        return self.size / self.of

    @property
    def weight(self) -> float:
        """What to multiply the mean loss with where gradients are averaged over ranks, as DDP does; 1.0 in a full turn."""
        return self.world_size * self.size / self.of


def shape(rank: int, world_size: int, batch_size: int, global_batch: int | None, tail: Tail) -> Shape:
    """Check the numbers of a shape; `global_batch` is W*B unless said otherwise.

    Raises:
        UsageError: A number is not what it has to be.
    """
    world_size, batch_size = _checked(world_size=world_size, batch_size=batch_size)
    if global_batch is not None:
        (global_batch,) = _checked(global_batch=global_batch)
    own = plain(rank)
    if own is None or not 0 <= own < world_size:
        raise UsageError(f"rank expects a whole number from 0 to {world_size - 1}, got {rank!r}")
    if tail not in TAILS:
        raise UsageError(f"tail expects one of {', '.join(TAILS)}, got {tail!r}")
    step = global_batch if global_batch is not None else world_size * batch_size
    return Shape(own, world_size, batch_size, step, tail)


def _checked(**sizes: int) -> list[int]:
    """Return sizes, of which some may be numbers of NumPy's, as plain ones."""
    found = {name: plain(value) for name, value in sizes.items()}
    for name, number in found.items():
        if number is None or number < 1:
            raise UsageError(f"{name} expects a whole number above 0, got {sizes[name]!r}")
    return [number for number in found.values() if number is not None]


def plain(value: object) -> int | None:
    """Return a whole number, which may be one of NumPy's, as a plain one; None where it is none."""
    try:
        return None if isinstance(value, bool) else whole(value)  # type: ignore[arg-type]  # that is the question
    except TypeError:
        return None


def turns_per_step(global_batch: int, world_size: int, batch_size: int) -> int:
    """Return how many turns a whole step takes: over how many batches each rank accumulates to keep the global batch.

    Raises:
        UsageError: A number is not what it has to be.
    """
    whole_step, *turn = _checked(global_batch=global_batch, world_size=world_size, batch_size=batch_size)
    return -(-whole_step // (turn[0] * turn[1]))


def even_part(size: int, world_size: int, rank: int) -> tuple[int, int]:
    """Split `size` samples as evenly as possible; return where a rank's contiguous part begins and how long it is."""
    least, more = divmod(size, world_size)
    return rank * least + min(rank, more), least + (rank < more)


def portions(shape: Shape, start: int, end: int) -> Iterator[Portion]:
    """Yield a rank's turns from `start`, the beginning of a step, to `end`, that of the epoch."""
    while size := _step_size(shape, end - start):
        for at in range(0, size, shape.width):
            yield _portion(shape, start, at, size, end)
        start = min(start + size, end)


def turns_left(shape: Shape, start: int, end: int) -> int:
    """Count what `portions` would yield."""
    steps, rest = divmod(max(end - start, 0), shape.global_batch)
    whole = -(-shape.global_batch // shape.width)
    return steps * whole + -(-_step_size(shape, rest) // shape.width)


def samples_left(shape: Shape, start: int, end: int) -> int:
    """Count the samples in what `portions` would yield, repeats included."""
    steps, rest = divmod(max(end - start, 0), shape.global_batch)
    return steps * _own(shape, shape.global_batch) + _own(shape, _step_size(shape, rest))


def steps_left(shape: Shape, start: int, end: int) -> int:
    """Count the steps that `portions` would yield."""
    steps, rest = divmod(max(end - start, 0), shape.global_batch)
    return steps + (_step_size(shape, rest) > 0)


def leaves_ranks_empty(shape: Shape, start: int, end: int) -> bool:
    """Tell whether some rank gets an empty portion between `start` and `end`: every rank gives the same answer."""
    steps, rest = divmod(max(end - start, 0), shape.global_batch)
    sizes = ([shape.global_batch] if steps else []) + [_step_size(shape, rest)]
    return any(0 < size % shape.width < shape.world_size for size in sizes)


def _step_size(shape: Shape, left: int) -> int:
    """Return how many samples the next step has, repeats included, 0 if there is none."""
    if left >= shape.global_batch or (left > 0 and shape.tail == "pad"):
        return shape.global_batch
    return left if left > 0 and shape.tail == "exact" else 0


def _portion(shape: Shape, start: int, at: int, size: int, end: int) -> Portion:
    width = min(shape.width, size - at)
    first, own = even_part(width, shape.world_size, shape.rank)
    begin = start + at + first
    return Portion(
        start=begin,
        size=own,
        repeats=max(0, begin + own - max(begin, end)),
        of=size,
        world_size=shape.world_size,
        reach=min(start + at + width, end),
        closes=at + width == size,
    )


def _own(shape: Shape, size: int) -> int:
    """Return how many of a step's samples are this rank's."""
    turns, rest = divmod(size, shape.width)
    return turns * shape.batch_size + even_part(rest, shape.world_size, shape.rank)[1]
