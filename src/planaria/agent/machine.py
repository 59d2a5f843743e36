"""Every decision about a worker group. Pure: time comes in with the events, actions go out as effects.

    STARTING -> RUNNING -> FINISHING -> DONE              all workers exit 0
    RUNNING -> STOPPING -> RESTARTING -> STARTING         a worker fails and the budget allows another life
    RUNNING -> STOPPING                                   a scope ran for too long, or a rank hangs: stacks first
    RUNNING -> SETTLING                                   the first life failed like a mistake: do all ranks agree?
    RUNNING -> STOPPING -> RESTARTING -> STARTING         the members of a foreign rendezvous changed: free of charge
    any -> DRAINING -> FINISHING                          the owner sent a signal
    any -> FINISHING                                      the launcher is gone: everything is killed at once

A group that is not alone starts and restarts when it is told to: what differs for it is in `member.py`, which only such a
group imports. `docs/architecture.md` shows both diagrams, drawn from `step` by a test. A pair of phase and event that is
not listed is a bug, not a no-op.
"""

from __future__ import annotations

from planaria.agent.blame import (
    blamed,
    failed_status,
    is_a_mistake,
    master_port_was_taken,
    may_be_a_mistake,
    settle_s,
    was_asked_for,
    with_failure,
)
from planaria.agent.model import (
    CHECKING,
    DONE,
    DRAINING,
    FINISHING,
    MOST_LIVES,
    RESTARTING,
    RUNNING,
    SETTLING,
    STARTING,
    STOPPING,
    Begun,
    BlameWorker,
    DeadlinePassed,
    DumpStacks,
    EndRequested,
    EndTree,
    Finish,
    Group,
    KillWorkers,
    LauncherDied,
    Life,
    MembersChanged,
    NodeChecked,
    Outcome,
    ProgressReported,
    ScopeExpired,
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
from planaria.agent.stalls import counted, noted, why_it_stops
from planaria.base import signals
from planaria.base.value import replace
from planaria.contract import exit_status
from planaria.contract.failure import are_alike, first_cause_first, in_words, is_mistake
from planaria.errors import InvalidTransition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.agent.model import Effect, Event
    from planaria.contract.failure import Failure

    Step = tuple[Group, tuple[Effect, ...]]

STACK_DUMP_S = 0.25  # what a worker gets to write its stacks before it is killed
LOOK_S = 1.0  # the same after a scope expired: all cores may be busy, and stacks are all that explains this failure
LOOKING = -1  # the rung below the first: nobody was asked to stop yet
KILL_S = 10.0  # a worker that SIGKILL has not ended by then is in the kernel's hands (state D); the job does not wait
TREE_S = 5.0  # the same for descendants of workers
MEMBERS_CHANGED = "the members of the run changed"


def step(group: Group, event: Event) -> Step:
    """Decide what the agent does next."""
    if group.phase == CHECKING or isinstance(event, NodeChecked):
        from planaria.agent.quarantine import step_checking

        return step_checking(group, event)
    if not group.alone:
        from planaria.agent.member import step_among_others

        return step_among_others(group, event) or _step(group, event)
    return _step(group, event)


def _step(group: Group, event: Event) -> Step:
    match event:
        case LauncherDied() | StopRequested() | EndRequested():
            return _owner_wants_the_end(group, event)
        case WorkerExited():
            return _worker_exited(group, event)
        case ProgressReported():
            return noted(group, event), ()
        case ScopeExpired():
            return _scope_expired(group, event)
        case DeadlinePassed():
            return _deadline_passed(group, event)
        case TreeEnded():
            return _tree_ended(group, event)
        case _:
            return _begin(group, event)


def _begin(group: Group, event: Event) -> Step:
    """Start the workers of a life, or end it for another one that is agreed on elsewhere."""
    match event:
        case Begun() if group.phase == STARTING and group.alone:
            return group, (StartWorkers(group.round, group.restarts, group.reason),)
        case WorkersStarted(at, master_port) if group.phase == STARTING:
            everyone = frozenset(range(group.size))
            return replace(group, phase=RUNNING, started_at=at, running=everyone, master_port=master_port), ()
        case MembersChanged(at) if group.phase == RUNNING and group.alone:
            return stop(replace(group, round_over=True, stop_signal=signals.SIGTERM), at)
        case _:
            raise InvalidTransition(group.phase, event)


def _owner_wants_the_end(group: Group, event: LauncherDied | StopRequested | EndRequested) -> Step:
    match event:
        case LauncherDied():
            return _abandon(group)
        case StopRequested():
            return drain(group, event)
        case EndRequested():
            return _end_by_owner(group, event)


def _worker_exited(group: Group, event: WorkerExited) -> Step:
    group = replace(group, running=group.running - {event.local_rank})
    failure = event.failure
    match group.phase:
        case "running":
            return _exited_while_running(group, failure, event.at)
        case "settling":
            group = group if failure is None else with_failure(group, failure)
            if not group.running:
                return conclude(group, event.at)
            return (group, ()) if failure and are_alike(group.failures) else stop(group, event.at)
        case "resizing" | "stopping" | "draining":
            if failure is not None and not was_asked_for(group, failure):
                group = with_failure(group, blamed(group, failure))
            return (group, ()) if group.running else conclude(group, event.at)
        case "restarting" | "finishing":  # killed with everything else, or let go by the kernel at last
            return group, ()
        case _:
            raise InvalidTransition(group.phase, event)


def _exited_while_running(group: Group, failure: Failure | None, at: float) -> Step:
    if failure is None:
        return (group, ()) if group.running else conclude(group, at)
    group = with_failure(group, failure)
    if not group.running:
        return conclude(group, at)
    if may_be_a_mistake(group, at) and is_mistake(failure):
        return replace(group, phase=SETTLING), (SetDeadline(settle_s(at - group.started_at)),)
    return stop(group, at)


def _scope_expired(group: Group, event: ScopeExpired) -> Step:
    """Condemn a worker that hangs. First all show where they are; a group that stops already has the end it wanted."""
    failure = event.failure
    is_looking = group.phase == STOPPING and group.ladder == LOOKING
    if failure.local_rank not in group.running or not (group.phase in (RUNNING, SETTLING) or is_looking):
        return group, ()
    if failure.local_rank in dict(group.expired):
        return group, ()
    group = with_failure(group, failure)
    expired = (*group.expired, (failure.local_rank, event.signal))
    blame = BlameWorker(failure, event.pid)
    if is_looking:
        return replace(group, expired=expired), (blame,)
    group = replace(group, phase=STOPPING, stop_at=failure.at + LOOK_S, ladder=LOOKING, expired=expired)
    return group, (blame, DumpStacks(), SetDeadline(LOOK_S))


def _signal_expired(group: Group, at: float) -> Step:
    """Begin the stop ladder, with the signals that scopes asked for where they did."""
    group, effects = stop(group, at)
    special = {rank: number for rank, number in group.expired if number != signals.SIGTERM}
    if not special:
        return group, effects
    asked = [
        (number, frozenset(rank for rank in special if special[rank] == number))
        for number in sorted(set(special.values()))
    ]
    orders = [(signals.SIGTERM, group.running - frozenset(special)), *asked]
    return group, (*(SignalWorkers(number, ranks) for number, ranks in orders if ranks), *effects[1:])


def stop(group: Group, at: float) -> Step:
    """Begin the stop ladder."""
    group = replace(group, phase=STOPPING, stop_at=at, ladder=0)
    return group, (SignalWorkers(signals.SIGTERM), SetDeadline(group.grace_s))


def conclude(group: Group, at: float) -> Step:
    """Go on from a life that has ended: another one, or the end of the job."""
    causes = first_cause_first(group.failures)
    life = Life(group.round, group.restarts, group.reason, at - group.started_at, causes)
    group = counted(replace(group, lives=(*group.lives, life)[-MOST_LIVES:]), causes)
    if group.phase == DRAINING and group.outcome is not None and group.outcome.kind == "stopped":
        return finish(group, group.outcome)
    if group.phase == DRAINING:
        return finish(group, Outcome("signal", exit_status.by_signal(group.stop_signal), group.stop_signal))
    if not group.alone:
        from planaria.agent.member import conclude_among_others

        return conclude_among_others(group, causes)
    if group.round_over:
        return _restart(replace(group, round_over=False), MEMBERS_CHANGED)
    if not causes:
        return finish(group, Outcome("done", exit_status.DONE))
    if master_port_was_taken(group, causes[0]):
        return _restart(replace(group, port_tries=group.port_tries + 1), "the master port was taken by another program")
    if is_a_mistake(group, at):
        why = "every rank failed alike at start-up, so restarting cannot help (--always-restart restarts all the same)"
        return finish(group, Outcome("failed", failed_status(group, causes[0]), explanation=why))
    if group.restarts >= group.max_restarts:
        return finish(group, Outcome("failed", failed_status(group, causes[0])))
    if why := why_it_stops(group):
        return finish(group, Outcome("failed", failed_status(group, causes[0]), explanation=why))
    return _restart(replace(group, restarts=group.restarts + 1), in_words(causes[0]))


def _restart(group: Group, reason: str) -> Step:
    return replace(group, phase=RESTARTING, round=group.round + 1, reason=reason), (EndTree(TREE_S),)


def finish(group: Group, outcome: Outcome) -> Step:
    """End the job, once nothing of it is left."""
    return replace(group, phase=FINISHING, outcome=outcome), (EndTree(TREE_S),)


def _tree_ended(group: Group, event: TreeEnded) -> Step:
    if group.phase == RESTARTING:
        fresh = replace(group, phase=STARTING, failures=(), ladder=0, expired=())
        return fresh, (TellRestart(event.clean), StartWorkers(group.round, group.restarts, group.reason))
    if group.phase == FINISHING and group.outcome is not None:
        return replace(group, phase=DONE), (Finish(group.outcome),)
    raise InvalidTransition(group.phase, event)


def drain(group: Group, event: StopRequested) -> Step:
    """End the job, in good order where workers run, because of a signal."""
    match group.phase:
        case "running" | "settling" | "resizing" | "stopping":
            draining = replace(group, phase=DRAINING, stop_signal=event.signal, stop_at=event.at, ladder=0)
            draining = replace(draining, interrupted=event.signal == signals.SIGINT)
            effects = (TellDrain(event.signal, group.grace_s), SignalWorkers(event.signal), SetDeadline(group.grace_s))
            return draining, effects
        case "draining" if group.ladder < 0:  # whoever sends a signal does not wait for workers that were only told
            return _begin_ladder(group, event.signal)
        case "draining":  # a second Ctrl-C means now; a repeated SIGTERM is only a manager that is thorough
            if event.signal != signals.SIGINT or not event.by_owner:
                return group, ()
            if not group.interrupted:  # the first Ctrl-C of a drain that something else began
                return replace(group, interrupted=True), (SignalWorkers(signals.SIGINT),)
            return replace(group, ladder=2), (KillWorkers(), SetDeadline(KILL_S))
        case "waiting" | "starting" | "restarting":
            outcome = Outcome("signal", exit_status.by_signal(event.signal), event.signal)
            ending = replace(group, phase=FINISHING, outcome=outcome)
            return ending, () if group.phase == RESTARTING else (EndTree(TREE_S),)
        case _:  # it ends already
            return group, ()


def _end_by_owner(group: Group, event: EndRequested) -> Step:
    """End the job as SIGTERM would, but let workers that listen end by themselves first, if there is time for that."""
    outcome = Outcome("stopped", exit_status.by_signal(signals.SIGTERM), explanation=event.reason)
    match group.phase:
        case "running" | "settling" if event.grace_s > 0 and event.has_listeners:
            told = replace(group, phase=DRAINING, stop_signal=signals.SIGTERM, stop_at=event.at, ladder=-1)
            return _tell(replace(told, outcome=outcome, interrupted=False), event)
        case "draining" if group.ladder < 0 and not (event.grace_s > 0 and event.has_listeners):
            return _begin_ladder(group, signals.SIGTERM)
        case "draining" if group.ladder < 0 and event.at + event.grace_s < group.told_until:  # less time than before
            return _tell(group, event)
        case "draining" | "finishing" | "leaving" | "done":
            return group, ()
        case _:
            ending, effects_of_drain = drain(group, StopRequested(signals.SIGTERM, event.at))
            return replace(ending, outcome=outcome), effects_of_drain


def _tell(group: Group, event: EndRequested) -> Step:
    """Let workers that listen end by themselves."""
    effects = (TellDrain(signals.SIGTERM, event.grace_s), SetDeadline(event.grace_s))
    return replace(group, told_until=event.at + event.grace_s), effects


def _begin_ladder(group: Group, number: int) -> Step:
    """Send the first signal to workers that were told of the end before."""
    asked = replace(group, ladder=0, stop_signal=number, interrupted=number == signals.SIGINT)
    return asked, (SignalWorkers(number), SetDeadline(group.grace_s))


def _deadline_passed(group: Group, event: DeadlinePassed) -> Step:
    match group.phase, group.ladder:
        case "settling", _:
            return stop(group, event.at)
        case "draining", -1:
            return _begin_ladder(group, signals.SIGTERM)
        case "stopping", -1:
            return _signal_expired(group, event.at)
        case (("stopping" | "draining"), 0):
            return replace(group, ladder=1), (DumpStacks(), SetDeadline(STACK_DUMP_S))
        case (("stopping" | "draining"), 1):
            return replace(group, ladder=2), (KillWorkers(), SetDeadline(KILL_S))
        case (("stopping" | "draining"), 2):
            return conclude(replace(group, running=frozenset()), event.at)
        case _:
            raise InvalidTransition(group.phase, event)


def _abandon(group: Group) -> Step:
    """Nobody is left to run for. No grace: whoever killed the launcher wants the machine back."""
    if group.phase == DONE:
        return group, ()
    outcome = Outcome("abandoned", exit_status.by_signal(signals.SIGKILL), signals.SIGKILL)
    effects = () if group.phase in (RESTARTING, FINISHING) else (EndTree(TREE_S),)
    return replace(group, phase=FINISHING, outcome=outcome), effects
