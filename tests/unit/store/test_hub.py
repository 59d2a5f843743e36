"""Watchers share one history: what each costs is bounded, and none waits for another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from clocks import Clock

from planaria.base.loop import Loop
from planaria.store.hub import Hub
from planaria.store.machine import Limits, Machine
from planaria.store.model import Changed, Get, Grant, Granted, Put

if TYPE_CHECKING:
    from collections.abc import Iterator


class Watcher:
    """Counts what it is told and asks for more when the test says so."""

    def __init__(self, hub: Hub, prefix: str = "", after: int = 0, *, eager: bool = True) -> None:
        self.eager = eager
        self.batches: list[tuple[Changed, ...]] = []
        self.position = after
        self.lost = 0
        self.subscription = hub.subscribe(prefix, after, self.told, self.lose)

    def told(self, changes: tuple[Changed, ...], position: int) -> None:
        self.batches.append(changes)
        self.position = position
        if self.eager:
            self.subscription.ready()

    def lose(self) -> None:
        self.lost += 1

    @property
    def changes(self) -> list[Changed]:
        return [change for batch in self.batches for change in batch]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def loop(clock: Clock) -> Iterator[Loop]:
    loop = Loop(clock)
    yield loop
    loop.close()


def put(hub: Hub, count: int, size: int = 1, key: str = "k") -> None:
    for _ in range(count):
        hub.ask(Put(key, bytes(size)))


def turn(loop: Loop, times: int = 50) -> None:
    for _ in range(times):
        loop.run_once(0)


def test_a_change_that_a_thousand_watch_is_told_to_a_few_in_a_turn(loop: Loop) -> None:
    hub = Hub(loop, Machine())
    watchers = [Watcher(hub) for _ in range(1000)]
    put(hub, 1)
    told = []
    while sum(told) < 1000:
        before = sum(len(watcher.batches) for watcher in watchers)
        loop.run_once(0)
        told.append(sum(len(watcher.batches) for watcher in watchers) - before)
        assert len(told) < 100
    assert max(told) <= 64
    assert all(len(watcher.changes) == 1 for watcher in watchers)


def test_many_changes_are_told_in_batches_of_bounded_size(loop: Loop) -> None:
    hub = Hub(loop, Machine())
    watcher = Watcher(hub)
    put(hub, 40, size=60_000)
    put(hub, 1000)
    turn(loop)
    assert len(watcher.changes) == 1040
    assert max(sum(len(change.value or b"") for change in batch) for batch in watcher.batches) <= 256 << 10
    assert max(len(batch) for batch in watcher.batches) <= 256


def test_a_watcher_that_does_not_ask_for_more_gets_one_batch_and_holds_up_nobody(loop: Loop) -> None:
    hub = Hub(loop, Machine(limits=Limits(history=500)))
    slow, quick = Watcher(hub, eager=False), Watcher(hub)
    put(hub, 1)
    turn(loop)
    for _ in range(10):
        put(hub, 100)
        turn(loop)
    assert len(slow.changes) == 1
    assert len(quick.changes) == 1001
    slow.subscription.ready()
    turn(loop)
    assert (slow.lost, quick.lost) == (1, 0)
    assert len(slow.changes) == 1


def test_a_watcher_of_quiet_keys_is_told_how_far_it_is_and_loses_nothing(loop: Loop) -> None:
    machine = Machine(limits=Limits(history=4096))
    hub = Hub(loop, machine)
    quiet = Watcher(hub, prefix="quiet/")
    for _ in range(20):
        put(hub, 500)
        turn(loop)
    assert quiet.changes == []
    assert machine.revision - quiet.position < 2048
    put(hub, 1, key="quiet/k")
    turn(loop)
    assert len(quiet.changes) == 1
    assert quiet.lost == 0


def test_a_watcher_that_was_cancelled_is_not_called(loop: Loop) -> None:
    hub = Hub(loop, Machine())
    watcher = Watcher(hub)
    put(hub, 1)
    watcher.subscription.cancel()
    turn(loop)
    assert watcher.batches == []


@pytest.mark.parametrize("after", [5, 99])
def test_a_revision_that_never_was_is_lost_history(loop: Loop, after: int) -> None:
    hub = Hub(loop, Machine(start=10))
    watcher = Watcher(hub, after=after)
    turn(loop)
    assert watcher.lost == 1


def test_leases_end_on_the_clock_without_being_asked(loop: Loop, clock: Clock) -> None:
    hub = Hub(loop, Machine())
    watcher = Watcher(hub)
    for ttl_s in (5.0, 2.0, 9.0):
        granted = hub.ask(Grant(ttl_s))
        assert isinstance(granted, Granted)
        hub.ask(Put(f"{ttl_s}", b"", lease=granted.lease))
    for moment, gone in ((101.9, 0), (102.0, 1), (104.9, 1), (105.0, 2), (108.9, 2), (109.0, 3)):
        clock.now = moment
        turn(loop, 5)
        assert sum(change.value is None for change in watcher.changes) == gone


def test_a_hub_that_was_closed_calls_nobody(loop: Loop, clock: Clock) -> None:
    hub = Hub(loop, Machine())
    watcher = Watcher(hub)
    granted = hub.ask(Grant(1.0))
    assert isinstance(granted, Granted)
    hub.ask(Put("k", b"", lease=granted.lease))
    hub.close()
    clock.now = 200.0
    turn(loop)
    assert watcher.batches == []
    assert hub.ask(Get("k")) is not None
