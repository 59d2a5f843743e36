"""Histories of two clients on one embedded server are those of one that does one thing after another."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

import pytest

from planaria.base.loop import Loop
from planaria.store.client import RemoteStore
from planaria.store.machine import Machine
from planaria.store.model import Delete, Get, Put, Unavailable
from planaria.store.server import StoreServer
from planaria.testing.store_client import run_until

if TYPE_CHECKING:
    from pathlib import Path

    from planaria.store.model import Reply, Request

OPERATIONS = 14


class Operation(NamedTuple):
    asked: Request
    began: int
    ended: float
    reply: Reply


class History:
    """Two clients that ask at random, several at a time, over connections that break now and then."""

    def __init__(self, loop: Loop, path: str, seed: int, *, breaks: bool) -> None:
        self._rng = random.Random(seed)
        self._breaks = breaks
        self._clients = [RemoteStore(loop, [path], token=None) for _ in range(2)]
        self._moment = 0
        self.done: list[Operation] = []
        self._revisions = [0]
        for number in range(OPERATIONS):
            self._ask(self._request(number))
            for _ in range(self._rng.randrange(4)):
                loop.run_once(0)
        run_until(loop, lambda: len(self.done) == OPERATIONS)
        for client in self._clients:
            client.close()

    def _request(self, number: int) -> Request:
        expect = self._rng.choice([None, *self._revisions[-3:]])
        return self._rng.choice([Get("k"), Put("k", b"%d" % number, expect), Delete("k", expect)])

    def _ask(self, asked: Request) -> None:
        client = self._rng.choice(self._clients)
        began = self._tick()

        def answered(reply: Reply) -> None:
            ended = float("inf") if isinstance(reply, Unavailable) and reply.maybe_done else self._tick()
            self._revisions.append(getattr(reply, "revision", 0))
            self.done.append(Operation(asked, began, ended, reply))

        client.ask(asked, answered, timeout_s=30.0)
        if self._breaks and self._rng.random() < 0.15 and client._connection is not None:
            client._lost("cut by the test", False)

    def _tick(self) -> int:
        self._moment += 1
        return self._moment


def has_an_order(history: list[Operation], start: int) -> bool:
    """Search for one order that respects time and in which a machine gives the same answers."""
    dead_ends: set[tuple[frozenset[int], str]] = set()

    def search(left: frozenset[int], order: tuple[int, ...]) -> bool:
        if all(history[number].ended == float("inf") for number in left):
            return True  # those without an answer need not have been done
        machine = Machine(start=start)
        for number in order:
            machine.request(history[number].asked, 0.0)
        state = (left, repr(machine._entries))
        if state in dead_ends:
            return False
        first_end = min(history[number].ended for number in left)
        for number in left:
            operation = history[number]
            if operation.began > first_end:
                continue
            trial = Machine(start=start)
            for before in order:
                trial.request(history[before].asked, 0.0)
            reply = trial.request(operation.asked, 0.0)
            if operation.ended != float("inf") and reply != operation.reply:
                continue
            if search(left - {number}, (*order, number)):
                return True
        dead_ends.add(state)
        return False

    return search(frozenset(range(len(history))), ())


@pytest.mark.parametrize("breaks", [False, True], ids=["whole", "breaking"])
@pytest.mark.parametrize("seed", range(25))
def test_every_history_has_an_order(loop: Loop, tmp_path: Path, seed: int, breaks: bool) -> None:
    server = StoreServer(loop, str(tmp_path / "s"), token=None)
    start = server._hub._machine.revision
    history = History(loop, str(tmp_path / "s"), seed, breaks=breaks).done
    server.close()
    assert has_an_order(history, start), history


def test_a_history_without_an_order_is_found() -> None:
    """The check can fail: a read that sees what was written, then one that does not."""
    from planaria.store.model import Absent, Found, Written

    history = [
        Operation(Put("k", b"1"), 1, 2, Written(1)),
        Operation(Get("k"), 3, 4, Found(b"1", 1, None)),
        Operation(Get("k"), 5, 6, Absent()),
    ]
    assert has_an_order(history[:2], 0)
    assert not has_an_order(history, 0)
