"""The handler that most people use, under torch's names: who is there makes a round, between a minimum and a maximum of nodes.

torch's handler keeps the whole state of a cluster in one value of a backend. Ours speaks the protocol of docs/protocol.md; a
`RendezvousBackend`, ours or somebody else's, serves as a board on which the nodes find each other's addresses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from planaria.agent.settings import Meeting
from planaria.base.value import replace
from planaria.elastic.rendezvous.board import own_address, pin
from planaria.elastic.rendezvous.handler import MeetingHandler
from planaria.elastic.rendezvous.meeting import meeting_of
from planaria.elastic.utils.secrets import credentials_here

if TYPE_CHECKING:
    from typing import Self

    from planaria.elastic.rendezvous.api import RendezvousParameters
    from planaria.elastic.store import Store
    from planaria.process.ports import Reservation

__all__ = ["DynamicRendezvousHandler", "RendezvousBackend", "RendezvousSettings", "RendezvousTimeout", "create_handler"]

Token = Any
"""What a backend gave out with a state, and compares when the state is to be changed."""

_ZERO = timedelta(0)
_DEFAULTS = {
    "join": timedelta(seconds=600),
    "last_call": timedelta(seconds=30),
    "close": timedelta(seconds=30),
    "heartbeat": timedelta(seconds=5),
}
_ATTEMPTS = 3


class RendezvousBackend(ABC):
    """A value that many can read, and change if nobody else did meanwhile."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the backend."""

    @abstractmethod
    def get_state(self) -> tuple[bytes, Token] | None:
        """Return the value and its token; None when there is none.

        Raises:
            RendezvousConnectionError: The backend cannot be reached.
            RendezvousStateError: What it holds is not ours.
        """

    @abstractmethod
    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        """Change the value if `token` is still its token; without one, if there is none. See `get_state`.

        Returns the value after that, its token, and whether it is ours.
        """


class RendezvousTimeout:
    """How long things may take. `heartbeat` has no effect with our protocol, which renews leases."""

    def __init__(
        self,
        join: timedelta | None = None,
        last_call: timedelta | None = None,
        close: timedelta | None = None,
        heartbeat: timedelta | None = None,
    ) -> None:
        self._times = dict(_DEFAULTS)
        for name, given in (("join", join), ("last_call", last_call), ("close", close), ("heartbeat", heartbeat)):
            if given is not None and given <= _ZERO:
                raise ValueError(f"The {name} timeout ({given}) must be positive.")
            self._times[name] = self._times[name] if given is None else given

    @property
    def join(self) -> timedelta:
        """How long `next_rendezvous` waits for a place."""
        return self._times["join"]

    @property
    def last_call(self) -> timedelta:
        """How long a round that has its minimum waits for more."""
        return self._times["last_call"]

    @property
    def close(self) -> timedelta:
        """How long `shutdown` waits for the others."""
        return self._times["close"]

    @property
    def heartbeat(self) -> timedelta:
        """How long a heartbeat may take."""
        return self._times["heartbeat"]


@dataclass(repr=False, eq=False, frozen=True)
class RendezvousSettings:
    """What a handler was told. A node is lost after `keep_alive_interval` times `keep_alive_max_attempt`, which is the TTL."""

    run_id: str
    min_nodes: int
    max_nodes: int
    timeout: RendezvousTimeout
    keep_alive_interval: timedelta
    keep_alive_max_attempt: int


class DynamicRendezvousHandler(MeetingHandler):
    """A handler for `c10d`, `etcd-v2`, `kubernetes`; made by `get_rendezvous_handler`, `create_handler` or `from_backend`."""

    def __init__(
        self,
        settings: RendezvousSettings,
        backend_name: str,
        meeting: Meeting | None,
        backend: RendezvousBackend | None = None,
    ) -> None:
        if not settings.run_id:
            raise ValueError("The run id must be a non-empty string.")
        if settings.min_nodes < 1:
            raise ValueError(f"The minimum number of nodes ({settings.min_nodes}) must be greater than zero.")
        if settings.max_nodes < settings.min_nodes:
            raise ValueError(
                f"The maximum number of nodes ({settings.max_nodes}) must be greater than or equal "
                f"to the minimum number of nodes ({settings.min_nodes})."
            )
        super().__init__(backend_name, settings.run_id, meeting)
        self._settings = settings
        self._backend = backend
        self._reserved: Reservation | None = None  # keeps the port that was pinned up
        self.close_timeout = settings.timeout.close

    @classmethod
    def from_parameters(cls, params: RendezvousParameters) -> Self:
        """Make the handler that `params` describe, for the endpoint that they name.

        Raises:
            ValueError: They describe none.
        """
        timeout = _timeout_of(params)
        meeting = meeting_of(params, credentials_here())
        if meeting is not None:
            timeout = RendezvousTimeout(
                timedelta(seconds=meeting.join_timeout_s),
                timedelta(seconds=meeting.quiet_s) if meeting.quiet_s else None,
                timeout.close,
                timeout.heartbeat,
            )
        ttl = timedelta(seconds=meeting.ttl_s if meeting is not None else 0)
        settings = RendezvousSettings(
            params.run_id, params.min_nodes, params.max_nodes, timeout, ttl / _ATTEMPTS, _ATTEMPTS
        )
        made = cls(settings, params.backend, meeting)
        made.local_addr = params.local_addr
        return made

    @classmethod
    def from_backend(  # noqa: PLR0917  # the signature is torch's
        cls,
        run_id: str,
        store: Store,
        backend: RendezvousBackend,
        min_nodes: int,
        max_nodes: int,
        local_addr: str | None = None,
        timeout: RendezvousTimeout | None = None,
        keep_alive_interval: int = 5,
        keep_alive_max_attempt: int = 3,
    ) -> Self:
        """Make a handler whose nodes find each other through `backend`, where each pins up its address.

        `store` is not used: every round has a fresh one of its own.
        """
        del store
        settings = RendezvousSettings(
            run_id,
            min_nodes,
            max_nodes,
            timeout or RendezvousTimeout(),
            timedelta(seconds=keep_alive_interval),
            keep_alive_max_attempt,
        )
        meeting = Meeting(
            backend="embedded",
            endpoints=(),
            run_id=run_id,
            min_nodes=min_nodes,
            max_nodes=max_nodes,
            local_addr=local_addr,
            token=credentials_here().token,
            ttl_s=float(max(keep_alive_interval * keep_alive_max_attempt, 1)),
            quiet_s=settings.timeout.last_call.total_seconds(),
            join_timeout_s=settings.timeout.join.total_seconds(),
        )
        made = cls(settings, backend.name, meeting if max_nodes > 1 else None, backend)
        made.local_addr = local_addr
        return made

    @property
    def settings(self) -> RendezvousSettings:
        """What this handler was told."""
        return self._settings

    @property
    def meeting(self) -> Meeting | None:
        """The meeting; with a backend of `from_backend` this node's address is pinned up when it is first asked for.

        Raises:
            RendezvousConnectionError: The backend cannot be reached.
            RendezvousStateError: What it holds is not ours.
        """
        if self._described is not None and self._backend is not None and not self._described.endpoints:
            own, self._reserved = own_address(self.local_addr)
            self._described = replace(self._described, endpoints=pin(self._backend, own))
        return self._described


def create_handler(store: Store, backend: RendezvousBackend, params: RendezvousParameters) -> DynamicRendezvousHandler:
    """Make a handler whose nodes find each other through `backend`, with the times that `params` say; see `from_backend`."""
    interval = params.get_as_int("keep_alive_interval", 5)
    if interval is None:
        raise TypeError("You passed 'keep_alive_interval=None' as a rendezvous configuration option")
    attempts = params.get_as_int("keep_alive_max_attempt", 3)
    if attempts is None:
        raise TypeError("You passed 'keep_alive_max_attempt=None' as a rendezvous configuration option")
    return DynamicRendezvousHandler.from_backend(
        params.run_id,
        store,
        backend,
        params.min_nodes,
        params.max_nodes,
        params.local_addr,
        _timeout_of(params),
        keep_alive_interval=interval,
        keep_alive_max_attempt=attempts,
    )


def _timeout_of(params: RendezvousParameters) -> RendezvousTimeout:
    given = [params.get_as_int(f"{name}_timeout") for name in ("join", "last_call", "close", "heartbeat")]
    return RendezvousTimeout(*(None if seconds is None else timedelta(seconds=seconds) for seconds in given))
