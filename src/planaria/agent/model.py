"""What the agent works with: the job, the state of a worker group, events that happen to it and effects it orders.

Events are in the past tense, effects are orders. All of them are values; `machine.py` alone connects them.
"""

from __future__ import annotations

from planaria.agent.settings import Shelter, Vigilance
from planaria.base.value import Value
from planaria.contract.failure import Failure
from planaria.process.model import Call, Command, LogSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from planaria.agent.membership import SeatEffect, SeatEvent
    from planaria.agent.settings import HealthCheck, Meeting

    Phase = Literal[
        "checking",
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

CHECKING: Literal["checking"] = "checking"
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
    preflight: tuple[str, ...] = ()
    """The groups of checks that this node has to pass before it joins; empty: it joins unchecked."""
    preflight_cooldown_s: float = 60.0
    vigilance: Vigilance = Vigilance()
    standbys: int | None = 0
    """How many processes stand by for workers; None: as many as memory allows, one for each at most."""
    run_dir: str | None = None
    """Where the run's folder is made, with the journal of each node; None: the journal is in memory only."""


MOST_LIVES = 128
"""A job may restart for months: of older lives nothing is kept."""


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

    With `--preflight`, `has_met` is False until the node has passed its checks; `setbacks` counts the times it did not,
    `set_aside` says why it did not the last time, and `cooldown_s` is what the first of them costs.
    `reached` is the highest step of this life, `furthest` that of all lives before it, `stalled` how many in a row did not get
    beyond; `wraps`: steps are counted anew now and then, so that all this says nothing.
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
    stall_restarts: int = 0
    reached: int | None = None
    furthest: int | None = None
    stalled: int = 0
    wraps: bool = False
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
    has_met: bool = True
    setbacks: int = 0
    set_aside: str = ""
    cooldown_s: float = 60.0


class Begun(Value):
    """The agent is ready to start workers."""

    at: float


class NodeChecked(Value):
    """The checks of this node came to an end; `problem` says in a line what failed, empty when nothing did."""

    problem: str
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
    """A worker said that it moved on; `went_back`: to a step below that of its last report."""

    local_rank: int
    step: int
    went_back: bool = False


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
    """A worker, or a process below it (`pid`), stays in a scope for longer than it said it would, or hangs.

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


class CheckNode(Value):
    """Check this node; report `NodeChecked`."""


class TellSetAside(Value):
    """Say that this node joins nobody for so many seconds, and why."""

    problem: str
    after_s: float


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
        | NodeChecked
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
        CheckNode
        | TellSetAside
        | StartWorkers
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
