"""Every decision about a worker group. Pure: time comes in with the events, actions go out as effects.

    STARTING -> RUNNING -> FINISHING -> DONE              all workers exit 0
    RUNNING -> STOPPING -> RESTARTING -> STARTING         a worker fails and the budget allows another life
    RUNNING -> SETTLING                                   the first life failed like a mistake: do all ranks agree?
    any -> DRAINING -> FINISHING                          the owner sent a signal
    any -> FINISHING                                      the launcher is gone: everything is killed at once

`docs/architecture.md` shows the whole diagram, drawn from `step` by a test. A pair of phase and event that is not listed
here is a bug, not a no-op.
"""

from __future__ import annotations

from planaria.agent.model import (
    DONE,
    DRAINING,
    FINISHING,
    RESTARTING,
    RUNNING,
    SETTLING,
    STARTING,
    STOPPING,
    Begun,
    DeadlinePassed,
    DumpStacks,
    EndTree,
    Finish,
    Group,
    KillWorkers,
    LauncherDied,
    Life,
    Outcome,
    ProgressReported,
    SetDeadline,
    SignalWorkers,
    StartWorkers,
    StopRequested,
    TellDrain,
    TellRestart,
    TreeEnded,
    WorkerExited,
    WorkersStarted,
)
from planaria.base import signals
from planaria.base.value import replace
from planaria.contract import exit_status
from planaria.contract.failure import Failure, are_alike, first_cause_first, is_mistake, stopped
from planaria.errors import InvalidTransition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.agent.model import Effect, Event

    Step = tuple[Group, tuple[Effect, ...]]

EARLY_LIFE_S = 60.0  # a life this old has done something, whether or not it reported progress
STACK_DUMP_S = 0.25  # what a worker gets to write its stacks before it is killed
KILL_S = 10.0  # a worker that SIGKILL has not ended by then is in the kernel's hands (state D); the job does not wait
TREE_S = 5.0  # the same for descendants of workers
LATE_S = (
    0.3  # how much later than the first failure a crash of the same moment may be reported, with a GPU to tear down
)
PORT_TRIES = 3  # how often a master port taken by somebody else is replaced free of charge


def step(group: Group, event: Event) -> Step:
    """Decide what the agent does next."""
    match event:
        case LauncherDied():
            return _abandon(group)
        case StopRequested():
            return _stop_requested(group, event)
        case WorkerExited():
            return _worker_exited(group, event)
        case ProgressReported():
            return _progressed(group)
        case DeadlinePassed():
            return _deadline_passed(group, event)
        case TreeEnded():
            return _tree_ended(group, event)
        case Begun() if group.phase == STARTING:
            return group, (StartWorkers(group.round, group.restarts, group.reason),)
        case WorkersStarted(at, master_port) if group.phase == STARTING:
            everyone = frozenset(range(group.size))
            return replace(group, phase=RUNNING, started_at=at, running=everyone, master_port=master_port), ()
        case _:
            raise InvalidTransition(group.phase, event)


def _worker_exited(group: Group, event: WorkerExited) -> Step:
    group = replace(group, running=group.running - {event.local_rank})
    failure = event.failure
    match group.phase:
        case "running":
            return _exited_while_running(group, failure, event.at)
        case "settling":
            group = group if failure is None else _with_failure(group, failure)
            if not group.running:
                return _conclude(group, event.at)
            return (group, ()) if failure and are_alike(group.failures) else _stop(group, event.at)
        case "stopping" | "draining":
            if failure is not None and not _was_asked_for(group, failure):
                group = _with_failure(group, _blame(group, failure))
            return (group, ()) if group.running else _conclude(group, event.at)
        case "restarting" | "finishing":  # killed with everything else, or let go by the kernel at last
            return group, ()
        case _:
            raise InvalidTransition(group.phase, event)


def _exited_while_running(group: Group, failure: Failure | None, at: float) -> Step:
    if failure is None:
        return (group, ()) if group.running else _conclude(group, at)
    group = _with_failure(group, failure)
    if not group.running:
        return _conclude(group, at)
    if _may_be_a_mistake(group, at) and is_mistake(failure):
        return replace(group, phase=SETTLING), (SetDeadline(settle_s(at - group.started_at)),)
    return _stop(group, at)


def settle_s(age_s: float) -> float:
    """Return how long to wait for the other ranks to meet the same error: ranks drift apart with the age of a life."""
    return min(1.0, 0.3 + age_s / 2)


def _may_be_a_mistake(group: Group, at: float) -> bool:
    if group.always_restart or group.restarts >= group.max_restarts:
        return False
    return group.round == 0 and not group.progressed and at - group.started_at < EARLY_LIFE_S


def _with_failure(group: Group, failure: Failure) -> Group:
    return replace(group, failures=(*group.failures, failure))


def _was_asked_for(group: Group, failure: Failure) -> bool:
    """Tell whether a worker ended as the owner's signal wanted it to; that is no failure."""
    if group.phase != DRAINING or failure.at < group.stop_at:
        return False
    asked = (group.stop_signal, signals.SIGTERM, signals.SIGINT if group.interrupted else group.stop_signal)
    return exit_status.of_worker(failure.status) in map(exit_status.by_signal, asked)


def _blame(group: Group, failure: Failure) -> Failure:
    """Mark an end we caused. What a worker did before it heard of our stop, or a signal we did not send, is its own."""
    crashed = failure.status < 0 and failure.status not in (-signals.SIGTERM, -signals.SIGKILL)
    at_once = crashed and failure.at < group.stop_at + LATE_S
    if group.phase == DRAINING or failure.at < group.stop_at or at_once or failure.killer in ("oom", "other"):
        return failure
    return stopped(failure, first_cause_first(group.failures)[0].rank)


def _stop(group: Group, at: float) -> Step:
    group = replace(group, phase=STOPPING, stop_at=at, ladder=0)
    return group, (SignalWorkers(signals.SIGTERM), SetDeadline(group.grace_s))


def _conclude(group: Group, at: float) -> Step:
    """Go on from a life that has ended: another one, or the end of the job."""
    causes = first_cause_first(group.failures)
    life = Life(group.round, group.restarts, group.reason, at - group.started_at, causes)
    group = replace(group, lives=(*group.lives, life))
    if group.phase == DRAINING:
        return _finish(group, Outcome("signal", exit_status.by_signal(group.stop_signal), group.stop_signal))
    if not causes:
        return _finish(group, Outcome("done", exit_status.DONE))
    if _master_port_was_taken(group, causes[0]):
        return _restart(replace(group, port_tries=group.port_tries + 1), "the master port was taken by another program")
    if _is_a_mistake(group, at):
        why = "every rank failed alike at start-up, so restarting cannot help (--always-restart restarts all the same)"
        return _finish(group, Outcome("failed", _failed_status(group, causes[0]), explanation=why))
    if group.restarts >= group.max_restarts:
        return _finish(group, Outcome("failed", _failed_status(group, causes[0])))
    return _restart(replace(group, restarts=group.restarts + 1), f"rank {causes[0].rank} failed")


def _failed_status(group: Group, cause: Failure) -> int:
    return exit_status.of_worker(cause.status) if group.worker_exit_code else exit_status.WORKER_FAILED


def _is_a_mistake(group: Group, at: float) -> bool:
    own = [failure for failure in group.failures if failure.stopped_for is None]
    everyone = len(own) == group.size
    return everyone and _may_be_a_mistake(group, at) and are_alike(own) and is_mistake(own[0])


def _master_port_was_taken(group: Group, cause: Failure) -> bool:
    """Tell whether rank 0 could not bind the port that we chose; nobody's fault, so it costs no restart."""
    if group.fixed_port or group.port_tries >= PORT_TRIES or cause.rank != 0:
        return False
    text = f"{cause.message} {cause.traceback} {cause.stderr_tail}"
    return str(group.master_port) in text and ("EADDRINUSE" in text or "address already in use" in text.lower())


def _restart(group: Group, reason: str) -> Step:
    group = replace(group, phase=RESTARTING, round=group.round + 1, reason=reason)
    return group, (EndTree(TREE_S),)


def _finish(group: Group, outcome: Outcome) -> Step:
    return replace(group, phase=FINISHING, outcome=outcome), (EndTree(TREE_S),)


def _tree_ended(group: Group, event: TreeEnded) -> Step:
    if group.phase == RESTARTING:
        fresh = replace(group, phase=STARTING, failures=(), ladder=0)
        return fresh, (TellRestart(event.clean), StartWorkers(group.round, group.restarts, group.reason))
    if group.phase == FINISHING and group.outcome is not None:
        return replace(group, phase=DONE), (Finish(group.outcome),)
    raise InvalidTransition(group.phase, event)


def _stop_requested(group: Group, event: StopRequested) -> Step:
    match group.phase:
        case "running" | "settling" | "stopping":
            draining = replace(group, phase=DRAINING, stop_signal=event.signal, stop_at=event.at, ladder=0)
            draining = replace(draining, interrupted=event.signal == signals.SIGINT)
            effects = (TellDrain(event.signal, group.grace_s), SignalWorkers(event.signal), SetDeadline(group.grace_s))
            return draining, effects
        case "draining":  # a second Ctrl-C means now; a repeated SIGTERM is only a manager that is thorough
            if event.signal != signals.SIGINT or not event.by_owner:
                return group, ()
            if not group.interrupted:  # the first Ctrl-C of a drain that something else began
                return replace(group, interrupted=True), (SignalWorkers(signals.SIGINT),)
            return replace(group, ladder=2), (KillWorkers(), SetDeadline(KILL_S))
        case "starting" | "restarting":
            outcome = Outcome("signal", exit_status.by_signal(event.signal), event.signal)
            ending = replace(group, phase=FINISHING, outcome=outcome)
            return ending, (EndTree(TREE_S),) if group.phase == STARTING else ()
        case "finishing" | "done":
            return group, ()


def _deadline_passed(group: Group, event: DeadlinePassed) -> Step:
    match group.phase, group.ladder:
        case "settling", _:
            return _stop(group, event.at)
        case (("stopping" | "draining"), 0):
            return replace(group, ladder=1), (DumpStacks(), SetDeadline(STACK_DUMP_S))
        case (("stopping" | "draining"), 1):
            return replace(group, ladder=2), (KillWorkers(), SetDeadline(KILL_S))
        case (("stopping" | "draining"), 2):
            return _conclude(replace(group, running=frozenset()), event.at)
        case _:
            raise InvalidTransition(group.phase, event)


def _progressed(group: Group) -> Step:
    return (group if group.progressed else replace(group, progressed=True)), ()


def _abandon(group: Group) -> Step:
    """Nobody is left to run for. No grace: whoever killed the launcher wants the machine back."""
    if group.phase == DONE:
        return group, ()
    outcome = Outcome("abandoned", exit_status.by_signal(signals.SIGKILL), signals.SIGKILL)
    effects = () if group.phase in (RESTARTING, FINISHING) else (EndTree(TREE_S),)
    return replace(group, phase=FINISHING, outcome=outcome), effects
