"""The operator's loop around `decide`: read, decide, write the status, act; killed at any call, woken late or twice."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random
from typing import TypeVar

from kubesim.server import Conflict, Server
from kubesim.timeline import Timeline
from kubesim.training import Run
from planaria.base.value import replace
from planaria.kube import burial, capacity
from planaria.kube.model import Bury, Create, Decision, Delete, Now
from planaria.kube.names import JOB_KIND, Names
from planaria.kube.plan import decide
from planaria.kube.seen import Metrics, has_ended, job_seen, world_seen

_OTHERS = ("ServiceAccount", "Role", "RoleBinding", "Secret", "ConfigMap", "Lease", "Service")
_AWAY_S = 5.0
_AGAIN_S = 1.0  # after a conflict
_SAMPLES_S = 10.0

T = TypeVar("T")


class Killed(Exception):
    """The operator's process is no more."""


class Operator:
    """One process after another that looks after one job."""

    def __init__(self, server: Server, time: Timeline, rng: Random, job: str, run: Run | None = None) -> None:
        self.server, self.time, self.rng, self.job, self.run = server, time, rng, job, run
        self.calls = 0
        self.kill_at: set[int] = set()
        self.conflict_at: set[int] = set()
        self.on_delete: Callable[[Delete], None] = lambda _: None
        self.decisions: list[Decision] = []
        self.events: list[str] = []
        self._heard_until = 0  # samples that this process has written down
        self._born_s = time.now
        self._is_alive, self._due_s = True, inf
        server.watchers.append(lambda kind, _name: self._woken(kind))
        self._wake(0.0)

    def _woken(self, kind: str) -> None:
        if kind in ("Pod", "Node", JOB_KIND, *_OTHERS):
            late = self.rng.random()
            self._wake(self.rng.uniform(0.0, 5.0) if late < 0.05 else self.rng.uniform(0.0, 0.2))
            if late > 0.9:  # told twice
                self.time.after(self.rng.uniform(0.0, 2.0), lambda: self._wake(0.0))

    def _wake(self, seconds: float) -> None:
        """Look after so many seconds, unless it looks before."""
        due_s = self.time.now + seconds
        if due_s < self._due_s:
            self._due_s = due_s
            self.time.after(seconds, lambda: self._turn(due_s))

    def _turn(self, due_s: float) -> None:
        if due_s != self._due_s or not self._is_alive:
            return
        self._due_s = inf
        try:
            wake = self._reconcile()
        except Conflict:
            wake = _AGAIN_S
        except Killed:
            self._is_alive, self._due_s = False, inf
            self.time.after(_AWAY_S, self._restart)
            return
        if wake is not None:
            self._wake(wake + 0.01)

    def _restart(self) -> None:
        self._is_alive, self._due_s = True, inf
        self._born_s = self.time.now
        self._heard_until = 0 if self.run is None else len(self.run.samples)
        self._wake(0.0)

    def _reconcile(self) -> float | None:
        obj = self._call(
            lambda: self.server.get(JOB_KIND, self.job)
        )  # all reads are one call: nothing happens in between
        if obj is None:
            return None
        job = job_seen(obj)
        pods, nodes = self.server.list("Pod"), self.server.list("Node")
        others = [(kind, other) for kind in _OTHERS for other in self.server.list(kind)]
        until = 0 if self.run is None else len(self.run.samples)
        samples = () if self.run is None else tuple(self.run.samples[self._heard_until : until])
        world = world_seen(
            job,
            pods,
            others,
            nodes=nodes,
            free=capacity.free(nodes, pods),
            metrics=Metrics(samples, watched_s=self.time.now - self._born_s),
        )
        newest = burial.round_seen(self.server.get("ConfigMap", Names(self.job).run) or {}, job.uid)
        world = replace(world, round=newest)
        decision = decide(job, world, Now(self.time.now, "token"))
        self.decisions.append(decision)
        if decision.status != obj.get("status"):
            version = obj["metadata"]["resourceVersion"]
            self._call(lambda: self.server.write_status(JOB_KIND, self.job, decision.status, version))
        self._heard_until = until
        self.events += [f"{event.reason}: {event.message}" for event in decision.events]
        for action in decision.actions:
            self._perform(action)
        if self.run is None or self.run.is_finished:
            return decision.wake_after_s
        return min(_SAMPLES_S, decision.wake_after_s or _SAMPLES_S)  # samples wake it too

    def _perform(self, action: Create | Delete | Bury) -> None:
        try:
            match action:
                case Create():
                    self._call(lambda: self.server.create(action.kind, action.body))
                case Delete():
                    self._call(lambda: self._delete(action))
                case Bury():
                    self._call(lambda: self._bury(action))
        except Conflict:
            pass  # as good: the next look says what is there

    def _delete(self, action: Delete) -> None:
        self.on_delete(action)
        self.server.delete(action.kind, action.name, action.uid)

    def _bury(self, action: Bury) -> None:
        living = [pod["metadata"]["uid"] for pod in self.server.list("Pod") if not has_ended(pod)]
        dead = burial.gone(action.nodes, living)
        job = self.server.get(JOB_KIND, self.job)
        if job is not None and dead:
            uid = job["metadata"]["uid"]
            self.server.edit(
                "ConfigMap", Names(self.job).run, lambda found: found.update(burial.noted(found, uid, dead))
            )

    def _call(self, call: Callable[[], T]) -> T:
        index = self.calls
        self.calls += 1
        if index in self.kill_at:
            raise Killed
        if index in self.conflict_at:
            self.server.edit(
                JOB_KIND, self.job, lambda job: job["metadata"].setdefault("labels", {}).update(touched=str(index))
            )
        return call()
