"""What a worker group decides differently when it is one of many: somebody else says when a round starts and ends. Pure.

    WAITING -> STARTING -> RUNNING -> RESTARTING -> WAITING   a round, from its start to our report that it ended here
    RUNNING -> RESIZING -> STOPPING                           the world changes: workers that listen may end by themselves
    any -> RESTARTING -> WAITING                              the lease ran out: everything is killed at once
    any -> FINISHING -> DONE                                  the run is over everywhere
    any -> DRAINING -> FINISHING -> LEAVING -> DONE           the owner sent a signal: a goodbye, and the others go on

Everything else is as in `machine.py`, which asks here first. Only a job of many nodes imports this file.
"""

from __future__ import annotations

from planaria.agent.blame import failed_status, master_port_was_taken
from planaria.agent.machine import KILL_S, TREE_S, conclude, drain, finish, stop
from planaria.agent.membership import (
    AnnounceLeave,
    Fenced,
    GoodbyeSaid,
    LeaseMoved,
    LeaveRun,
    MeetOthers,
    ReportDone,
    ReportFailed,
    ReportStopped,
    RequestEnd,
    RoundStarted,
    RoundStopped,
    RunEnded,
    TakePlace,
    TellFence,
    TellLife,
    TellResize,
)
from planaria.agent.model import (
    DONE,
    FINISHING,
    LEAVING,
    RESIZING,
    RESTARTING,
    RUNNING,
    SETTLING,
    STARTING,
    STOPPING,
    WAITING,
    Begun,
    DeadlinePassed,
    EndRequested,
    EndTree,
    Finish,
    KillWorkers,
    Outcome,
    SetDeadline,
    StopRequested,
    TreeEnded,
    WorkerExited,
)
from planaria.agent.stalls import why_it_stops
from planaria.base import signals
from planaria.base.value import replace
from planaria.contract import exit_status
from planaria.contract.failure import ROUND_OVER, names_a_lost_peer, stopped
from planaria.errors import InvalidTransition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.agent.model import Effect, Event, Group
    from planaria.contract.failure import Failure

    Step = tuple[Group, tuple[Effect, ...]]

GOODBYE_S = (
    2.0  # how long a node that leaves waits for its goodbye to be heard; without one the others notice by themselves
)
_STATUSES = {
    "done": exit_status.DONE,
    "timeout": exit_status.NO_ROUND,
    "lost": exit_status.DRAINED,
    "refused": exit_status.USAGE,
    "stopped": exit_status.by_signal(signals.SIGTERM),
}
_LIVELY = (RUNNING, SETTLING, RESIZING, STOPPING)


def step_among_others(group: Group, event: Event) -> Step | None:
    """Decide what the agent does next; None: the same as for a group that is alone."""
    match event:
        case RoundStarted():
            return _round_started(group, event)
        case RoundStopped():
            return _round_stopped(group, event)
        case LeaseMoved(until):
            return replace(group, lease_until=until), ()
        case Fenced():
            return _fence(group, event)
        case RunEnded():
            return _run_ended(group, event)
        case EndRequested(reason, grace_s):  # the end comes from those who decide for all; who drains asks before
            is_over = group.run_over or group.phase in ("leaving", "done")
            return group, () if is_over else (RequestEnd(reason, grace_s),)
        case _:
            return _own_event(group, event)


def _own_event(group: Group, event: Event) -> Step | None:
    match group.phase, event:
        case "waiting", Begun():
            return group, (MeetOthers(), ReportStopped())
        case _, WorkerExited() if _is_too_late(group, event):
            return _fence(group, Fenced("the lease ran out while this agent was stopped", event.at))
        case "restarting", TreeEnded():
            return _report(group, event)
        case "finishing", TreeEnded():
            return _leave(group)
        case "resizing", DeadlinePassed(at):
            return _climb(group, at)
        case (("running" | "settling" | "resizing" | "stopping"), StopRequested()):
            draining, effects = drain(group, event)
            return draining, (AnnounceLeave(_why_it_leaves(event.signal)), *effects)
        case "leaving", DeadlinePassed() | GoodbyeSaid() | StopRequested(signals.SIGINT, _, True):
            return _gone(group)
        case _, GoodbyeSaid():  # the end of the run, or of the launcher, came first
            return group, ()
        case _:
            return None


def _why_it_leaves(number: int) -> str:
    return f"its owner sent {signals.name_of(number)}"


def _is_too_late(group: Group, event: WorkerExited) -> bool:
    """Tell whether a worker ended after our lease: by the guardian's hand, while we were stopped ourselves."""
    at = event.at if event.failure is None else event.failure.at
    return group.phase in _LIVELY and group.lease_until is not None and at >= group.lease_until


def _round_started(group: Group, event: RoundStarted) -> Step:
    match group.phase:
        case "waiting":
            place = event.place
            fresh = replace(group, phase=STARTING, round=place.round, restarts=place.restart_count, reason=place.reason)
            fresh = replace(fresh, failures=(), ladder=0, expired=(), round_over=False, verdict="stopped")
            fresh = replace(fresh, interrupted=False)
            return fresh, (TakePlace(place),)
        case "draining" | "finishing" | "leaving" | "done":  # the goodbye is on its way
            return group, ()
        case _:
            raise InvalidTransition(group.phase, event)


def _round_stopped(group: Group, event: RoundStopped) -> Step:
    told = event.grace_s > 0 and event.has_listeners
    match group.phase:
        case "waiting":
            return group, (ReportStopped(),)
        case "running" | "settling" if told:
            return _tell(replace(_ended_from_outside(group), phase=RESIZING, stop_at=event.at), event)
        case "running" | "settling":
            return stop(_ended_from_outside(group), event.at)
        case "resizing" if told:  # asked again; there may be less time than before
            return _tell(group, event) if event.at + event.grace_s < group.told_until else (group, ())
        case "resizing":
            return _climb(group, event.at)
        case "stopping" | "restarting":
            return _excuse(group), ()
        case "draining" | "finishing" | "leaving" | "done":
            return group, ()
        case _:
            raise InvalidTransition(group.phase, event)


def _tell(group: Group, event: RoundStopped) -> Step:
    """Let workers that listen end by themselves."""
    effects = (TellResize(event.reason, event.grace_s), SetDeadline(event.grace_s))
    return replace(group, told_until=event.at + event.grace_s), effects


def _ended_from_outside(group: Group) -> Group:
    return replace(group, round_over=True, stop_signal=signals.SIGTERM)


def _climb(group: Group, at: float) -> Step:
    """Begin the stop ladder for workers that were told before: what they did since then was asked for."""
    stopping, effects = stop(group, at)
    return replace(stopping, stop_at=group.stop_at), effects


def _excuse(group: Group) -> Group:
    """Take back failures that only name a lost peer: the round was ended elsewhere, and we heard of it late."""
    failures = group.failures
    if group.round_over or not all(names_a_lost_peer(one) for one in _own(failures)):
        return group
    excused = tuple(stopped(one, ROUND_OVER) if one.stopped_for is None else one for one in failures)
    verdict = "stopped" if group.verdict == "failed" else group.verdict
    return replace(_ended_from_outside(group), failures=excused, verdict=verdict)


def _own(failures: tuple[Failure, ...]) -> tuple[Failure, ...]:
    return tuple(one for one in failures if one.stopped_for is None)


def _fence(group: Group, event: Fenced) -> Step:
    """Kill everything at once: from now on another world may be at work."""
    match group.phase:
        case "waiting":
            return group, (ReportStopped(),)
        case "draining":
            return replace(group, ladder=2), (KillWorkers(), SetDeadline(KILL_S))
        case "running" | "settling" | "resizing" | "stopping":
            ended, effects = conclude(replace(_ended_from_outside(group), running=frozenset()), event.at)
            return ended, (KillWorkers(), TellFence(event.reason), *effects)
        case "restarting" | "finishing" | "leaving" | "done":
            return group, ()
        case _:
            raise InvalidTransition(group.phase, event)


def conclude_among_others(group: Group, causes: tuple[Failure, ...]) -> Step:
    """Go on from a life that has ended: clean up, then report; or finish, when the run is over."""
    if group.outcome is not None:
        return finish(group, group.outcome)
    verdict = "failed" if _own(causes) else "stopped" if group.round_over else "done"
    return replace(group, phase=RESTARTING, verdict=verdict), (EndTree(TREE_S),)


def _report(group: Group, event: TreeEnded) -> Step:
    """Tell the others how a life ended, now that nothing of it is left."""
    told = (TellLife(event.clean), ReportStopped())
    waiting = replace(group, phase=WAITING)
    if group.verdict == "done":
        return waiting, (*told, ReportDone())
    if group.verdict == "stopped":
        return waiting, told
    own = _own(group.lives[-1].failures)
    free = master_port_was_taken(group, own[0])
    failures = tuple(replace(one, progressed=group.progressed) for one in own)
    report = ReportFailed(failures, free, "" if free else why_it_stops(group))
    return replace(waiting, port_tries=group.port_tries + free), (*told, report)


def _run_ended(group: Group, event: RunEnded) -> Step:
    group = replace(group, run_over=True, causes=event.failures, restarts=event.restart_count)
    outcome = _outcome(group, event)
    match group.phase:
        case "waiting":
            return finish(group, outcome)
        case "running" | "settling":
            return stop(replace(_ended_from_outside(group), outcome=outcome), event.at)
        case "resizing":
            return _climb(replace(group, outcome=outcome), event.at)
        case "stopping":
            return replace(group, outcome=outcome), ()
        case "restarting":
            return replace(group, phase=FINISHING, outcome=outcome), ()
        case "leaving":
            return _gone(group)
        case "draining" | "finishing" | "done":  # its owner's signal was there first
            return group, ()
        case _:
            raise InvalidTransition(group.phase, event)


def _outcome(group: Group, event: RunEnded) -> Outcome:
    if event.kind != "failed":
        return Outcome(event.kind, _STATUSES[event.kind], explanation=event.explanation)
    status = failed_status(group, event.failures[0]) if event.failures else event.status
    return Outcome("failed", status, explanation=event.explanation)


def _leave(group: Group) -> Step:
    """Say goodbye before the end, if there is anybody who should know that this node goes and the run does not."""
    outcome = group.outcome
    if outcome is None or outcome.kind != "signal" or group.run_over or not group.has_met:
        return _gone(group)
    leave = LeaveRun(_why_it_leaves(outcome.signal))
    return replace(group, phase=LEAVING), (ReportStopped(), leave, SetDeadline(GOODBYE_S))


def _gone(group: Group) -> Step:
    if group.outcome is None:
        raise InvalidTransition(group.phase, "an end without an outcome")
    return replace(group, phase=DONE), (Finish(group.outcome),)
