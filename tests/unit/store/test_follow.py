"""A watch that ends again and again is listed again with pauses; one that had lasted is listed at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from clocks import FakeLoop

from planaria.store.api import Store, Watching
from planaria.store.follow import follow
from planaria.store.model import Listed, Resumed, WatchLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.store.model import Event, Reply, Request


class Ending(Store):
    """Lists at once; its watches say `event` so and so long after they were begun."""

    def __init__(self, loop: FakeLoop, event: Event) -> None:
        self.loop = loop
        self.event = event
        self.lasts_s = 0.01
        self.listed_at: list[float] = []

    def ask(self, asked: Request, on_reply: Callable[[Reply], object], *, timeout_s: float = 5.0) -> None:
        del asked, timeout_s
        self.listed_at.append(self.loop.now())
        on_reply(Listed((), 1))

    def watch(self, prefix: str, after: int, on_event: Callable[[Event], object]) -> Watching:
        del prefix, after
        self.loop.call_later(self.lasts_s, lambda: on_event(self.event))
        return Watching()

    def close(self) -> None:
        pass


@pytest.mark.parametrize("event", [Resumed(), WatchLost()])
def test_a_watch_that_does_not_last_is_listed_again_with_longer_and_longer_pauses(event: Event) -> None:
    loop = FakeLoop()
    store = Ending(loop, event)
    following = follow(loop, store, "k", lambda _event: None)  # type: ignore[arg-type]
    loop.run_until(loop.now() + 60)
    pauses = [after - before for before, after in zip(store.listed_at, store.listed_at[1:], strict=False)]
    assert pauses[:5] == pytest.approx([0.01, 0.51, 1.01, 2.01, 4.01])
    assert pauses[5:] == pytest.approx([4.01] * len(pauses[5:]))
    following.cancel()
    count = len(store.listed_at)
    loop.run_until(loop.now() + 60)
    assert len(store.listed_at) == count


def test_one_that_had_lasted_is_listed_again_at_once() -> None:
    loop = FakeLoop()
    store = Ending(loop, Resumed())
    following = follow(loop, store, "k", lambda _event: None)  # type: ignore[arg-type]
    loop.run_until(loop.now() + 30)
    store.lasts_s = 20
    loop.run_until(loop.now() + 60)
    count = len(store.listed_at)
    loop.run_until(loop.now() + 100)
    assert len(store.listed_at) == count + 5
    following.cancel()
