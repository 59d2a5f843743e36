"""A watch that ends again and again is listed again with pauses; one that had lasted is listed at once."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from clocks import FakeLoop

from planaria.store.api import Store, Watching
from planaria.store.follow import follow
from planaria.store.model import Changed, Listed, Resumed, WatchLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.store.model import Event, Reply, Request

LISTED = Listed((), 1)
CHANGE = Changed("k", b"v", 2)


class Ending(Store):
    """Lists at once; its watches say `event` after `lasts_s`, and again and again until they are cancelled."""

    def __init__(self, loop: FakeLoop, event: Event, lasts_s: float) -> None:
        self.loop = loop
        self.event = event
        self.lasts_s = lasts_s
        self.listed_at: list[float] = []
        self.watches: list[Ended] = []

    @property
    def pauses(self) -> list[float]:
        return [after - before for before, after in itertools.pairwise(self.listed_at)]

    def ask(self, asked: Request, on_reply: Callable[[Reply], object], *, timeout_s: float = 5.0) -> None:
        del asked, timeout_s
        assert all(watch.is_cancelled for watch in self.watches)
        self.listed_at.append(self.loop.now())
        on_reply(LISTED)

    def watch(self, prefix: str, after: int, on_event: Callable[[Event], object]) -> Watching:
        del prefix, after
        self.watches.append(Ended(self, on_event))
        return self.watches[-1]

    def close(self) -> None:
        pass


class Ended(Watching):
    """A watch that says the same again and again, and then a change."""

    def __init__(self, store: Ending, on_event: Callable[[Event], object]) -> None:
        self.is_cancelled = False
        self._store = store
        self._on_event = on_event
        store.loop.call_later(store.lasts_s, self._tell)

    def cancel(self) -> None:
        self.is_cancelled = True

    def _tell(self) -> None:
        if not self.is_cancelled:
            self._store.loop.call_later(0.125, self._tell)
            self._on_event(self._store.event)
            self._on_event(CHANGE)


@pytest.mark.parametrize("event", [Resumed(), WatchLost()])
def test_a_watch_that_does_not_last_is_listed_again_with_longer_and_longer_pauses(event: Event) -> None:
    loop = FakeLoop()
    store = Ending(loop, event, lasts_s=1.0)
    following = follow(loop, store, "k", lambda _event: None)  # type: ignore[arg-type]
    loop.run_until(loop.now() + 60)
    assert store.pauses[:5] == pytest.approx([1.0, 1.5, 2.0, 3.0, 5.0])
    assert store.pauses[5:] == pytest.approx([5.0] * len(store.pauses[5:]))
    following.cancel()
    count = len(store.listed_at)
    loop.run_until(loop.now() + 60)
    assert len(store.listed_at) == count


def test_what_changes_before_the_listing_is_told() -> None:
    loop = FakeLoop()
    told: list[Event | Listed] = []
    store = Ending(loop, Resumed(), lasts_s=1.0)
    following = follow(loop, store, "k", told.append)  # type: ignore[arg-type]
    loop.run_until(loop.now() + 2.4)  # listed at 0.0 and 1.0, and not before 2.5 again
    assert told == [LISTED, CHANGE, LISTED, CHANGE, CHANGE, CHANGE, CHANGE]
    following.cancel()


@pytest.mark.parametrize(("lasts_s", "pause_s"), [(9.0, 13.0), (11.0, 11.0)])
def test_one_that_had_lasted_is_listed_again_at_once(lasts_s: float, pause_s: float) -> None:
    loop = FakeLoop()
    store = Ending(loop, Resumed(), lasts_s=1.0)
    following = follow(loop, store, "k", lambda _event: None)  # type: ignore[arg-type]
    loop.run_until(loop.now() + 30)
    store.lasts_s = lasts_s
    loop.run_until(loop.now() + 100)
    assert store.pauses[-4:] == pytest.approx([pause_s] * 4)
    following.cancel()
