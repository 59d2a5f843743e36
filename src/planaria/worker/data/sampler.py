"""The sampler: which samples this rank loads next, and how far the loop has come, in whatever world.

    sampler = ElasticSampler(dataset, batch_size=32, seed=7)
    loader = sampler.count(DataLoader(sampler.seeded(dataset), batch_sampler=sampler, num_workers=4))
    for epoch in sampler.epochs(90):
        for images, labels in loader:
            loss = criterion(model(images), labels)
            weighted(loss, loader.portion).backward()

A loader with workers asks for batches long before the loop wants them, so what the sampler gave out says nothing about what was
trained on. `count` wraps the loader and sees what the loop takes out.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from itertools import islice
from math import inf

from planaria.errors import UsageError
from planaria.worker.console import show
from planaria.worker.data.bookmark import Bookmark, decode, encode, epoch_begins
from planaria.worker.data.counted import Counted, emptied
from planaria.worker.data.ledger import Ledger
from planaria.worker.data.order import Shuffled, indices, picks
from planaria.worker.data.portions import (
    leaves_ranks_empty,
    plain,
    portions,
    samples_left,
    shape,
    steps_left,
    turns_left,
)
from planaria.worker.data.seeds import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
    from contextlib import AbstractContextManager
    from typing import Any, Protocol, TypeGuard

    from planaria.worker.data.order import Order
    from planaria.worker.data.portions import Portion, Shape, Tail
    from planaria.worker.data.seeded import Seeded

    class Joinable(Protocol):
        """DistributedDataParallel, as far as it matters here."""

        def join(self, divide_by_initial_world_size: bool) -> AbstractContextManager[object]:
            """Shadow the collectives of ranks that still have data."""


_OWN_BATCHES = "a loader that makes its own batches"


class ElasticSampler:
    """Batches of indices for a DataLoader's `batch_sampler`, exact across restarts and world sizes.

    `data` is a dataset, its size, or an order such as `ShardOrder`, which has its own seed and shuffling. Rank and world
    size are the environment's RANK and WORLD_SIZE unless given. `global_batch` keeps the samples of a step the same in every
    world, by more or fewer turns. `tail` says what becomes of the rest of an epoch that does not fill a step: `exact` splits it
    evenly, `pad` fills up with repeats, `drop` lets it open the next epoch.

    Raises:
        UsageError: A number is not what it has to be.
    """

    def __init__(  # noqa: PLR0913  each is the user's to choose, by name
        self,
        data: Order | Sized | int,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        tail: Tail = "exact",
        global_batch: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self._order = _order(data, seed, shuffle=shuffle)
        self._sizes = (batch_size, global_batch, tail)
        self._tags = False
        self._skips_empty = False
        self.num_data_workers = 0
        """How many processes load data for the loop, as far as `count` was told."""
        self.epochs_wanted: int | None = None
        """The count that `epochs` was called with."""
        self._is_loaded = False  # and no epoch was begun since
        self.ledger = Ledger()
        self.resize(*_rank_and_world_size(rank, world_size))

    @property
    def batch_size(self) -> int:
        """How many samples a rank takes in a turn."""
        return self._shape.batch_size

    @property
    def epoch(self) -> int:
        """The number of the epoch, from 0."""
        return self.ledger.bookmark.epoch

    @property
    def cursor(self) -> int:
        """How many samples, of all epochs, lie in the whole steps that the loop has taken out."""
        return self.ledger.bookmark.cursor

    @property
    def data_start_index(self) -> int:
        """The cursor within its epoch; below 0 where samples that the epoch before dropped come first."""
        return self.cursor - self.epoch * self._order.samples

    @property
    def steps(self) -> int:
        """How many whole steps of this epoch the loop has taken out, in all worlds."""
        return self.ledger.bookmark.steps

    @property
    def steps_left(self) -> int:
        """How many steps this epoch still has, in this world."""
        return steps_left(self._shape, self.cursor, self._end)

    @property
    def portion(self) -> Portion | None:
        """What the loop took out last: its weight, and whether the optimizer moves now."""
        return self.ledger.taken

    def __len__(self) -> int:
        """Return how many batches are left of this epoch in this world, after those that the loop took out."""
        return turns_left(self._shape, self.cursor, self._end) - self.ledger.bookmark.turns

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the indices of this rank's batches, from where the loop stands to the end of the epoch."""
        feed = self.ledger.claim()
        for portion in self.ledger.give(feed, self._ahead(), skip_empty=self._skips_empty):
            if (
                feed.stands_in and not portion.size
            ):  # one sample, since a loader cannot collate none; `Counted` takes it out
                yield self._stream(portion.reach - 1, portion.reach)
            else:
                yield self._load(portion)

    @property
    def indices(self) -> Indices:
        """The same as single indices, for `DataLoader(sampler=..., batch_size=...)` with the same size of batches.

        A rank without samples in the last batch then gets no batch at all.

        Raises:
            UsageError: Batches in mid-epoch would not be full, and the loader's not those that are counted.
        """
        self._need_full_turns(_OWN_BATCHES)
        return Indices(self)

    def count(
        self, batches: Iterable[Any] | None = None, /, *, loader: Any = None, empty: Callable[[Any], Any] = emptied
    ) -> Counted:
        """Wrap what the loop iterates over, by default the sampler itself: each batch taken out of it moves the sampler on.

        Wrap the outermost iterable, such as one that copies batches to the device ahead of the loop, and name the DataLoader
        inside it as `loader`. A rank without samples gets what `empty` makes of a batch of one sample; `lambda batch: batch`
        is for models that cannot take an empty one.

        Raises:
            UsageError: The loader does not keep batches in order.
        """
        inside = batches if loader is None else loader
        self.num_data_workers = getattr(inside, "num_workers", 0)
        return Counted(self, batches, inside, empty)

    def seeded(self, dataset: Any, transform: Callable[[Any], Any] | None = None) -> Seeded:
        """Wrap a dataset so that whatever is random about a sample follows from seed, epoch and index.

        Python's, numpy's and torch's generators are seeded before each sample, and the index that `dataset` gets has `seed` and
        `epoch`. With `transform` only that is called under the seed, and samples are read as the dataset likes best.
        """
        from planaria.worker.data.seeded import Seeded  # `random` takes 5 ms to import

        self._tags = True
        return Seeded(dataset, transform)

    def epochs(self, count: float) -> Iterator[int]:
        """Yield the epochs' numbers below `count` from where the loop stands, each begun when the one before is over.

        Without an end where it is `math.inf`.

        Where it stands is asked for when the first one is wanted: what is made before `sync()` begins where that leads.

        Raises:
            UsageError: It is not a whole number, nor infinite.
        """
        number = plain(count)
        if number is None and not (type(count) is float and count == inf):
            raise UsageError(f"epochs expects a whole number, or math.inf, got {count!r}")
        self.epochs_wanted = number
        return self._epochs(inf if number is None else number)

    def _epochs(self, count: float) -> Iterator[int]:
        while self.epoch < count:
            yield self.epoch
            self.set_epoch(self.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, unless it is the one that runs: then the loop goes on where it stands.

        A way back right behind `load_state_dict()` is told: `range(90)` there is rarely meant.

        Raises:
            UsageError: It is not a whole number from 0.
        """
        number = plain(epoch)
        if number is None or number < 0:
            raise UsageError(f"epoch expects a whole number from 0, got {epoch!r}")
        epoch = number
        if self._is_loaded and epoch < self.epoch and self._shape.rank == 0:
            show(
                f"planaria: set_epoch({epoch}) goes back from epoch {self.epoch}, where the sampler stood when its state was "
                f"loaded: epochs {epoch} to {self.epoch} are trained on again; a loop that goes on is "
                "`for epoch in range(sampler.epoch, N)`, or sampler.epochs(N)\n"
            )
        self._is_loaded = False
        if epoch != self.epoch:
            self.ledger.move(epoch_begins(self.ledger.bookmark, epoch, self._order.samples, self._shape))

    def resize(self, rank: int, world_size: int) -> None:
        """Take a rank in another world. A step that was taken in part begins anew.

        Raises:
            UsageError: There is no such rank.
        """
        batch_size, global_batch, tail = self._sizes
        self._shape: Shape = shape(rank, world_size, batch_size, global_batch, tail)
        self.ledger.move(Bookmark(self.epoch, self.cursor, 0, self.steps))

    def state_dict(self) -> dict[str, object]:
        """Return where the loop stands, after the last whole step it took out: safe data, the same on every rank.

        Raises:
            UsageError: Batches were given out that nobody counts.
        """
        if self.ledger.uncounted:
            raise UsageError(
                "nobody counts what the loop takes out of the loader, so where it stands is unknown",
                hint="iterate over sampler.count(loader) instead of the loader",
            )
        return encode(self.ledger.bookmark, self._order)

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Stand where that state was taken, in the world of today. Loops that run have to begin again.

        Raises:
            UsageError: It is damaged, or of other data, another seed or other shuffling.
        """
        self.ledger.move(decode(state, self._order))
        self._is_loaded = True

    @contextmanager
    def joined(self, model: Joinable) -> Iterator[None]:
        """Let ranks without samples in the epoch's last batch leave the loop before it, while DDP answers for them.

        It does nothing, and costs nothing, in an epoch in which every rank has samples to the end. What torch's join leaves
        unequal is in docs/data.md.

        Raises:
            UsageError: Ranks are without samples in mid-epoch too.
        """
        if not leaves_ranks_empty(self._shape, self.cursor, self._end):
            yield
            return
        self._need_full_turns("joined()")
        self._skips_empty = True
        try:
            with model.join(divide_by_initial_world_size=True):  # the weights count on it
                yield
        finally:
            self._skips_empty = False

    def base_seed(self) -> int:
        """Return what a loader's own random numbers begin with, so that it takes none of the loop's."""
        return words(1, "planaria loader", self._order.seed, self.cursor)[0]

    def check_loader(self, loader: Any) -> None:
        """See that the batches which a DataLoader makes of single indices are those that are counted.

        Raises:
            UsageError: They are not: the cursor would be wrong from the first batch on.
        """
        maker: Any = getattr(loader, "batch_sampler", None)
        inside = getattr(maker, "sampler", None)
        if maker is None or (inside is not self and not (isinstance(inside, Indices) and inside.sampler is self)):
            return
        if inside is self:
            raise UsageError("the loader makes batches of the sampler's batches", hint="give it batch_sampler=sampler")
        size = getattr(maker, "batch_size", None)
        if size != self.batch_size:
            made = "does not say the batch_size of its batches" if size is None else f"makes batches of {size}"
            raise UsageError(
                f"the loader {made}, and the sampler counts batches of {self.batch_size}",
                hint="give both the same batch_size (a batch sampler of your own says it as an attribute)",
            )
        drops = getattr(maker, "drop_last", False)
        if drops and self._shape.tail == "exact" and (self._end - self.cursor) % self._shape.width:
            raise UsageError(
                "the loader drops the last batch of an epoch, and the sampler counts it",
                hint='leave drop_last out; ElasticSampler(tail="drop") lets those samples open the next epoch',
            )

    def own_samples_left(self) -> int:
        """Return how many samples this rank still loads in this epoch."""
        taken = self.ledger.bookmark.turns * self._shape.batch_size
        return samples_left(self._shape, self.cursor, self._end) - taken

    def one_by_one(self) -> Iterator[int]:
        """Yield what `__iter__` yields, index by index and without empty batches.

        Raises:
            UsageError: In the world of today batches in mid-epoch would not be full.
        """
        self._need_full_turns(_OWN_BATCHES)
        feed = self.ledger.claim()
        for portion in self.ledger.give(feed, self._ahead(), skip_empty=True):
            yield from self._load(portion)

    @property
    def _end(self) -> int:
        return (self.epoch + 1) * self._order.samples

    def _ahead(self) -> Iterator[Portion]:
        return islice(portions(self._shape, self.cursor, self._end), self.ledger.bookmark.turns, None)

    def _load(self, portion: Portion) -> list[int]:
        """Return a portion's indices; repeats are the epoch's samples from its beginning, as often as it takes."""
        stop = portion.start + portion.size - portion.repeats
        found = self._stream(portion.start, stop) if portion.size > portion.repeats else []
        samples, at = self._order.samples, max(portion.start, stop) - self._end
        while len(found) < portion.size:
            first = self._end - samples + at % samples
            many = min(portion.size - len(found), self._end - first)
            found += self._stream(first, first + many)
            at += many
        return found

    def _stream(self, start: int, stop: int) -> list[int]:
        return (picks if self._tags else indices)(self._order, start, stop)

    def _need_full_turns(self, what: str) -> None:
        if self._shape.global_batch % self._shape.width:
            raise UsageError(
                f"{what} needs a global_batch that is a multiple of world size times batch_size, {self._shape.width}, "
                f"got {self._shape.global_batch}"
            )


class Indices:
    """Made by `ElasticSampler.indices`: the samples of this rank, one by one."""

    def __init__(self, sampler: ElasticSampler) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return self.sampler.own_samples_left()

    def __iter__(self) -> Iterator[int]:
        return self.sampler.one_by_one()


def _order(data: Order | Sized | int, seed: int, *, shuffle: bool) -> Order:
    if _is_order(data):
        if seed != 0 or not shuffle:
            raise UsageError("an order has its own seed and shuffling: give them to it, not to the sampler")
        return data
    sized: Any = data
    try:
        samples = data if isinstance(data, int) else len(sized)
    except TypeError as exc:
        raise UsageError(
            f"data expects a dataset with a length, or a number of samples, got a {type(data).__name__}, which has none",
            hint="a stream has no position to go back to: ShardedData makes a dataset of what is read from front to back",
        ) from exc
    if type(samples) is not int or samples < 0:
        raise UsageError(f"data expects a dataset with a length, or a number of samples, got {data!r}")
    return Shuffled(samples, seed=seed, shuffle=shuffle)


def _is_order(data: object) -> TypeGuard[Order]:
    return hasattr(data, "part") and hasattr(data, "describe")


def _rank_and_world_size(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Complete what was given by what a worker is told, as under any launcher of torch's kind."""
    told = os.environ  # noqa: TID251  a default for whoever builds a sampler, as torch reads it too
    if (rank is None) != (world_size is None):
        raise UsageError(f"rank and world_size belong together, got {rank!r} and {world_size!r}")
    if rank is not None and world_size is not None:
        return rank, world_size
    return int(told.get("RANK", "0")), int(told.get("WORLD_SIZE", "1"))
