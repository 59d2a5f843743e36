"""The status of a job, as people and the next decision read it. Pure."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.kube import conditions, evidence, memory, restart
from planaria.kube.model import Event
from planaria.kube.names import WORKER, Names
from planaria.kube.times import stamp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from planaria.kube.memory import Look, Memory
    from planaria.kube.model import Json, Plain
    from planaria.kube.scaling_model import ElasticScaling, Verdict
    from planaria.kube.seen import JobSeen

TARGET = "targetReplicas"
_MOST_TOLD = 10  # pods that have failed since the last look
_WARNINGS = frozenset({conditions.RESTARTING, conditions.BELOW_MIN, conditions.INVALID, conditions.FAILED})


class Told(Value):
    """The state a decision found, with its reason and its sentence."""

    state: str
    reason: str
    message: str


def enter(job: JobSeen, told: Told, now_s: float) -> list[Json]:
    """Return the conditions of the job in this state, by way of Created where the machine leads through it."""
    known: list[Json] = [dict(condition) for condition in job.status.get("conditions") or ()]
    before = conditions.state_of(known)
    created = (conditions.CREATED, "JobCreated", f"PyTorchJob {job.name} is created.", now_s)
    if told.state != before and told.state not in conditions.TRANSITIONS[before]:
        known = conditions.enter(known, *created)
    elif conditions.needs_created(known, told.state):  # it was wrong first, and is mended now
        known = conditions.enter([], *created) + known
    return conditions.enter(known, told.state, told.reason, told.message, now_s)


def written(job: JobSeen, told: Told, kept: Memory, now_s: float, **changes: object) -> Json:
    """Return the whole status. `changes` are other fields of it; None takes one away."""
    status: Json = {
        **job.status,
        "observedGeneration": job.generation,
        "state": told.state,
        "conditions": enter(job, told, now_s),
        "restarts": kept.total_restarts,
        "operator": memory.encode(kept),
        "selector": Names(job.name).selector(WORKER),
        **changes,
    }
    if told.state in conditions.TERMINAL:
        status.setdefault("completionTime", stamp(now_s))
    return {name: value for name, value in status.items() if value is not None}


def replica_statuses(kinds: Iterable[str], looks: tuple[Look, ...], before: Plain) -> Json:
    """Count the pods of each kind. `before` has what was counted of pods that are gone by now; it counts on when given."""
    return {kind: _counted([look for look in looks if look.pod.kind == kind], before.get(kind) or {}) for kind in kinds}


def _counted(looks: list[Look], before: Plain) -> Json:
    counted = {
        "active": sum(look.is_live and look.pod.is_running for look in looks),
        "succeeded": sum(look.judged is not None and look.judged.verdict == restart.FINISHED for look in looks),
        "failed": sum(look.judged is not None and look.judged.verdict != restart.FINISHED for look in looks),
        "evicted": sum(look.pod.reason == "Evicted" for look in looks),
    }
    for name in ("succeeded", "failed", "evicted"):
        counted[name] = max(counted[name], before.get(name, 0))
    return {name: count for name, count in counted.items() if count or name == "active"}


def scaled(verdict: Verdict) -> Json:
    """Return the fields of the status that say how the job is scaled, and why."""
    return {
        TARGET: verdict.target,
        "elasticScaling": {WORKER: _block(verdict.elastic)},
        "scaling": evidence.encode(verdict.evidence),
    }


def _block(elastic: ElasticScaling) -> Json:
    block: Json = {
        "continue": elastic.goes_on,
        "currentReplicas": elastic.current,
        "elasticCondition": elastic.condition,
        "startTime": stamp(elastic.since_s),
    }
    if elastic.last is not None:
        block["lastReplicas"] = elastic.last
    if elastic.message:
        block["message"] = elastic.message
    return block


def events(before: Plain, after: Plain) -> tuple[Event, ...]:
    """Return what is worth telling of a change of the status. Nothing is told twice, since the status is then the same."""
    found = []
    for condition in after["conditions"]:
        told = (condition["type"], condition["reason"], condition["status"])
        if condition["status"] == "True" and told not in {
            (old["type"], old["reason"], old["status"]) for old in before.get("conditions") or ()
        }:
            found.append(Event(condition["reason"], condition["message"], condition["type"] in _WARNINGS))
    found += _failures(before, after)
    block = (after.get("elasticScaling") or {}).get(WORKER)
    old_block = (before.get("elasticScaling") or {}).get(WORKER)
    if block is not None and block != old_block:
        size, message = block["currentReplicas"], block.get("message", "")
        told_size = f"{size} Workers wanted" + (f": {message}" if message else "")
        found.append(Event(f"Scaling{block['elasticCondition']}", told_size))
    return tuple(found)


def _failures(before: Plain, after: Plain) -> list[Event]:
    """Return what happened to pods; of very many the first are enough, since each event is a call of the API server."""
    old, new = ((status.get("operator") or {}).get("attempts") or {} for status in (before, after))
    found = [
        Event(
            "PodTaken" if attempt.get("weather") else "PodFailed", f"{attempt['why']}; it is replaced", is_warning=True
        )
        for name, attempt in new.items()
        if (old.get(name) or {}).get("uid") != attempt["uid"]
    ]
    more = Event("PodsFailed", f"{len(found) - _MOST_TOLD} more pods failed or were taken", is_warning=True)
    return found if len(found) <= _MOST_TOLD else [*found[:_MOST_TOLD], more]


def was_accepted(status: Plain) -> bool:
    """Tell whether an operator has found the job's spec good and begun: what can be tried of it was tried then."""
    known = memory.decode(status.get("operator"))
    return bool(known.fixed) and conditions.state_of(status.get("conditions") or ()) != conditions.INVALID
