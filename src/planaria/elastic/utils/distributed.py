"""A store by itself, without a rendezvous, and free ports. The names are torch's."""

from __future__ import annotations

import errno
import os
import weakref
from contextlib import closing
from datetime import timedelta
from logging import getLogger
from typing import TYPE_CHECKING

from planaria.agent.trust import OPEN_STORE, is_here
from planaria.base.net import join_address
from planaria.elastic.store import DistStoreError, Store, StoreTimeout
from planaria.elastic.store.client import Client
from planaria.elastic.store.thread import LoopThread
from planaria.elastic.utils.api import get_socket_with_port
from planaria.elastic.utils.secrets import credentials_here
from planaria.elastic.utils.store import barrier
from planaria.store.client import RemoteStore
from planaria.store.server import StoreServer

if TYPE_CHECKING:
    from planaria.contract.secret import Secret

__all__ = ["create_c10d_store", "get_free_port", "get_socket_with_port"]

logger = getLogger(__name__)

_EVERYBODY = "_tcp_store/num_members"


def create_c10d_store(  # noqa: PLR0917  # the signature is torch's
    is_server: bool,
    server_addr: str,
    server_port: int = -1,
    world_size: int = 1,
    timeout: float = (60 * 10),
    wait_for_workers: bool = True,
    retries: int = 3,
    use_libuv: bool | None = None,
) -> Store:
    """Serve a store, or find the one that is served at an address; it lives as long as the returned object.

    A port of -1 is a free one, so nothing is ever tried again: `retries` is torch's. With a token in the environment only
    those who have it are let in.

    Raises:
        ValueError: The token cannot be used.
        RuntimeError: The port is taken.
        TimeoutError: Not all members came in time.
    """
    del retries
    if use_libuv is not None:
        logger.warning("argument use_libuv is deprecated and ignored: this store is not torch's")
    if server_port == -1 and world_size > 1:
        raise ValueError(
            f"server_port must be specified when world_size > 1, got server_port={server_port}, world_size={world_size}"
        )
    store = open_store(is_server, server_addr, server_port, timeout, credentials_here().token)
    if wait_for_workers:
        try:
            barrier(store, world_size, key_prefix=_EVERYBODY, barrier_timeout=timeout)
        except StoreTimeout as problem:
            raise TimeoutError(f"timed out waiting for all {world_size} members to join") from problem
    return store


def open_store(is_server: bool, host: str, port: int, timeout_s: float, token: Secret | None) -> Store:
    """Return a store that is served here, or served at `host`; nobody is waited for.

    Raises:
        RuntimeError: The port is taken, or the address is none of this host's.
    """
    revealed = token.reveal() if token is not None else None
    thread = LoopThread()
    try:
        if is_server:
            listen = (host if is_here(host) else "", max(port, 0))
            port = thread.call(lambda: _serve(thread, listen, revealed))
            if not is_here(host) and token is None:
                logger.warning(OPEN_STORE, port)
        address = join_address(host, port)
        client = Client(thread, lambda loop: RemoteStore(loop, (address,), token=revealed))
    except OSError as problem:
        thread.stop()
        if problem.errno == errno.EADDRINUSE:
            raise RuntimeError(f"on {host}, port: {port} already in use") from problem
        raise DistStoreError(
            f"cannot serve a store on {host}, port: {port}: {os.strerror(problem.errno or 0)}"
        ) from problem
    store = Store(client, timeout=timedelta(seconds=timeout_s), host=host, port=port)
    weakref.finalize(store, thread.stop)
    return store


def _serve(thread: LoopThread, listen: tuple[str, int], token: bytes | None) -> int:
    server = StoreServer(thread.loop, listen, token=token, on_refused=logger.warning)
    thread.at_end(server.close)
    return server.port


def get_free_port() -> int:
    """Return a port that nobody listens on at the moment. Somebody else may take it before it is used."""
    with closing(get_socket_with_port()) as found:
        port: int = found.getsockname()[1]
        return port
