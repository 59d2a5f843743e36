"""Whose fault the end of a worker is: its own, ours, another rank's, or that of a program that cannot work. Pure."""

from __future__ import annotations

from planaria.agent.model import DRAINING
from planaria.base import signals
from planaria.base.value import replace
from planaria.contract import exit_status
from planaria.contract.failure import (
    EARLY_LIFE_S,
    ROUND_OVER,
    are_alike,
    first_cause_first,
    is_mistake,
    names_a_lost_peer,
    stopped,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.agent.model import Group
    from planaria.contract.failure import Failure

# How much later than the first failure a crash of the same moment may be reported, with a GPU to tear down.
LATE_S = 0.3
PORT_TRIES = 3  # how often a master port taken by somebody else is replaced free of charge


def with_failure(group: Group, failure: Failure) -> Group:
    """Add a failure; of one rank, what is known later is all that is known."""
    others = tuple(one for one in group.failures if one.rank != failure.rank)
    return replace(group, failures=(*others, failure))


def was_asked_for(group: Group, failure: Failure) -> bool:
    """Tell whether a worker ended as the owner's signal, or the end of its round, wanted it to; that is no failure."""
    if (group.phase != DRAINING and not group.round_over) or failure.at < group.stop_at:
        return False
    asked = (group.stop_signal, signals.SIGTERM, signals.SIGINT if group.interrupted else group.stop_signal)
    return exit_status.of_worker(failure.status) in map(exit_status.by_signal, asked)


def blamed(group: Group, failure: Failure) -> Failure:
    """Mark an end we caused. What a worker did before it heard of our stop, or a signal we did not send, is its own."""
    if group.phase == DRAINING:
        return failure
    own = [one for one in group.failures if one.stopped_for is None]
    culprit = first_cause_first(own)[0].rank if own else ROUND_OVER
    if group.round_over and names_a_lost_peer(failure):  # of a node that was told earlier than we were
        return stopped(failure, culprit)
    if failure.at < group.stop_at or failure.killer in ("oom", "other") or _crashed_at_once(group, failure):
        return failure
    return stopped(failure, culprit)


def _crashed_at_once(group: Group, failure: Failure) -> bool:
    """Tell whether a worker crashed in the moment of our stop, by itself.

    When a round ends, libraries abort because workers of other nodes are gone: that is no crash of their own.
    """
    sent = (signals.SIGTERM, signals.SIGKILL, signals.NUMBERS["SIGABRT"] if group.round_over else signals.SIGKILL)
    return failure.status < 0 and -failure.status not in sent and failure.at < group.stop_at + LATE_S


def settle_s(age_s: float) -> float:
    """Return how long to wait for the other ranks to meet the same error: ranks drift apart with the age of a life."""
    return min(1.0, 0.3 + age_s / 2)


def may_be_a_mistake(group: Group, at: float) -> bool:
    """Tell whether failures could be those of a program that cannot work: in a first life, early, without progress."""
    if group.always_restart or group.restarts >= group.max_restarts:
        return False
    return group.round == 0 and not group.progressed and at - group.started_at < EARLY_LIFE_S


def is_a_mistake(group: Group, at: float) -> bool:
    """Tell whether every rank failed alike, as a program that cannot work does."""
    own = [failure for failure in group.failures if failure.stopped_for is None]
    everyone = len(own) == group.size
    return everyone and may_be_a_mistake(group, at) and are_alike(own) and is_mistake(own[0])


def master_port_was_taken(group: Group, cause: Failure) -> bool:
    """Tell whether rank 0 could not bind the port that we chose; nobody's fault, so it costs no restart."""
    if group.fixed_port or group.port_tries >= PORT_TRIES or cause.rank != 0:
        return False
    text = f"{cause.message} {cause.traceback} {cause.stderr_tail}"
    return str(group.master_port) in text and ("EADDRINUSE" in text or "address already in use" in text.lower())


def failed_status(group: Group, cause: Failure) -> int:
    """Return the exit status of a job that failed for this cause, which is never 0."""
    status = exit_status.of_worker(cause.status) if group.worker_exit_code else exit_status.WORKER_FAILED
    return status or exit_status.WORKER_FAILED
