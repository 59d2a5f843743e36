"""The book in which what was given out to a loader and what the loop took out of it are kept apart."""

from __future__ import annotations

from collections import deque

from planaria.errors import UsageError
from planaria.worker.data.bookmark import Bookmark, after

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from planaria.worker.data.portions import Portion


class Feed:
    """One iteration over a sampler: what was given out and not yet taken."""

    def __init__(self, *, counted: bool, stands_in: bool = False) -> None:
        self.counted = counted
        self.stands_in = stands_in
        """Whether one sample stands in for an empty portion, because a loader is in between."""
        self._claimed = not counted
        self.given: deque[Portion] = deque()
        self.skipped: list[Portion] = []

    def claim(self) -> bool:
        """Tell whether this is the iteration that the feed was opened for."""
        first, self._claimed = not self._claimed, True
        return first


class Ledger:
    """Where the loop stands, moved by what it takes out. One loop at a time."""

    def __init__(self) -> None:
        self.bookmark = Bookmark()
        self.taken: Portion | None = None
        self.uncounted = False
        """Whether batches were given out that nobody counts."""
        self._feed: Feed | None = None
        self._is_over = False  # the epoch, for a loop of this process

    def move(self, bookmark: Bookmark) -> None:
        """Stand somewhere else. Whatever iterates has to begin again."""
        self.bookmark = bookmark
        self.taken = None
        self.uncounted = False
        self._feed = None
        self._is_over = False

    def open(self, *, stands_in: bool) -> Feed:
        """Begin to count: the next iteration over the sampler belongs to this feed.

        Raises:
            UsageError: A loop before this one has come to the end of the epoch. What was loaded there may begin one.
        """
        if self._is_over:
            raise UsageError(
                "the epoch is over, and a loop that begins now would get no batch: no other epoch was begun",
                hint="call sampler.set_epoch(epoch) with another number before each loop, or let "
                "`for epoch in sampler.epochs(N)` do it",
            )
        self.uncounted = False
        self._feed = Feed(counted=True, stands_in=stands_in)
        return self._feed

    def claim(self) -> Feed:
        """Return the feed of an iteration over the sampler that begins now."""
        return self._feed if self._feed is not None and self._feed.claim() else Feed(counted=False)

    def give(self, feed: Feed, portions: Iterable[Portion], *, skip_empty: bool) -> Iterator[Portion]:
        """Note portions as given out, one by one as they are asked for."""
        for portion in portions:
            if skip_empty and not portion.size:
                feed.skipped.append(portion)
                continue
            feed.given.append(portion)
            if not feed.counted and self._feed is None:
                self.uncounted = True
            yield portion

    def take(self, feed: Feed) -> Portion:
        """Move on by the batch that the loop takes out.

        Raises:
            UsageError: It cannot be known which batch that is.
        """
        if feed is not self._feed:
            raise UsageError(
                "the loader's iterator is older than the sampler's bookmark",
                hint="one loop at a time; begin it again after load_state_dict(), resize() and set_epoch()",
            )
        if not feed.given:
            raise UsageError(
                "the loader hands out batches that its sampler did not give out", hint="is it the batch_sampler?"
            )
        self.taken = feed.given.popleft()
        self.bookmark = after(self.bookmark, self.taken)
        return self.taken

    def finish(self, feed: Feed, left: Callable[[], int]) -> None:
        """Note that the loop has come to the loader's end, and with it to that of the epoch; `left` counts its batches.

        Raises:
            UsageError: Batches of the epoch never came.
        """
        if feed is not self._feed:  # somebody stands elsewhere meanwhile
            return
        if feed.given:
            raise UsageError(
                f"the loader ended and had not handed out {len(feed.given)} of the sampler's batches",
                hint="something between sampler and loop drops batches, as drop_last does",
            )
        for portion in feed.skipped:
            self.bookmark = after(self.bookmark, portion)
        self._feed = None
        if left():
            raise UsageError(
                f"the loader ended {left()} batches before the end of the epoch",
                hint="can it be iterated over once more? a generator cannot; to leave an epoch early, leave the loop",
            )
        self._is_over = True
