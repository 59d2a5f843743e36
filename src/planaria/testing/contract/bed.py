"""The ground that the tests of a store stand on: fixtures, and requests that have to succeed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from planaria.base.loop import Loop
from planaria.store.api import Store
from planaria.store.model import Grant, Granted, List, Listed, Put, Written
from planaria.testing.store_client import Client


class Bed:
    """Two clients of one store on one loop, and a prefix that no other test uses."""

    @pytest.fixture
    def make_store(self) -> Callable[[Loop], Store]:
        """Return a function that makes one more client of the store under test."""
        pytest.fail("the tests of a store need a fixture make_store: a function that takes a Loop and returns a Store")

    @pytest.fixture
    def forget_history(self) -> Callable[[Client], object]:
        """Return a function that makes the store forget what has changed until now; it may write to do so."""
        pytest.fail("the tests of a store need a fixture forget_history: a function that takes a Client")

    @pytest.fixture
    def loop(self) -> Iterator[Loop]:
        """The loop that all stores of a test share."""
        loop = Loop()
        yield loop
        loop.close()

    @pytest.fixture
    def clients(self, loop: Loop, make_store: Callable[[Loop], Store]) -> Iterator[tuple[Client, Client]]:
        """Two clients of one store."""
        both = Client(loop, make_store(loop)), Client(loop, make_store(loop))
        yield both
        for client in both:
            client.store.close()

    @pytest.fixture
    def client(self, clients: tuple[Client, Client]) -> Client:
        """One client."""
        return clients[0]

    @pytest.fixture
    def at(self) -> str:
        """A prefix that no other test uses."""
        return f"contract/{uuid.uuid4().hex}/"


def write(client: Client, key: str, value: bytes, lease: int | None = None) -> int:
    """Write a key and return its revision."""
    reply = client.ask(Put(key, value, lease=lease))
    assert isinstance(reply, Written), reply
    return reply.revision


def listed(client: Client, prefix: str) -> Listed:
    """Return a listing."""
    reply = client.ask(List(prefix))
    assert isinstance(reply, Listed), reply
    return reply


def grant(client: Client, ttl_s: float = 60.0) -> Granted:
    """Return a new lease."""
    reply = client.ask(Grant(ttl_s))
    assert isinstance(reply, Granted), reply
    return reply
