"""A store and its loop as a test wants them: ask and get the answer, watch and get the events, with a limit of patience."""

from __future__ import annotations

from functools import partial

from planaria.store.model import Resumed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop
    from planaria.store.api import Store, Watching
    from planaria.store.model import Event, Reply, Request

PATIENCE_S = 60.0


def run_until(loop: Loop, is_done: Callable[[], object], *, within_s: float = PATIENCE_S) -> None:
    """Turn the loop until something is true.

    Raises:
        TimeoutError: It did not become true in time.
    """
    deadline = loop.now() + within_s
    while not is_done():
        left_s = deadline - loop.now()
        if left_s <= 0:
            raise TimeoutError(f"not within {within_s:g} s")
        loop.run_once(left_s)


def run_for(loop: Loop, duration_s: float) -> None:
    """Turn the loop for a while."""
    passed: list[bool] = []
    loop.call_later(duration_s, lambda: passed.append(True))
    run_until(loop, lambda: passed)


class Watched:
    """The events of one watch so far, `Resumed` aside: when a store says that is its own affair."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.events: list[Event] = []
        self.watching: Watching | None = None

    def take(self, event: Event) -> None:
        """Take what the watch tells."""
        if not isinstance(event, Resumed):
            self.events.append(event)

    def wait_for(self, count: int) -> list[Event]:
        """Return the first `count` events, once they have come."""
        run_until(self._loop, lambda: len(self.events) >= count)
        return self.events[:count]

    def cancel(self) -> None:
        """End the watch."""
        assert self.watching is not None
        self.watching.cancel()


class Client:
    """One client of a store."""

    def __init__(self, loop: Loop, store: Store) -> None:
        self.loop = loop
        self.store = store

    def ask(self, asked: Request, *, timeout_s: float = 30.0) -> Reply:
        """Return the answer to a request."""
        return self.ask_all(asked, timeout_s=timeout_s)[0]

    def ask_all(self, *asked: Request, timeout_s: float = 30.0) -> list[Reply]:
        """Send requests at once and return their answers, in the order of the requests."""
        replies: dict[int, Reply] = {}
        for place, request in enumerate(asked):
            self.store.ask(request, partial(replies.__setitem__, place), timeout_s=timeout_s)
        run_until(self.loop, lambda: len(replies) == len(asked))
        return [replies[place] for place in range(len(asked))]

    def watch(self, prefix: str, after: int) -> Watched:
        """Begin to watch."""
        watched = Watched(self.loop)
        watched.watching = self.store.watch(prefix, after, watched.take)
        return watched
