"""What a rendezvous handler is, what it is made from, what it returns and raises. Names and messages are torch's."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from planaria.elastic.utils.distributed import get_free_port

if TYPE_CHECKING:
    from planaria.elastic.store import Store

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

_YES = ("1", "true", "t", "yes", "y")
_NO = ("0", "false", "f", "no", "n")


class RendezvousError(Exception):
    """A rendezvous went wrong."""


class RendezvousClosedError(RendezvousError):
    """The run is over: there will be no further round."""


class RendezvousTimeoutError(RendezvousError):
    """No round opened in time, or none with a place for this node."""


class RendezvousConnectionError(RendezvousError):
    """The others, or the store they meet through, cannot be reached."""


class RendezvousStateError(RendezvousError):
    """What a backend holds is nothing that we wrote."""


class RendezvousGracefulExitError(RendezvousError):
    """This node is not needed any more. Nothing failed."""


def is_named(problem: BaseException, name: str) -> bool:
    """Tell whether an exception is of a class of that name: a handler that was written for torch raises torch's."""
    return any(one.__name__ == name for one in type(problem).__mro__)


@dataclass
class RendezvousStoreInfo:
    """Where the workers' own store is to be: rank 0 listens there, the others find it there."""

    MASTER_ADDR_KEY: ClassVar[str] = "MASTER_ADDR"
    MASTER_PORT_KEY: ClassVar[str] = "MASTER_PORT"
    master_addr: str
    master_port: int

    @staticmethod
    def build(rank: int, store: Store, local_addr: str | None, server_port: int | None = None) -> RendezvousStoreInfo:
        """Let rank 0 tell all others, through `store`, its address and a port: `server_port`, or one that is free."""
        if rank == 0:
            addr = local_addr or socket.getfqdn()
            port = server_port or get_free_port()
            store.set(RendezvousStoreInfo.MASTER_ADDR_KEY, addr.encode())
            store.set(RendezvousStoreInfo.MASTER_PORT_KEY, str(port).encode())
        told = store.get(RendezvousStoreInfo.MASTER_ADDR_KEY), store.get(RendezvousStoreInfo.MASTER_PORT_KEY)
        return RendezvousStoreInfo(told[0].decode(), int(told[1].decode()))


class RendezvousInfo:
    """A place in a round."""

    def __init__(self, store: Store, rank: int, world_size: int, bootstrap_store_info: RendezvousStoreInfo) -> None:
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._bootstrap_store_info = bootstrap_store_info

    @property
    def store(self) -> Store:
        """The store that the agents of this round share. It is empty when the round begins, and over when it ends."""
        return self._store

    @property
    def rank(self) -> int:
        """Which of the nodes this is."""
        return self._rank

    @property
    def world_size(self) -> int:
        """How many nodes are in the round."""
        return self._world_size

    @property
    def bootstrap_store_info(self) -> RendezvousStoreInfo | None:
        """Where the workers find each other."""
        return self._bootstrap_store_info


class RendezvousHandler(ABC):
    """What an agent needs of a rendezvous. Write your own and offer it under the entry point group `torchrun.handlers`."""

    @abstractmethod
    def get_backend(self) -> str:
        """Return the name that the handler was asked for by."""

    @property
    def use_agent_store(self) -> bool:
        """Tell whether workers may use the agents' store, at the address in `bootstrap_store_info`."""
        return False

    @abstractmethod
    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for the next round, and for a place in it. No worker of this node is alive when this is called.

        Raises:
            RendezvousClosedError: The run is over.
            RendezvousConnectionError: The others cannot be reached.
            RendezvousStateError: What the backend holds is not ours.
            RendezvousTimeoutError: There was no place in time.
        """

    @abstractmethod
    def is_closed(self) -> bool:
        """Tell whether the run is known to be over. It may be over before this is known."""

    @abstractmethod
    def set_closed(self) -> None:
        """End the run, for everybody."""

    @abstractmethod
    def num_nodes_waiting(self) -> int:
        """Return more than 0 when this node should stop its workers and call `next_rendezvous`; ask now and then."""

    @abstractmethod
    def get_run_id(self) -> str:
        """Return the name that all nodes of the job share."""

    @abstractmethod
    def shutdown(self) -> bool:
        """End the run and let go of everything; tell whether the others are known to have heard of it."""


class RendezvousParameters:
    """What a handler is made from. `kwargs` are the backend's own settings, as in `--rdzv-conf`."""

    def __init__(
        self,
        backend: str,
        endpoint: str,
        run_id: str,
        min_nodes: int,
        max_nodes: int,
        local_addr: str | None = None,
        **kwargs: Any,
    ) -> None:
        if not backend:
            raise ValueError("The rendezvous backend name must be a non-empty string.")
        if min_nodes < 1:
            raise ValueError(f"The minimum number of rendezvous nodes ({min_nodes}) must be greater than zero.")
        if max_nodes < min_nodes:
            raise ValueError(
                f"The maximum number of rendezvous nodes ({max_nodes}) must be greater than or "
                f"equal to the minimum number of rendezvous nodes ({min_nodes})."
            )
        self.backend = backend
        self.endpoint = endpoint
        self.run_id = run_id
        self.min_nodes = min_nodes
        self.max_nodes = max_nodes
        self.config = kwargs
        self.local_addr = local_addr

    def get(self, key: str, default: Any = None) -> Any:
        """Return a setting, or the default when it was not given."""
        return self.config.get(key, default)

    def get_as_bool(self, key: str, default: bool | None = None) -> bool | None:
        """Return a setting that says yes or no."""
        value = self.get(key, default)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | str):
            word = str(value).lower()
            if word in _YES[: 1 if isinstance(value, int) else None]:
                return True
            if word in _NO[: 1 if isinstance(value, int) else None]:
                return False
        raise ValueError(f"The rendezvous configuration option '{key}' does not represent a valid boolean value.")

    def get_as_int(self, key: str, default: int | None = None) -> int | None:
        """Return a setting that is a whole number."""
        value = self.get(key, default)
        if value is None:
            return None
        try:
            return int(value)
        except ValueError as problem:
            raise ValueError(
                f"The rendezvous configuration option '{key}' does not represent a valid integer value."
            ) from problem


RendezvousHandlerCreator = Callable[[RendezvousParameters], RendezvousHandler]


class RendezvousHandlerRegistry:
    """Handlers by the name of their backend."""

    def __init__(self) -> None:
        self._registry: dict[str, RendezvousHandlerCreator] = {}

    def register(self, backend: str, creator: RendezvousHandlerCreator) -> None:
        """Make `creator` the one for a backend that has none."""
        if not backend:
            raise ValueError("The rendezvous backend name must be a non-empty string.")
        known = self._registry.get(backend)
        if known is not None and known != creator:
            raise ValueError(
                f"The rendezvous backend '{backend}' cannot be registered with '{creator}' as it "
                f"is already registered with '{known}'."
            )
        self._registry[backend] = creator

    def create_handler(self, params: RendezvousParameters) -> RendezvousHandler:
        """Make the handler that `params` ask for."""
        creator = self._registry.get(params.backend)
        if creator is None:
            raise ValueError(
                f"The rendezvous backend '{params.backend}' is not registered. Did you forget to call `register`?"
            )
        handler = creator(params)
        if handler.get_backend() != params.backend:
            raise RuntimeError(
                f"The rendezvous backend '{handler.get_backend()}' does not match the requested "
                f"backend '{params.backend}'."
            )
        return handler


rendezvous_handler_registry = RendezvousHandlerRegistry()
