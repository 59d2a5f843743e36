"""What the operator knows of the cluster: a copy of each kind it watches, and what it met by itself.

Leases are not watched, since the agents of every job renew theirs; Secrets are not, since nobody should read them. Of both it
is enough to know that a job has its own, which the answer to making one says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from planaria.base.value import replace
from planaria.contract import glimpse, progress
from planaria.kube import capacity, names
from planaria.kube.burial import RoundSeen, round_seen
from planaria.kube.names import Names
from planaria.kube.resources import (
    CONFIG_MAP,
    JOB,
    LEASE,
    NODE,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)
from planaria.kube.seen import JobSeen, Metrics, World, owner_of, world_seen
from planaria.kube.watching import Copy, Selection, key_of, trimmed

if TYPE_CHECKING:
    from planaria.kube.model import Json
    from planaria.kube.resources import Kind
    from planaria.kube.watching import Key

LABELS = f"{names.GROUP_LABEL}={names.GROUP}"
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_PLAIN = (SERVICE, SERVICE_ACCOUNT, ROLE, ROLE_BINDING)  # of these only names and owners matter
_ROUND = "round"  # what is kept of a store's ConfigMap
WITH_EVENTS = progress.KEY, glimpse.KEY
_UNWATCHED = (LEASE.name, SECRET.name)
_FOREIGN_S = 5.0  # until another look at an object that is in the way
_KNOWN_S = 1800.0  # until it is made sure that what is not watched is still there, by making it again
_DOUBT_S = 60.0  # until the same of a Lease while Workers run and are not ready: theirs may have been deleted


class Books:
    """All copies, of a few namespaces or of all.

    `wake(key)` is called for a job whenever anything of it changes, and `renewed(key)` for another spec. `clock` gives seconds
    that only grow. `entries` of what agents push are kept.
    """

    def __init__(
        self,
        wake: Callable[[Key], object],
        namespaces: tuple[str, ...] = (),
        renewed: Callable[[Key], object] = lambda _key: None,
        clock: Callable[[], float] = time.monotonic,
        entries: tuple[str, ...] = WITH_EVENTS,
    ) -> None:
        self.clock = clock
        self._wake = wake
        self._renewed = renewed
        where = namespaces or ("",)
        self.jobs = Copy(Selection(JOB, where), self._job_changed, _job)
        self.pods = Copy(Selection(POD, where, LABELS), self._part_changed, _pod)
        self.config_maps = Copy(
            Selection(CONFIG_MAP, where, LABELS), self._config_map_changed, partial(_config_map, entries)
        )
        self._plain = {
            kind.name: Copy(Selection(kind, where, LABELS, metadata=True), self._part_changed, _metadata)
            for kind in _PLAIN
        }
        self.nodes: Copy | None = Copy(Selection(NODE), self._node_changed, _node)  # None: nobody may look at them
        self._met: dict[Key, dict[tuple[str, str], tuple[Json, float]]] = {}
        self._left: capacity.Left | None = None
        self._is_left_stale = True

    @property
    def copies(self) -> Iterator[Copy]:
        """Return every copy there is to keep."""
        yield from (self.jobs, self.pods, self.config_maps, *self._plain.values())
        if self.nodes is not None:
            yield self.nodes

    @property
    def is_synced(self) -> bool:
        """Tell whether everything was listed once."""
        return all(copy.is_synced.is_set() for copy in self.copies)

    def world(self, job: JobSeen, metrics: Metrics) -> World:
        """Return what surrounds a job."""
        key = job.namespace, job.name
        secret = Names(job.name).token_of(job.uid)
        if any(_lacks(pod, secret) for pod in self.pods.of_job(key)):
            self._met.get(key, {}).pop((SECRET.name, secret), None)
        if any(_is_unready(pod) for pod in self.pods.of_job(key)):
            self._doubt(key, (LEASE.name, Names(job.name).run))
        known = [("ConfigMap", obj) for obj in self.config_maps.of_job(key)]
        known += [(kind, obj) for kind, copy in self._plain.items() for obj in copy.of_job(key)]
        met = [(kind, obj) for (kind, _), obj in self._met_of(key).items()]
        pods = [*self.pods.of_job(key), *(obj for kind, obj in met if kind == POD.name)]
        known += [(kind, obj) for kind, obj in met if kind != POD.name]
        run = self.config_maps.get((job.namespace, Names(job.name).run)) or {}
        newest = run.get(_ROUND, RoundSeen())
        free = None if self._left is None else self._left.beside(job.uid)
        world = world_seen(job, pods, known, nodes=self.nodes, free=free, metrics=metrics)
        return replace(world, round=newest)

    def progress(self, key: Key) -> str:
        """Return what the agents of a job pushed last."""
        return self._entry(key, progress.KEY)

    def glimpse(self, key: Key) -> str:
        """Return what its leading agent lets others see of the run."""
        return self._entry(key, glimpse.KEY)

    def _entry(self, key: Key, name: str) -> str:
        found = self.config_maps.get((key[0], Names(key[1]).progress))
        return str((found or {}).get("data", {}).get(name, ""))

    def wrote(self, kind: Kind, obj: Json) -> None:
        """Take what the server answered to a write of ours."""
        if kind.name in _UNWATCHED:
            self._remember(_key_of_job(obj), kind, obj, self.clock() + _KNOWN_S)
        else:
            self._copy(kind).wrote(obj)

    def met(self, job: Json, kind: Kind, obj: Json) -> None:
        """Take note of an object that was there when we wanted to make it: the job's own, or another's."""
        if owner_of(obj) == job["metadata"]["uid"]:
            self.wrote(kind, obj)
        else:
            key = key_of(job)
            self._remember(key, kind, obj, self.clock() + _FOREIGN_S)

    def gone(self, kind: Kind, key: Key, uid: str) -> None:
        """Take note that an object is not there any more."""
        if kind.name not in _UNWATCHED:
            self._copy(kind).gone(key, uid)

    def forget(self, key: Key) -> None:
        """Forget what was met of a job that is no more."""
        self._met.pop(key, None)

    def measure(self) -> bool:
        """Count anew what the cluster has left beside PyTorchJobs; True if that is more of anything than before.

        Pods of others are not counted: watching all of a cluster's pods is dear. What they free is found by trying.
        """
        if not self._is_left_stale or self.nodes is None:
            return False
        self._is_left_stale = False
        before, self._left = self._left, capacity.left(self.nodes, self.pods)
        return before is not None and capacity.grew(before.free, self._left.free)

    def wake_all(self) -> None:
        """Have every job looked at."""
        for obj in self.jobs:
            self._wake(key_of(obj))

    def _copy(self, kind: Kind) -> Copy:
        return {JOB.name: self.jobs, POD.name: self.pods, CONFIG_MAP.name: self.config_maps, **self._plain}[kind.name]

    def _remember(self, job: Key, kind: Kind, obj: Json, until: float) -> None:
        self._met.setdefault(job, {})[kind.name, obj["metadata"]["name"]] = _metadata(obj), until

    def _doubt(self, job: Key, place: tuple[str, str]) -> None:
        """Forget what is not watched, unless it was there a moment ago; whoever wants it makes it, or meets it again.

        Another's, which is looked at again every few seconds, stays known until then.
        """
        _, until = self._met.get(job, {}).get(place, ({}, 0.0))
        if _FOREIGN_S < until - self.clock() < _KNOWN_S - _DOUBT_S:
            del self._met[job][place]

    def _met_of(self, key: Key) -> dict[tuple[str, str], Json]:
        now = self.clock()
        left = {place: (obj, until) for place, (obj, until) in self._met.get(key, {}).items() if until > now}
        if left:
            self._met[key] = left
        return {place: obj for place, (obj, _) in left.items()}

    def _job_changed(self, old: Json | None, new: Json | None) -> None:
        obj = new or old
        assert obj is not None
        key = key_of(obj)
        if _edition(old) != _edition(new):
            self._renewed(key)
        self._wake(key)

    def _part_changed(self, old: Json | None, new: Json | None) -> None:
        self._is_left_stale = True
        for obj in (old, new):
            name = ((obj or {}).get("metadata", {}).get("labels") or {}).get(names.JOB_LABEL)
            if obj is not None and name:
                self._wake((obj["metadata"]["namespace"], name))

    def _config_map_changed(self, old: Json | None, new: Json | None) -> None:
        if _told(old) != _told(new):  # a rendezvous changes with every word of the agents, and says nothing to us
            self._part_changed(old, new)

    def _node_changed(self, old: Json | None, new: Json | None) -> None:
        if old is None or new is None or _room(old) != _room(new):
            self._is_left_stale = True
            self.wake_all()


def _room(node: Json) -> tuple[object, object]:
    return node.get("spec"), node.get("status")


def _edition(job: Json | None) -> tuple[object, object] | None:
    return None if job is None else (job["metadata"].get("uid"), job["metadata"].get("generation"))


def _told(config_map: Json | None) -> Json | None:
    """Return what a ConfigMap says, whichever version it is."""
    if config_map is None:
        return None
    meta = {key: value for key, value in config_map["metadata"].items() if key != "resourceVersion"}
    return {**config_map, "metadata": meta}


def _lacks(pod: Json, secret: str) -> bool:
    """Tell whether the kubelet says that a pod's Secret is not there: somebody deleted it."""
    waiting = [
        (one.get("state") or {}).get("waiting") or {}
        for one in (pod.get("status") or {}).get("containerStatuses") or ()
    ]
    return any(f'"{secret}" not found' in one.get("message", "") for one in waiting)


def _is_unready(pod: Json) -> bool:
    """Tell whether a container of a pod runs and is not ready, as the agent in it says."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any("running" in (one.get("state") or {}) and not one.get("ready") for one in statuses)


def _key_of_job(obj: Json) -> Key:
    return obj["metadata"]["namespace"], obj["metadata"]["labels"][names.JOB_LABEL]


def _metadata(obj: Json) -> Json:
    return {"metadata": trimmed(obj)["metadata"]}


def _job(obj: Json) -> Json:
    """Keep a job without kubectl's copy of it. Writes of its status leave all but the status as it is."""
    (obj["metadata"].get("annotations") or {}).pop(_APPLIED, None)
    return trimmed(obj)


def _pod(obj: Json) -> Json:
    """Keep what a decision reads of a pod."""
    spec = obj.get("spec") or {}
    containers = [
        {"name": one["name"], "resources": one.get("resources") or {}} for one in spec.get("containers") or ()
    ]
    kept = {key: spec[key] for key in ("nodeName", "terminationGracePeriodSeconds") if key in spec}
    inits = [
        {"name": one["name"], "restartPolicy": one.get("restartPolicy", "")} for one in spec.get("initContainers") or ()
    ]
    return trimmed(obj) | {"spec": kept | {"containers": containers} | ({"initContainers": inits} if inits else {})}


def _config_map(entries: tuple[str, ...], obj: Json) -> Json:
    """Keep of the ConfigMaps these entries, and of the rendezvous who is in the newest round; the rest is the agents' own."""
    data = obj.get("data") or {}
    kept = {key: data[key] for key in entries if key in data}
    if len(kept.get(glimpse.KEY, "")) > glimpse.LONGEST:  # an agent's is not
        del kept[glimpse.KEY]
    return {
        "metadata": trimmed(obj)["metadata"],
        "data": kept,
        _ROUND: round_seen(obj, owner_of(obj) or ""),
    }


def _node(obj: Json) -> Json:
    """Keep whether a node takes pods, and what it has for them: its heartbeats change nothing else."""
    status = obj.get("status") or {}
    ready = [
        {"type": one["type"], "status": one["status"]}
        for one in status.get("conditions") or ()
        if one.get("type") == "Ready"
    ]
    return {
        "metadata": {key: obj["metadata"].get(key, "") for key in ("name", "uid", "resourceVersion")},
        "spec": {"unschedulable": bool((obj.get("spec") or {}).get("unschedulable"))},
        "status": {"conditions": ready, "allocatable": status.get("allocatable") or {}},
    }
