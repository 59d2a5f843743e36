"""The states of a job as a machine, and the conditions that show them. Pure. docs/kubernetes-api.md shows the machine.

A job is in one state. Its condition is True and stands last; the others that it has been in are False, but for Created, which
stays True. Succeeded and Failed are left by nobody.
"""

from __future__ import annotations

from planaria.errors import InvalidTransition
from planaria.kube.times import seconds, stamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from planaria.kube.model import Json, Plain

CREATED = "Created"
RUNNING = "Running"
RESTARTING = "Restarting"
BELOW_MIN = "BelowMin"
SUSPENDED = "Suspended"
INVALID = "Invalid"
SUCCEEDED = "Succeeded"
FAILED = "Failed"

STATES: dict[str, str] = {
    CREATED: "accepted; its pods are being made and start as usual",
    RUNNING: "as many pods as the job needs run: minReplicas Workers of an elastic job, and train; all pods of a plain one",
    RESTARTING: "fewer run, since a container failed; it is restarted, or its pod replaced",
    BELOW_MIN: "fewer run or train, and something other than a failure is in the way: no room, an image, a lost node",
    SUSPENDED: "`suspend` is true; the job has no pods",
    INVALID: "the spec is wrong, or was changed in a way it cannot be; nothing is created until it is mended",
    SUCCEEDED: "the run is done",
    FAILED: "it failed for good: a permanent failure, backoffLimit or activeDeadlineSeconds",
}
TERMINAL = (SUCCEEDED, FAILED)
_AT_WORK = (RUNNING, RESTARTING, BELOW_MIN)
_ANY_TIME = (SUSPENDED, INVALID)
TRANSITIONS: dict[str, tuple[str, ...]] = {
    "": (CREATED, *_ANY_TIME),
    CREATED: (*_AT_WORK, *_ANY_TIME, *TERMINAL),
    RUNNING: (RESTARTING, BELOW_MIN, *_ANY_TIME, *TERMINAL),
    RESTARTING: (RUNNING, BELOW_MIN, *_ANY_TIME, *TERMINAL),
    BELOW_MIN: (RUNNING, RESTARTING, *_ANY_TIME, *TERMINAL),
    SUSPENDED: (CREATED, INVALID, *TERMINAL),
    INVALID: (CREATED, *_AT_WORK, SUSPENDED, *TERMINAL),
    SUCCEEDED: (),
    FAILED: (),
}


def state_of(conditions: Sequence[Plain]) -> str:
    """Return the state that the conditions show; empty for a job that nobody has seen."""
    for terminal in TERMINAL:  # whatever else was written beside it
        if any(condition["type"] == terminal and condition["status"] == "True" for condition in conditions):
            return terminal
    shown = [condition["type"] for condition in conditions if condition["status"] == "True"]
    return shown[-1] if shown and shown[-1] in STATES else ""


def has_been(conditions: Sequence[Plain], state: str) -> bool:
    """Tell whether the job has ever been in a state."""
    return any(condition["type"] == state for condition in conditions)


def since_s(conditions: Sequence[Plain], state: str) -> float | None:
    """Return since when the job is in a state; None for one that it is not in."""
    if state_of(conditions) != state:
        return None
    return next(seconds(one["lastTransitionTime"]) for one in conditions if one["type"] == state)


def needs_created(conditions: Sequence[Plain], state: str) -> bool:
    """Tell whether the job has to have been Created before it is in this state, and was not."""
    return state not in (CREATED, INVALID, SUSPENDED) and not has_been(conditions, CREATED)


def enter(conditions: Sequence[Plain], state: str, reason: str, message: str, now_s: float) -> list[Json]:
    """Return the conditions of a job that is in `state` now. Nothing changes, times included, when all is as before.

    Raises:
        InvalidTransition: The machine has no such step; nobody leaves Succeeded or Failed.
    """
    before = state_of(conditions)
    is_led = state == before or state in TRANSITIONS[before]
    if not is_led or needs_created(conditions, state):
        raise InvalidTransition(before or "unseen", state)
    now = stamp(now_s)
    kept = [dict(condition) for condition in conditions if condition["type"] != state]
    for condition in kept:
        if condition["type"] != CREATED and condition["status"] != "False":
            condition |= {"status": "False", "lastTransitionTime": now, "lastUpdateTime": now}
    old = next((condition for condition in conditions if condition["type"] == state), {})
    entered = {
        "type": state,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": old["lastTransitionTime"] if old.get("status") == "True" else now,
        "lastUpdateTime": now,
    }
    is_same = all(old.get(name) == entered[name] for name in ("status", "reason", "message"))
    return [*kept, dict(old) if is_same else entered]
