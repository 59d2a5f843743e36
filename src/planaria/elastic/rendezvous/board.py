"""A value that all nodes can change becomes a board on which they pin up where they listen. JSON, and nothing else.

The first on the board founds the run; who comes later asks those before it, and whoever lives among them knows who leads.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from planaria.base.addresses import join_address, split_address
from planaria.elastic.rendezvous.api import RendezvousConnectionError, RendezvousStateError
from planaria.elastic.store.api import rest
from planaria.process.ports import Reservation
from planaria.rendezvous.addresses import OUTWARD, Routes

if TYPE_CHECKING:
    from planaria.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend

VERSION = 1
MOST_PINNED = 64  # the newest: one that lives is enough
_TRIES = 1000
_PAUSE_S = 0.1


def own_address(local_addr: str | None) -> tuple[str, Reservation]:
    """Return where this node will listen, as others see it, and what keeps the port for it."""
    routes = Routes()
    sources = (routes.source_towards(address) for address in OUTWARD)
    host = local_addr or next((found for found in sources if found is not None), "127.0.0.1")
    port = Reservation()
    return join_address(host.strip("[]"), port.port), port


def pin(backend: RendezvousBackend, own: str) -> tuple[str, ...]:
    """Add our address to those on the board and return them all, the oldest first.

    Raises:
        RendezvousConnectionError: The backend cannot be reached, or takes nothing.
        RendezvousStateError: What it holds is not ours.
    """
    found = backend.get_state()
    for _ in range(_TRIES):
        pinned, token = (_read(found[0]), found[1]) if found is not None else ((), None)
        wanted = (*(one for one in pinned if one != own), own)[-MOST_PINNED:]
        answer = backend.set_state(json.dumps({"planaria": VERSION, "endpoints": wanted}).encode(), token)
        if answer is not None and answer[2]:
            return wanted
        found = answer[:2] if answer is not None else None
        rest(_PAUSE_S)
    raise RendezvousConnectionError(f"the backend '{backend.name}' took no change in {_TRIES} tries")


def _read(state: bytes) -> tuple[str, ...]:
    """Return the addresses in a state; it may have been written by anybody."""
    try:
        content = json.loads(state)
        version, endpoints = content["planaria"], content["endpoints"]
        pinned = tuple(join_address(*split_address(one)) for one in endpoints)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise RendezvousStateError("The state object is corrupt. See inner exception for details.") from problem
    if version != VERSION:
        raise RendezvousStateError(f"the nodes of this run were pinned up by another version, {version!r}")
    return pinned
