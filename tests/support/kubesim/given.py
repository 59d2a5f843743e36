"""Jobs and pods as tests write them down, and a desk at which decisions about one job are taken and carried out at once."""

from __future__ import annotations

import json
from typing import Any

from planaria.base.value import replace
from planaria.kube.model import Create, Decision, Delete, Now
from planaria.kube.names import MASTER, WORKER, Names
from planaria.kube.plan import decide
from planaria.kube.scaling_model import Sample
from planaria.kube.seen import Ended, JobSeen, Metrics, PodSeen, World

Json = dict[str, Any]
NAME, UID = "resnet", "0b6f5a1e"


def template(**container: object) -> Json:
    return {
        "spec": {"containers": [{"name": "pytorch", "image": "trainer:1", "args": ["/workspace/main.py"], **container}]}
    }


def elastic_spec(least: int = 1, most: int = 3, start: int = 1, *, master: bool = False, **rest: object) -> Json:
    """Return an elastic job's spec; `policy` has more fields of its policy, `worker` of its Workers."""
    policy = {"minReplicas": least, "maxReplicas": most, **rest.pop("policy", {})}  # type: ignore[dict-item]
    worker = {"replicas": start, "restartPolicy": "OnFailure", "template": template(), **rest.pop("worker", {})}  # type: ignore[dict-item]
    kinds: Json = {WORKER: worker}
    if master:
        kinds = {MASTER: {"replicas": 1, "restartPolicy": "ExitCode", "template": template()}, **kinds}
    return {"enableElastic": True, "elasticPolicy": policy, "pytorchReplicaSpecs": kinds, **rest}


def plain_spec(workers: int = 2, *, master: bool = True, restart: str = "OnFailure", **rest: object) -> Json:
    kinds: Json = {}
    if master:
        kinds[MASTER] = {"restartPolicy": restart, "template": template()}
    if workers:
        kinds[WORKER] = {"replicas": workers, "restartPolicy": restart, "template": template()}
    return {"pytorchReplicaSpecs": kinds, **rest}


class Desk:
    """One job, its pods, and a clock. `look` decides and does it; tests do to the pods what clusters do."""

    def __init__(self, spec: Json, *, name: str = NAME) -> None:
        self.spec, self.name, self.names = spec, name, Names(name)
        self.status: Json = {}
        self.pods: dict[str, PodSeen] = {}
        self.owned: dict[tuple[str, str], str] = {}
        self.now_s = 1_700_000_000.0
        self.generation, self.step = 1, 0
        self.world: Json = {}  # other fields of World
        self.created: list[str] = []  # names of pods, in order
        self.deleted: list[str] = []
        self.job_deleted = False

    @property
    def state(self) -> str:
        return str(self.status["state"])

    @property
    def message(self) -> str:
        return str(self.status["conditions"][-1]["message"])

    @property
    def reason(self) -> str:
        return str(self.status["conditions"][-1]["reason"])

    @property
    def block(self) -> Json:
        return dict(self.status["elasticScaling"][WORKER])

    def decide(self) -> Decision:
        job = JobSeen(self.name, "default", UID, self.generation, False, self.spec, self.status)
        pods = tuple(sorted(self.pods.values(), key=lambda pod: (pod.kind, pod.index)))
        return decide(job, World(pods=pods, owned=self.owned, **self.world), Now(self.now_s, "fresh-token"))

    def look(self, after_s: float = 1.0) -> Decision:
        """Let time pass, decide, write the status and do what follows.

        Deciding again before anything was done gives the same: that is what an operator does that was killed in between.
        """
        self.now_s += after_s
        decision = self.decide()
        self.status = json.loads(json.dumps(decision.status))
        again = self.decide()
        assert again.actions == decision.actions, "killed here, the next one would do something else"
        self._is_settled(again)
        for action in decision.actions:
            self._perform(action)
        return decision

    def _is_settled(self, again: Decision) -> None:
        """The search may take a second step at once, from one rule to the next; then it stands still."""
        before, self.status = self.status, json.loads(json.dumps(again.status))
        assert json.loads(json.dumps(self.decide().status)) == self.status
        self.status = before

    def _perform(self, action: Create | Delete) -> None:
        match action:
            case Create("Pod", name, body):
                labels = body["metadata"]["labels"]
                kind = MASTER if labels["replica-type"] == "master" else WORKER
                self.step += 1
                self.pods[name] = PodSeen(name, f"pod-{self.step}", kind, int(labels["replica-index"]), "Pending")
                self.created.append(name)
            case Create(kind, name):
                self.owned[kind, name] = f"uid-{kind}-{name}"
            case Delete("Pod", name):
                self.deleted.append(name)
                pod = self.pods[name]
                if pod.node and pod.phase not in ("Failed", "Succeeded"):
                    self.pods[name] = replace(pod, is_going=True)
                else:
                    del self.pods[name]
            case Delete("PyTorchJob"):
                self.job_deleted = True
            case Delete(kind, name):
                del self.owned[kind, name]

    # What clusters do.

    def change(self, index: int, kind: str = WORKER, **fields: object) -> None:
        name = self.names.replica(kind, index)
        self.pods[name] = replace(self.pods[name], **fields)

    def run_all(self) -> Desk:
        """Every pod that is not on its way out gets a node and runs."""
        for name, pod in self.pods.items():
            if not pod.is_going and pod.phase not in ("Failed", "Succeeded"):
                self.pods[name] = replace(
                    pod, phase="Running", node="n1", is_running=True, is_ready=True, unschedulable=None, stuck=None
                )
        return self

    def end(self, index: int, status: int, kind: str = WORKER, *, reason: str = "", lived_s: float = 5.0) -> None:
        """The container ends for good, and its pod with it."""
        phase = "Succeeded" if status == 0 else "Failed"
        ended = Ended(status, reason or ("Completed" if status == 0 else "Error"), lived_s=lived_s)
        self.change(index, kind, phase=phase, is_running=False, is_ready=False, ended=ended)

    def vanish(self, index: int, kind: str = WORKER) -> None:
        del self.pods[self.names.replica(kind, index)]

    def settle(self) -> None:
        """Pods on their way out are gone."""
        self.pods = {name: pod for name, pod in self.pods.items() if not pod.is_going}

    def sample(self, size: int, rate: float, count: int = 8) -> None:
        """The next look hears of steps of this throughput."""
        steps = tuple(Sample(size, rate=rate, step=self.step + at) for at in range(count))
        self.step += count
        self.world["metrics"] = Metrics(steps)

    def grow(self, rates: dict[int, float], looks: int = 12) -> list[int]:
        """Let the job search its size: pods run as soon as they are made. Return the targets it had."""
        targets = []
        for _ in range(looks):
            self.look(100.0)
            self.settle()
            self.run_all()
            targets.append(self.status["targetReplicas"])
            size = len([pod for pod in self.pods.values() if pod.kind == WORKER])
            self.sample(size, rates[size])
        return targets


def running(spec: dict[str, object]) -> Desk:
    """Return a job whose pods run."""
    desk = Desk(spec)
    desk.look()
    desk.run_all().look()
    return desk
