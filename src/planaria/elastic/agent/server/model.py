"""What an agent works with: the description of its workers, the workers themselves, their state and their result."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.elastic.multiprocessing.errors import ProcessFailure
    from planaria.elastic.rendezvous.api import RendezvousHandler

DEFAULT_ROLE = "default"


@dataclass
class WorkerSpec:
    """What the workers of one role run, how many of them on this node, and through whom their node meets others.

    `fn` is torch's old name of `entrypoint`: a function, or the name of a program. `master_addr` and `master_port` overrule
    what the rendezvous says about rank 0. `max_restarts` is the budget for failures; changes of membership are free.
    """

    role: str
    local_world_size: int
    rdzv_handler: RendezvousHandler
    fn: Callable[..., Any] | None = None
    entrypoint: Callable[..., Any] | str | None = None
    args: tuple[Any, ...] = ()
    max_restarts: int = 3
    monitor_interval: float = 0.1
    master_port: int | None = None
    master_addr: str | None = None
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: Any = None
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False

    def __post_init__(self) -> None:
        if self.fn:
            told = "WorkerSpec.fn will be deprecated, please use WorkerSpec.entrypoint instead"
            warnings.warn(told, category=DeprecationWarning, stacklevel=3)
            self.entrypoint = self.fn
        # AssertionError is what torch raises for these three; ours says which.
        if self.local_world_size <= 0:
            raise AssertionError(f"local_world_size expects a number above 0, got {self.local_world_size}")
        if self.monitor_interval <= 0:
            raise AssertionError(f"monitor_interval expects seconds above 0, got {self.monitor_interval}")
        if not self.entrypoint:
            raise AssertionError("entrypoint expects a function or the name of a program, got nothing")

    def get_entrypoint_name(self) -> str:
        """Return the function's qualified name, or the program's name without its folder."""
        if isinstance(self.entrypoint, str):
            return os.path.basename(self.entrypoint)
        # A functools.partial or an object that can be called has no name of its own.
        return str(getattr(self.entrypoint, "__qualname__", type(self.entrypoint).__qualname__))


class Worker:
    """One worker of a group. `id` is the agent's to choose: a pid, a container's name, an address.

    Ranks and sizes are -1 until a rendezvous has assigned them, and new after every rendezvous.
    """

    __slots__ = ["global_rank", "id", "local_rank", "role_rank", "role_world_size", "world_size"]

    def __init__(
        self,
        local_rank: int,
        global_rank: int = -1,
        role_rank: int = -1,
        world_size: int = -1,
        role_world_size: int = -1,
    ) -> None:
        self.id: Any = None
        self.local_rank = local_rank
        self.global_rank = global_rank
        self.role_rank = role_rank
        self.world_size = world_size
        self.role_world_size = role_world_size

    def __str__(self) -> str:
        return (
            f"local_rank={self.local_rank},global_rank={self.global_rank},role_rank={self.role_rank}"
            f",world_size={self.world_size},role_world_size={self.role_world_size}"
        )

    def __repr__(self) -> str:
        return str(self)


class WorkerState(str, Enum):  # noqa: UP042  str() of a member is torch's
    """The state of a worker group, whose workers change it together: one that fails makes the group fail.

    INIT -> HEALTHY | UNHEALTHY -> SUCCEEDED | FAILED
    STOPPED    by the agent, about to be started again
    UNKNOWN    the agent lost track; nothing can be done but to end
    """

    UNKNOWN = "UNKNOWN"
    INIT = "INIT"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @staticmethod
    def is_running(state: WorkerState) -> bool:
        """Tell whether workers in this state have a process, healthy or not."""
        return state in {WorkerState.HEALTHY, WorkerState.UNHEALTHY}


class WorkerGroup:
    """The workers an agent keeps alive, and the round they are in. Everything but `spec` changes with a rendezvous."""

    __slots__ = ["group_rank", "group_world_size", "master_addr", "master_port", "spec", "state", "store", "workers"]

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.workers = [Worker(local_rank=local_rank) for local_rank in range(spec.local_world_size)]
        self.store: Any = None
        self.group_rank: int | None = None
        self.group_world_size: int | None = None
        self.master_addr: str | None = None
        self.master_port: int | None = None
        self.state = WorkerState.INIT


class _RoleInstanceInfo:
    """What agents tell each other, as JSON in the store, so that ranks can be given to nodes of different size and role."""

    __slots__ = ["local_world_size", "rank", "role"]

    def __init__(self, role: str, rank: int, local_world_size: int) -> None:
        self.role = role
        self.rank = rank
        self.local_world_size = local_world_size

    def serialize(self) -> bytes:
        told = {"role": self.role, "rank": self.rank, "local_world_size": self.local_world_size}
        return json.dumps(told).encode()

    @staticmethod
    def deserialize(data: bytes) -> _RoleInstanceInfo:
        told = json.loads(data.decode())
        return _RoleInstanceInfo(told["role"], told["rank"], told["local_world_size"])

    @staticmethod
    def compare(obj1: _RoleInstanceInfo, obj2: _RoleInstanceInfo) -> int:
        if obj1.role == obj2.role:
            return obj1.rank - obj2.rank
        return 1 if obj1.role > obj2.role else -1

    @staticmethod
    def find_role_boundaries(roles_infos: list[_RoleInstanceInfo], role: str) -> tuple[int, int]:
        places = [place for place, info in enumerate(roles_infos) if info.role == role]
        return (places[0], places[-1]) if places else (-1, -1)


@dataclass
class RunResult:
    """How a run ended for the workers of this agent, by their global ranks. All or nothing: one failure is a failed run.

    Programs have no return value (None). Workers that the agent stopped are in neither dictionary.
    """

    state: WorkerState
    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)

    def is_failed(self) -> bool:
        """Tell whether a worker failed and no restart was left."""
        return self.state == WorkerState.FAILED
