"""How the agents of a job find each other and agree on one world: torch's names, our protocol.

A handler of ours describes a meeting. LocalElasticAgent holds it on its own loop; whoever uses the handler through its
methods gets it held in a thread. What the protocol promises is in docs/protocol.md, what asking now and then cannot keep
of it in docs/elastic-rendezvous.md. `etcd_server` is left out: this package starts no etcd.
"""

from __future__ import annotations

from planaria.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousHandlerCreator,
    RendezvousHandlerRegistry,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
    rendezvous_handler_registry,
)
from planaria.elastic.rendezvous.registry import register_all

__all__ = [
    "RendezvousClosedError",
    "RendezvousConnectionError",
    "RendezvousError",
    "RendezvousGracefulExitError",
    "RendezvousHandler",
    "RendezvousHandlerCreator",
    "RendezvousHandlerRegistry",
    "RendezvousInfo",
    "RendezvousParameters",
    "RendezvousStateError",
    "RendezvousStoreInfo",
    "RendezvousTimeoutError",
    "rendezvous_handler_registry",
]

register_all()
