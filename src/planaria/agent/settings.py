"""What a job asks for, part by part: where nodes meet, probes, commits, and a watch for ranks that hang. Pure."""

from __future__ import annotations

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from planaria.contract.secret import Secret

    LostMajority = Literal["wait", "exit", "continue"]
    HangPolicy = Literal["report", "restart", "stop"]


class Meeting(Value):
    """How nodes find each other, the same on every node but for `node_rank` and `local_addr`. Checked by the launcher.

    `endpoints` are `host:port` with brackets round IPv6, never empty for a backend of ours. With `static` it is the workers'
    master address; the agents meet one port above. `options` are the backend's own, and `tls_*` for the agents' connections.
    """

    backend: str
    """`embedded`, `etcd`, `kubernetes`, `static`, or a plugin's name."""
    endpoints: tuple[str, ...]
    run_id: str
    min_nodes: int
    max_nodes: int
    node_rank: int | None = None
    """Only `static` has one."""
    local_addr: str | None = None
    token: Secret | None = None
    ttl_s: float = 5.0
    quiet_s: float = 2.0
    join_timeout_s: float = 600.0
    resize_grace_s: float = 10.0
    on_lost_majority: LostMajority = "wait"
    require_token: bool = False
    options: Mapping[str, str] = {}


class HealthCheck(Value):
    """Where probes are answered, and how long the loop may be stuck before they are told so."""

    port: int
    """0 for a free one."""
    host: str = "127.0.0.1"
    timeout_s: float = 60.0
    token: Secret | None = None
    """What changes the job over TCP has to bring it; without one nothing does."""


class Shelter(Value):
    """Where commits go beside this node's memory; `directory` None: nowhere. Of those on disk the newest `keep` stay.

    With `has_buddies` each node of several keeps a copy of its neighbour's.
    """

    directory: str | None = None
    keep: int = 2
    has_buddies: bool = True


class Vigilance(Value):
    """When a rank that shows no progress is said to hang, and what is done then. `floor_s` 0: nobody is called.

    `pattern` finds progress in the lines that workers write; `stall_restarts` lives without progress end the job, 0: none do.
    """

    floor_s: float = 0.0
    policy: HangPolicy = "report"
    pattern: str | None = None
    stall_restarts: int = 0
