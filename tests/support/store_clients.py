"""Clients of one backend for a test of its own, and what such tests ask all the time."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING
from unittest import mock

from planaria.store.backends import open_store
from planaria.store.model import List, Listed, Put, Unavailable, Written
from planaria.testing.store_client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planaria.base.loop import Loop
    from planaria.store.api import Where
    from planaria.store.model import Reply, Request

    Connect = Callable[[Where], Client]


@contextlib.contextmanager
def clients(loop: Loop, backend: str) -> Iterator[Connect]:
    """Give a way to connect; all stores are closed at the end."""
    made: list[Client] = []

    def connect(where: Where) -> Client:
        made.append(Client(loop, open_store(backend, loop, where)))
        return made[-1]

    yield connect
    for client in made:
        client.store.close()


def ask_in_vain(client: Client, *asked: Request) -> list[Reply]:
    """Ask what a thread tries until its time is over; return what it says then.

    It has two seconds and the loop waits for ten times as long: however late either of them runs, the thread is the first.
    """
    with mock.patch.object(sys.modules[type(client.store).__module__], "_THREADS_SHARE", 0.1):
        return client.ask_all(*asked, timeout_s=20.0)


def write(client: Client, value: bytes) -> int:
    """Write `k` until it is certain that it was written, as every writer has to; return the revision."""
    while True:
        reply = client.ask(Put("k", value), timeout_s=5.0)
        if isinstance(reply, Written):
            return reply.revision
        assert isinstance(reply, Unavailable)


def position(client: Client) -> int:
    """Return the newest revision."""
    reply = client.ask(List(""))
    assert isinstance(reply, Listed)
    return reply.revision
