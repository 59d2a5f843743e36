"""Objects of the API server, as values that decisions are made from. Pure."""

from __future__ import annotations

from planaria.base.value import Value, replace
from planaria.kube.burial import RoundSeen
from planaria.kube.names import INDEX_LABEL, JOB_LABEL, TYPE_LABEL, replica_kind, trainer_among
from planaria.kube.scaling_model import FOREVER, Sample
from planaria.kube.times import seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from planaria.kube.model import Json, Plain


class JobSeen(Value):
    """A PyTorchJob as it is stored. Read it afresh for every decision: an old status decides old things."""

    name: str
    namespace: str
    uid: str
    generation: int
    is_going: bool  # it is being deleted
    spec: Plain
    status: Plain


class Ended(Value):
    """How a container ended."""

    status: int
    reason: str = ""  # the kubelet's word: Error, OOMKilled, Completed, ...
    message: str = ""
    lived_s: float | None = None  # on the kubelet's own clock
    container: str = ""  # another than the one that trains, which never ran


class PodSeen(Value):
    """A pod of a job."""

    name: str
    uid: str
    kind: str  # Master or Worker
    index: int
    phase: str  # Pending, Running, Succeeded, Failed, Unknown
    is_going: bool = False  # it is being deleted
    node: str = ""
    is_ready: bool = False
    is_running: bool = False  # the trainer's container runs
    ended: Ended | None = (
        None  # the trainer's container has ended, or another before it could start, and is not started again
    )
    last: Ended | None = (
        None  # how it ended before it was started again; an init container, where the trainer never ran
    )
    restarts: int = 0  # by the kubelet, of the trainer and of init containers
    reason: str = ""  # the pod's own: Evicted, NodeLost, Preempting, ...
    message: str = ""
    unschedulable: str | None = None  # what the scheduler says, when it says so
    stuck: str | None = None  # why the container does not start: ImagePullBackOff: ..., CreateContainerConfigError: ...
    grace_s: float = 30.0  # how long its end may take
    has_ended: bool = False  # none of its containers runs or will run again, as its kubelet says
    is_disrupted: bool = False  # the control plane announced that it will take the pod: preemption, eviction, taint


class Metrics(Value):
    """What was gathered of a job's metrics."""

    samples: tuple[Sample, ...] = ()  # new since the last status that was written
    trouble: str = ""  # what is wrong with them, one sentence
    watched_s: float = FOREVER  # for how long this operator process has watched the job


NO_METRICS = Metrics()


class World(Value):
    """Everything around a job that a decision looks at."""

    pods: tuple[PodSeen, ...] = ()
    owned: Mapping[tuple[str, str], str] = {}  # (kind, name) -> uid of the job's other objects
    foreign: frozenset[tuple[str, str]] = frozenset()  # names that the job needs and others have
    lost_nodes: frozenset[str] = frozenset()  # not ready, or gone
    free: Mapping[str, float] | None = None  # what the cluster has beside other jobs, by resource; None: not known
    metrics: Metrics = NO_METRICS
    problems: tuple[str, ...] = ()  # of the spec, found by those who tried something out: a pattern, on its sample line
    untried: str = ""  # why it is not known yet whether there are such problems
    refusals: Mapping[tuple[str, str], str] = {}  # (kind, name) -> what the API server refused to create, and why
    round: RoundSeen = RoundSeen()  # of its run, where the store is Kubernetes


def job_seen(obj: Plain) -> JobSeen:
    """Read a PyTorchJob."""
    meta = obj["metadata"]
    return JobSeen(
        name=meta["name"],
        namespace=meta.get("namespace", "default"),
        uid=meta["uid"],
        generation=meta.get("generation", 1),
        is_going="deletionTimestamp" in meta,
        spec=obj.get("spec") or {},
        status=obj.get("status") or {},
    )


def world_seen(
    job: JobSeen,
    pods: Iterable[Plain],
    objects: Iterable[tuple[str, Plain]] = (),
    *,
    nodes: Iterable[Plain] | None = None,
    free: Mapping[str, float] | None = None,
    metrics: Metrics = NO_METRICS,
) -> World:
    """Read what surrounds a job: pods that bear its label, other objects of its names with their kinds, the cluster's nodes.

    `nodes` None means that nobody may look at them: then no node is known to be lost.
    """
    ours, foreign, owned = [], set(), {}
    for pod in pods:
        seen = pod_seen(pod) if owner_of(pod) == job.uid else None
        if seen is not None:
            ours.append(seen)
        else:
            foreign.add(("Pod", pod["metadata"]["name"]))
    for kind, obj in objects:
        name = obj["metadata"]["name"]
        if owner_of(obj) == job.uid:
            owned[kind, name] = obj["metadata"]["uid"]
        else:
            foreign.add((kind, name))
    return World(
        pods=tuple(sorted(ours, key=lambda pod: (pod.kind, pod.index))),
        owned=owned,
        foreign=frozenset(foreign),
        lost_nodes=lost(nodes, {pod.node for pod in ours if pod.node}),
        free=free,
        metrics=metrics,
    )


def owner_of(obj: Plain) -> str | None:
    """Return the uid of the object's controller."""
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner["uid"])
    return None


def lost(nodes: Iterable[Plain] | None, used: set[str]) -> frozenset[str]:
    """Return which of the used nodes are gone, or no longer heard of by the control plane."""
    if nodes is None:
        return frozenset()
    ready = {node["metadata"]["name"] for node in nodes if _condition(node, "Ready").get("status") == "True"}
    return frozenset(used - ready)


def pod_seen(pod: Plain) -> PodSeen | None:
    """Read a pod; None for one that bears no place in a job."""
    meta, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    labels = meta.get("labels") or {}
    kind, index = replica_kind(labels.get(TYPE_LABEL, "")), labels.get(INDEX_LABEL, "")
    if JOB_LABEL not in labels or kind is None or not index.isdecimal():
        return None
    trainer = _trainer(spec, status)
    state, inits = trainer.get("state") or {}, _inits(spec, status)
    scheduled = _condition(pod, "PodScheduled")
    refused = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    return PodSeen(
        name=meta["name"],
        uid=meta["uid"],
        kind=kind,
        index=int(index),
        phase=status.get("phase", "Pending"),
        is_going="deletionTimestamp" in meta,
        node=spec.get("nodeName", ""),
        is_ready=_condition(pod, "Ready").get("status") == "True",
        is_running="running" in state,
        ended=_ended(state.get("terminated")) or _failed_before(status),
        last=_ended((trainer.get("lastState") or {}).get("terminated")) or _failed_init(inits),
        restarts=trainer.get("restartCount", 0) + sum(init.get("restartCount", 0) for init in inits),
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        unschedulable=(scheduled.get("message") or "no node has room") if refused else None,
        stuck=_stuck(status),
        grace_s=float(meta.get("deletionGracePeriodSeconds") or spec.get("terminationGracePeriodSeconds") or 30),
        has_ended=has_ended(pod),
        is_disrupted=_condition(pod, "DisruptionTarget").get("status") == "True",
    )


def has_ended(pod: Plain) -> bool:
    """Tell whether no container of a pod runs or will run again. A phase alone may be told before the containers have ended."""
    status = pod.get("status") or {}
    states = [one.get("state") or {} for one in status.get("containerStatuses") or ()]
    is_over = status.get("phase") in ("Succeeded", "Failed") and bool(states)
    return is_over and all("terminated" in state for state in states)


def _condition(obj: Plain, kind: str) -> Json:
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") == kind:
            return dict(condition)
    return {}


def _trainer(spec: Plain, status: Plain) -> Json:
    """Return the status of the container that trains; an empty one while there is none."""
    wanted = trainer_among([container["name"] for container in spec.get("containers") or ()])
    for container in status.get("containerStatuses") or ():
        if container.get("name") == wanted:
            return dict(container)
    return {}


def _inits(spec: Plain, status: Plain) -> list[Json]:
    """Return the statuses of the containers that have to end before the trainer starts: sidecars need not."""
    sidecars = {one["name"] for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"}
    return [dict(one) for one in status.get("initContainerStatuses") or () if one.get("name") not in sidecars]


def _failed_init(inits: Iterable[Plain]) -> Ended | None:
    for init in inits:
        ended = _ended((init.get("lastState") or {}).get("terminated"))
        if ended is not None and ended.status != 0:
            return replace(ended, container=init.get("name", ""))
    return None


def _ended(terminated: Plain | None) -> Ended | None:
    if terminated is None:
        return None
    return Ended(
        status=terminated.get("exitCode", 0),
        reason=terminated.get("reason", ""),
        message=terminated.get("message", ""),
        lived_s=_between(terminated.get("startedAt"), terminated.get("finishedAt")),
    )


def _failed_before(status: Plain) -> Ended | None:
    """Return how a pod failed whose trainer never ended: by another container of it, an init container for one."""
    if status.get("phase") != "Failed":
        return None
    for part in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(part) or ():
            ended = _ended((container.get("state") or {}).get("terminated"))
            if ended is not None and ended.status != 0:
                return replace(ended, container=container.get("name", ""))
    return None


def _between(start: str | None, end: str | None) -> float | None:
    if not start or not end:
        return None
    return seconds(end) - seconds(start)


# A container waits for these for a moment in every start; all other reasons mean that something is in its way.
_USUAL_WAITS = frozenset({"ContainerCreating", "PodInitializing"})


def _stuck(status: Plain) -> str | None:
    for part in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(part) or ():
            waiting = (container.get("state") or {}).get("waiting") or {}
            reason = waiting.get("reason", "")
            if reason and reason not in _USUAL_WAITS:
                return f"{reason}: {waiting['message']}" if waiting.get("message") else str(reason)
    return None
