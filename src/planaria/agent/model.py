"""What the agent works with: the job, the state of a worker group, events that happen to it and effects it orders.

Events are in the past tense, effects are orders. All of them are values; `machine.py` alone connects them.
"""

from __future__ import annotations

from planaria.base.value import Value
from planaria.contract.failure import Failure
from planaria.process.model import Command, LogSettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    Phase = Literal["starting", "running", "settling", "stopping", "restarting", "draining", "finishing", "done"]
    OutcomeKind = Literal["done", "failed", "signal", "abandoned"]

STARTING: Literal["starting"] = "starting"
RUNNING: Literal["running"] = "running"
SETTLING: Literal["settling"] = "settling"
STOPPING: Literal["stopping"] = "stopping"
RESTARTING: Literal["restarting"] = "restarting"
DRAINING: Literal["draining"] = "draining"
FINISHING: Literal["finishing"] = "finishing"
DONE: Literal["done"] = "done"


class Job(Value):
    """Everything the agent needs to know to run one node's workers. Built and checked by the launcher."""

    command: Command
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
    """The state of a worker group. `ladder` counts the rungs of the stop ladder already taken in this life."""

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
    ladder: int = 0
    port_tries: int = 0
    lives: tuple[Life, ...] = ()
    outcome: Outcome | None = None


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


class LauncherDied(Value):
    """The guardian, whose pid the owner knows as the launcher, is gone."""

    at: float


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
    """Send a signal to the process group of every running worker."""

    signal: int


class TellDrain(Value):
    """Tell workers that listen on the control socket that a stop is coming."""

    signal: int
    grace_s: float


class DumpStacks(Value):
    """Ask workers that do not stop for their stacks."""


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
        | LauncherDied
        | DeadlinePassed
        | TreeEnded
    )
    Effect = (
        StartWorkers
        | SignalWorkers
        | TellDrain
        | TellRestart
        | DumpStacks
        | KillWorkers
        | SetDeadline
        | EndTree
        | Finish
    )
