"""A whole life of one elastic job, with faults, and what must hold at every moment of it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kubesim.hands import Operator
from kubesim.nodes import Nodes
from kubesim.server import Json, Server
from kubesim.timeline import Timeline
from kubesim.training import Run
from planaria.kube.model import Delete
from planaria.kube.names import JOB_KIND

NAME = "resnet"


def elastic_job(least: int = 1, most: int = 3, start: int = 1, **policy: object) -> Json:
    """Return a job that searches its size quickly."""
    quick = {"cooldownSeconds": 5, "windowSamples": 3, "warmUpSamples": 1, "pendingGraceSeconds": 5, "retrySeconds": 20}
    asks = {"limits": {"nvidia.com/gpu": 1}}  # what nodes have room for
    template = {
        "spec": {"containers": [{"name": "pytorch", "image": "trainer", "args": ["main.py"], "resources": asks}]}
    }
    return {
        "apiVersion": "training.kubedl.io/v1alpha1",
        "kind": JOB_KIND,
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": {
            "enableElastic": True,
            "elasticPolicy": {"minReplicas": least, "maxReplicas": most, **quick, **policy},
            "pytorchReplicaSpecs": {"Worker": {"replicas": start, "restartPolicy": "OnFailure", "template": template}},
        },
    }


class Life:
    """A cluster, a job, a run and an operator."""

    def __init__(
        self, seed: int, job: Json, rooms: dict[str, int], *, work: float = 300.0, rate: Callable[[int], float] = float
    ) -> None:
        self.rng = Random(seed)
        self.time = Timeline()
        self.server = Server(lambda: self.time.now)
        self.nodes = Nodes(self.server, self.time, self.rng, rooms)
        policy = job["spec"]["elasticPolicy"]
        self.bounds = (policy["minReplicas"], policy["maxReplicas"])
        self.server.create(JOB_KIND, job)
        self.run = Run(self.nodes, self.time, self.bounds, work, rate)
        self.run.job = NAME
        self.operator = Operator(self.server, self.time, self.rng, NAME, self.run)
        self.operator.deleting = self._deleting
        self.states: list[str] = []
        self.targets: list[int] = []
        self.server.watchers.append(self._changed)

    @property
    def job(self) -> Json:
        found = self.server.get(JOB_KIND, NAME)
        assert found is not None
        return found

    @property
    def status(self) -> Json:
        return self.job.get("status") or {}

    @property
    def is_over(self) -> bool:
        return bool(self.states) and self.states[-1] in ("Succeeded", "Failed")

    def go(self, seconds: float) -> Life:
        self.time.run_until(self.time.now + seconds)
        return self

    def go_until_over(self, seconds: float = 3000.0) -> Life:
        self.time.run_until(self.time.now + seconds, lambda: self.is_over)
        assert self.is_over, f"still {self.states[-1:]}: {self.status}"
        self.server.edit(JOB_KIND, NAME, lambda job: job["spec"].update(suspend=True))  # too late: it is over
        return self.go(30.0)

    def pods(self) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in self.server.list("Pod"))

    def end_state(self) -> Json:
        """Return what an end is compared by: everything but times, counters and uids."""
        block = {name: value for name, value in self.status["elasticScaling"]["Worker"].items() if name != "startTime"}
        figures = [figure[:2] for figure in self.status["scaling"]["figures"]]
        kinds = sorted(key for key in self.server.objects if key[0] != "Pod")
        return {"state": self.states[-1], "block": block, "figures": figures, "objects": kinds, "pods": self.pods()}

    # What must hold at every moment.

    def _changed(self, kind: str, _name: str) -> None:
        if kind == JOB_KIND and (JOB_KIND, NAME) in self.server.objects:
            self._check_status()
        if kind == "Pod":
            self._check_pods()

    def _check_status(self) -> None:
        status = self.server.objects[JOB_KIND, NAME].get("status") or {}
        state = status.get("state")
        if state is not None and (not self.states or self.states[-1] != state):
            assert not self.is_over, f"{self.states[-1]} became {state}"
            self.states.append(state)
        target = status.get("targetReplicas")
        if target is not None and (not self.targets or self.targets[-1] != target):
            assert self.bounds[0] <= target <= self.bounds[1], target
            self.targets.append(target)
        assert not self.targets or status.get("scaling"), "the evidence is lost"

    def _check_pods(self) -> None:
        workers = [pod for (kind, _), pod in self.server.objects.items() if kind == "Pod"]
        staying = [pod for pod in workers if "deletionTimestamp" not in pod["metadata"] and _phase(pod) != "Failed"]
        assert len(staying) <= self.bounds[1], [pod["metadata"]["name"] for pod in staying]
        alive = [container.name for container in self.nodes.running.values()]
        assert len(alive) == len(set(alive)), f"two containers of one name: {sorted(alive)}"

    def _deleting(self, action: Delete) -> None:
        """The operator deletes a pod only when it is over, when it is one too many, or when the job has no use for any."""
        pod = self.server.objects.get((action.kind, action.name))
        if action.kind != "Pod" or pod is None or pod["metadata"]["uid"] != action.uid:
            return
        job = self.server.objects[JOB_KIND, NAME]
        if job["status"]["state"] in ("Succeeded", "Failed", "Suspended") or _phase(pod) in ("Failed", "Succeeded"):
            return
        live = [
            other
            for (kind, _), other in self.server.objects.items()
            if kind == "Pod"
            and "deletionTimestamp" not in other["metadata"]
            and _phase(other) not in ("Failed", "Succeeded")
        ]
        assert len(live) > job["status"]["targetReplicas"], f"{action.name} was a survivor"
        if _is_running(pod):
            idle = [other["metadata"]["name"] for other in live if not _is_running(other)]
            assert not idle, f"{action.name} runs, {idle} do not"


def _phase(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def _is_running(pod: Json) -> bool:
    states = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return "running" in (states[0].get("state") or {})
