"""A board in etcd, under torch's names: see `dynamic_rendezvous`. `--rdzv-backend=etcd-v2` itself is ours on etcd's v3 API."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from planaria.agent.meeting import open_store_of
from planaria.elastic.rendezvous.api import RendezvousConnectionError
from planaria.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend, Token
from planaria.elastic.rendezvous.etcd_store import EtcdStore
from planaria.elastic.rendezvous.meeting import meeting_of
from planaria.elastic.store.client import Client
from planaria.elastic.store.thread import LoopThread
from planaria.elastic.utils.secrets import credentials_here
from planaria.errors import InternalError, UsageError
from planaria.store.model import Absent, Conflict, Found, Get, Put, Written

if TYPE_CHECKING:
    from planaria.elastic.rendezvous.api import RendezvousParameters
    from planaria.elastic.store import Store
    from planaria.store.model import Reply, Request

_ANSWER_S = 60.0  # torch's read_timeout


class EtcdRendezvousBackend(RendezvousBackend):
    """One key of etcd as a value that can be compared and set; the token is its revision.

    `ttl` is torch's and has no effect: a board that vanished under a run would let a second one begin beside it.
    """

    def __init__(self, client: Client, run_id: str, key_prefix: str | None = None, ttl: int | None = None) -> None:
        del ttl
        if not run_id:
            raise ValueError("The run id must be a non-empty string.")
        self._client = client
        self._key = f"{key_prefix}/{run_id}" if key_prefix else run_id

    @property
    def name(self) -> str:
        """The name of the backend."""
        return "etcd-v2"

    def get_state(self) -> tuple[bytes, Token] | None:
        """Return the value and its token; None when there is none."""
        match self._ask(Get(self._key)):
            case Found(value, revision):
                return value, revision
            case _:
                return None

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        """Change the value if `token` is still its token; without one, if there is none."""
        try:
            expect = int(token or 0)
        except ValueError:
            expect = -1  # somebody else's token: it matches nothing
        reply = self._ask(Put(self._key, state, expect=expect)) if expect >= 0 else Conflict(0)
        if isinstance(reply, Written):
            return state, reply.revision, True
        found = self.get_state()
        return None if found is None else (*found, False)

    def _ask(self, asked: Request) -> Reply:
        reply = self._client.ask(asked, _ANSWER_S)
        if not isinstance(reply, Found | Absent | Written | Conflict):
            raise RendezvousConnectionError(
                "The connection to etcd has failed. See inner exception for details."
            ) from OSError(getattr(reply, "why", repr(reply)))
        return reply


def create_backend(params: RendezvousParameters) -> tuple[EtcdRendezvousBackend, Store]:
    """Return a board in the etcd at the endpoint, and a store there. The settings are those of `--rdzv-backend=etcd`.

    Raises:
        ValueError: The settings cannot be used.
        RendezvousConnectionError: The library for etcd is missing.
    """
    meeting = meeting_of(params, credentials_here(), "etcd")
    if meeting is None:
        raise InternalError("a meeting through etcd is one, however few its nodes are")
    thread = LoopThread()
    try:
        client = Client(thread, lambda loop: open_store_of(loop, meeting))
    except UsageError as problem:
        thread.stop()
        raise RendezvousConnectionError(str(problem)) from problem
    weakref.finalize(client, thread.stop)
    backend = EtcdRendezvousBackend(client, params.run_id, key_prefix="/torch/elastic/rendezvous")
    return backend, EtcdStore(client, "/torch/elastic/store")
