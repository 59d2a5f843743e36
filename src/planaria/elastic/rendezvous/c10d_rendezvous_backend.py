"""A board in a store, under torch's names: see `dynamic_rendezvous`. `--rdzv-backend=c10d` itself needs no store."""

from __future__ import annotations

import binascii
import errno
import os
from base64 import b64decode, b64encode
from logging import getLogger
from typing import TYPE_CHECKING, Any

from planaria.elastic.rendezvous.api import RendezvousConnectionError, RendezvousStateError
from planaria.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend, Token
from planaria.elastic.rendezvous.utils import parse_rendezvous_endpoint
from planaria.elastic.utils.distributed import open_store
from planaria.elastic.utils.secrets import credentials_here

if TYPE_CHECKING:
    from planaria.elastic.rendezvous.api import RendezvousParameters
    from planaria.elastic.store import Store

logger = getLogger(__name__)

DEFAULT_PORT = 29400
_FAILED = "The connection to the C10d store has failed. See inner exception for details."


class C10dRendezvousBackend(RendezvousBackend):
    """One key of a store, ours or torch's, as a value that can be compared and set."""

    _NULL_SENTINEL = "Y2FuaW1hZGFt"  # torch's: a store's `get` waits for a key, so there has to be one

    def __init__(self, store: Store, run_id: str) -> None:
        if not run_id:
            raise ValueError("The run id must be a non-empty string.")
        self._store = store
        self._key = f"torch.rendezvous.{run_id}"
        self._call("compare_set", self._key, "", self._NULL_SENTINEL)

    @property
    def name(self) -> str:
        """The name of the backend."""
        return "c10d"

    def get_state(self) -> tuple[bytes, Token] | None:
        """Return the value and its token; None when there is none."""
        return self._decoded(self._call("get", self._key))

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        """Change the value if `token` is still its token; without one, if there is none."""
        if token and not isinstance(token, bytes):
            found = self.get_state()
            return None if found is None else (*found, False)
        expected = token.decode() if token else self._NULL_SENTINEL
        found = self._decoded(self._call("compare_set", self._key, expected, b64encode(state).decode()))
        return None if found is None else (*found, found[0] == state)

    def _call(self, method: str, *args: str) -> bytes:
        try:
            answer: bytes = getattr(self._store, method)(*args)
        except (ValueError, RuntimeError, TimeoutError) as problem:
            raise RendezvousConnectionError(_FAILED) from problem
        return answer

    def _decoded(self, content: bytes) -> tuple[bytes, Token] | None:
        if content == self._NULL_SENTINEL.encode():
            return None
        try:
            return b64decode(content), content
        except binascii.Error as problem:
            raise RendezvousStateError("The state object is corrupt. See inner exception for details.") from problem


def create_backend(params: RendezvousParameters) -> tuple[C10dRendezvousBackend, Store]:
    """Serve a store at the endpoint, or find the one that is served there, and put a board into it.

    `is_host` says which; else the first process at the endpoint that can serves. `read_timeout` (60) is in seconds.

    Raises:
        RendezvousConnectionError: There is no such store.
    """
    store_type = params.get("store_type", "tcp").strip().lower()
    if store_type != "tcp":
        raise ValueError("Invalid store type given. Currently only supports tcp.")
    store = _store_at(params)
    return C10dRendezvousBackend(store, params.run_id), store


def _store_at(params: RendezvousParameters) -> Store:
    host, port = parse_rendezvous_endpoint(params.endpoint, default_port=DEFAULT_PORT)
    timeout_s: Any = params.get_as_int("read_timeout", 60)
    if timeout_s <= 0:
        raise ValueError("The read timeout must be a positive integer.")
    is_host = params.get_as_bool("is_host")
    token = credentials_here().token
    if is_host or (is_host is None and _is_here(host)):
        try:
            store = open_store(True, host, port, timeout_s, token)
        except RuntimeError as problem:
            if is_host:
                raise RendezvousConnectionError(_FAILED) from problem
        else:
            logger.info("Process %s hosts the store for the C10d rendezvous backend.", os.getpid())
            return store
    return open_store(False, host, port, timeout_s, token)


def _is_here(host: str) -> bool:
    """Tell whether an address is one of this host's: only those can be bound."""
    import socket

    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except socket.gaierror:
        return False
    except OSError as problem:
        return problem.errno != errno.EADDRNOTAVAIL
    return True
