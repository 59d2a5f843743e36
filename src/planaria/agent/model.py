"""What the agent works with: the job, the state of a worker group, events that happen to it and effects it orders.

Events are in the past tense, effects are orders. All of them are values; `machine.py` alone connects them.
"""

from __future__ import annotations

from planaria.base.value import Value
from planaria.contract.failure import Failure
from planaria.process.model import Call, Command, LogSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from planaria.agent.membership import SeatEffect, SeatEvent
    from planaria.contract.secret import Secret

    Phase = Literal[
        "waiting",
        "starting",
        "running",
        "settling",
        "resizing",
        "stopping",
        "restarting",
        "draining",
        "finishing",
        "leaving",
        "done",
    ]
    OutcomeKind = Literal["done", "failed", "signal", "abandoned", "timeout", "lost", "refused", "stopped"]
    Verdict = Literal["stopped", "failed", "done"]
    LostMajority = Literal["wait", "exit", "continue"]

WAITING: Literal["waiting"] = "waiting"
STARTING: Literal["starting"] = "starting"
RUNNING: Literal["running"] = "running"
SETTLING: Literal["settling"] = "settling"
RESIZING: Literal["resizing"] = "resizing"
STOPPING: Literal["stopping"] = "stopping"
RESTARTING: Literal["restarting"] = "restarting"
DRAINING: Literal["draining"] = "draining"
FINISHING: Literal["finishing"] = "finishing"
LEAVING: Literal["leaving"] = "leaving"
DONE: Literal["done"] = "done"


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


class Job(Value):
    """Everything the agent needs to know to run one node's workers. Built and checked by the launcher."""

    command: Command | Call
    local_world_size: int
    run_id: str
    role: str
    max_restarts: int
    shutdown_timeout_s: float
    signals: tuple[int, ...]
    environment: Mapping[str, str]
    logs: LogSettings = LogSettings()
    master_addr: str = "127.0.0.1"
    master_port: int | None = None
    virtual_local_rank: bool = False
    cpu_sets: tuple[frozenset[int], ...] = ()
    always_restart: bool = False
    worker_exit_code: bool = False
    report_file: str | None = None
    event_handlers: str = ""
    """As `observe.handlers` reads them; empty: nobody is told."""
    meeting: Meeting | None = None
    """None for a node alone."""
    health: HealthCheck | None = None
    shelter: Shelter = Shelter()
    standbys: int | None = 0
    """How many processes stand by for workers; None: as many as memory allows, one for each at most."""
    run_dir: str | None = None
    """Where the run's folder is made, with the journal of each node; None: the journal is in memory only."""


class Life(Value):
    """One finished life of the group: the time between a start of all workers and the end of the last."""

    round: int
    restart_count: int
    reason: str
    duration_s: float
    failures: tuple[Failure, ...]


class Outcome(Value):
    """How the job ended on this node, with the launcher's exit status."""

    kind: OutcomeKind
    status: int
    signal: int = 0
    explanation: str = ""


class Group(Value):
    """The state of a worker group. `ladder` counts the rungs of the stop ladder already taken in this life.

    `expired` has the local rank of each worker that a scope of its own condemned, and the signal it is to be sent.
    `told_until` is the moment until which workers that were told of an end may come to it by themselves.

    Not `alone`: other nodes have groups too, and rounds are decided elsewhere. Then `lease_until` is the moment from which no
    worker may live, `round_over` says that this life was ended from outside, `verdict` how it ended, `run_over` that the
    outcome of the run is known, and `causes` are the failures of all nodes.
    """

    size: int
    max_restarts: int
    grace_s: float
    always_restart: bool = False
    worker_exit_code: bool = False
    fixed_port: bool = False
    phase: Phase = STARTING
    round: int = 0
    restarts: int = 0
    reason: str = ""
    started_at: float = 0.0
    master_port: int = 0
    running: frozenset[int] = frozenset()
    failures: tuple[Failure, ...] = ()
    progressed: bool = False
    stop_at: float = 0.0
    stop_signal: int = 0
    interrupted: bool = False
    told_until: float = 0.0
    ladder: int = 0
    expired: tuple[tuple[int, int], ...] = ()
    port_tries: int = 0
    lives: tuple[Life, ...] = ()
    outcome: Outcome | None = None
    alone: bool = True
    lease_until: float | None = None
    round_over: bool = False
    verdict: Verdict = "stopped"
    run_over: bool = False
    causes: tuple[Failure, ...] = ()


class Begun(Value):
    """The agent is ready to start workers."""

    at: float


class WorkersStarted(Value):
    """Every worker of the life was started; rank 0 is to listen on `master_port`."""

    at: float
    master_port: int = 0


class WorkerExited(Value):
    """A worker ended; `failure` is None when its status was 0."""

    local_rank: int
    at: float
    failure: Failure | None = None


class ProgressReported(Value):
    """A worker said that it moved on."""

    local_rank: int
    step: int


class StopRequested(Value):
    """A signal arrived: through the launcher that the owner watches, or at the agent itself."""

    signal: int
    at: float
    by_owner: bool = True


class MembersChanged(Value):
    """Somebody else's rendezvous has nodes waiting, or has lost some: this round is over. Only for a group without a seat."""

    at: float


class EndRequested(Value):
    """The owner wants the job to end, on every node. Workers that listen have `grace_s` before the first signal."""

    reason: str
    grace_s: float
    at: float
    has_listeners: bool = False


class LauncherDied(Value):
    """The guardian, whose pid the owner knows as the launcher, is gone."""

    at: float


class ScopeExpired(Value):
    """A worker, or a process below it (`pid`), stays in a scope for longer than it said it would.

    `failure` is that of the worker as far as it is known now; `signal` is what the scope wants it to be ended with.
    """

    failure: Failure
    pid: int
    signal: int


class DeadlinePassed(Value):
    """The time set by the last `SetDeadline` is over."""

    at: float


class TreeEnded(Value):
    """No descendant is left, or (`clean` False) some would not die in time."""

    at: float
    clean: bool = True


class StartWorkers(Value):
    """Start every worker of a new life; report `WorkersStarted`."""

    round: int
    restart_count: int
    reason: str


class SignalWorkers(Value):
    """Send a signal to the process group of every running worker, or of those with the local ranks in `only`."""

    signal: int
    only: frozenset[int] | None = None


class TellDrain(Value):
    """Tell workers that listen on the control socket that a stop is coming."""

    signal: int
    grace_s: float


class DumpStacks(Value):
    """Ask workers that do not stop for their stacks."""


class BlameWorker(Value):
    """Whatever its end will look like, take a worker's failure for its own; have the stacks of `pid`, too."""

    failure: Failure
    pid: int


class KillWorkers(Value):
    """SIGKILL every running worker's process group."""


class SetDeadline(Value):
    """Report `DeadlinePassed` after so many seconds, instead of any deadline set before."""

    after_s: float


class EndTree(Value):
    """Cancel the deadline, kill every descendant that is left, and report `TreeEnded`, after `within_s` at the latest."""

    within_s: float


class TellRestart(Value):
    """Say why all workers are started again; not `clean`: and that something of the last life is still there."""

    clean: bool


class Finish(Value):
    """Report the outcome and leave."""

    outcome: Outcome


if TYPE_CHECKING:
    Event = (
        Begun
        | WorkersStarted
        | WorkerExited
        | ProgressReported
        | StopRequested
        | MembersChanged
        | EndRequested
        | LauncherDied
        | ScopeExpired
        | DeadlinePassed
        | TreeEnded
        | SeatEvent
    )
    Effect = (
        StartWorkers
        | SignalWorkers
        | TellDrain
        | TellRestart
        | DumpStacks
        | BlameWorker
        | KillWorkers
        | SetDeadline
        | EndTree
        | Finish
        | SeatEffect
    )
