"""A PyTorchJob on a cluster of tests, whose workers write down each step that they make (`kube_steps`).

job = TrainingJob(place, "resnet")
job.create(["/workspace/examples/numpy/main.py"], replicas=3)
before = job.look()
...
job.wait_for_world(before.round)
job.assert_no_step_lost(before)
"""

from __future__ import annotations

import contextlib
import itertools
import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import kube_images
import kube_steps
from kube_client import Refused
from kube_steps import Steps
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kube_cluster import Cluster
    from kube_steps import World

PATIENCE_S = 120.0
API = "training.kubedl.io/v1alpha1"


class Place:
    """A namespace with scripts, which pods see in /job."""

    def __init__(self, cluster: Cluster, scripts: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.namespace = f"weather-{secrets.token_hex(3)}"
        self.core = f"/api/v1/namespaces/{self.namespace}"
        cluster.kubectl("create", "namespace", self.namespace)
        files = {"train.py": kube_steps.PROGRAM, **scripts}
        self.kubectl("create", "configmap", "script", *(f"--from-literal={name}={files[name]}" for name in files))

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("-n", self.namespace, *words, stdin=stdin)


class Before(NamedTuple):
    """How a job stood before the weather."""

    round: int
    pods: tuple[str, ...]  # by rank
    lives: dict[str, tuple[str, int]]
    restarts: int
    committed: int  # steps, on disk


class TrainingJob:
    """One job, in the folder of its name."""

    def __init__(self, place: Place, name: str) -> None:
        self.place, self.name = place, name
        self.cluster = place.cluster
        self.steps = Steps(Path(place.cluster.folder, name))
        self._path = f"/apis/{API}/namespaces/{place.namespace}/pytorchjobs/{name}"

    def create(self, args: Sequence[str], replicas: int, *, env: Mapping[str, str] = {}, **fields: Any) -> None:
        """Create it. `fields` are those of the container, but for `spec`, which is the job's."""
        volumes = [
            {"name": "script", "configMap": {"name": "script"}},
            {"name": "shared", "hostPath": {"path": str(self.steps.folder)}},
            {"name": "small", "emptyDir": {"sizeLimit": "1Mi"}},
        ]
        mounts = {"script": "/job", "shared": kube_steps.SEEN_AS, "small": kube_steps.SMALL}
        variables = {"OMP_NUM_THREADS": "1", "PET_SNAPSHOT_DIR": f"{kube_steps.SEEN_AS}/commits", **env}
        spec = fields.pop("spec", {})
        trainer = {
            "name": "pytorch",
            "image": kube_images.PLANARIA,
            "args": [*args],
            "env": [{"name": name, "value": value} for name, value in variables.items()],
            "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
            **fields,
        }
        template = {"spec": {"volumes": volumes, "containers": [trainer]}}
        workers = {"replicas": replicas, "restartPolicy": "OnFailure", "template": template}
        job = {
            "apiVersion": API,
            "kind": "PyTorchJob",
            "metadata": {"name": self.name},
            "spec": {
                "enableElastic": True,
                "elasticPolicy": {"minReplicas": max(1, replicas - 1), "maxReplicas": replicas},
                "pytorchReplicaSpecs": {"Worker": workers},
                **spec,
            },
        }
        self.place.kubectl("create", "-f", "-", stdin=json.dumps(job))

    @property
    def room(self) -> str:
        """Return the resource that nodes tell room for its pods by."""
        return f"planaria.test/{self.name}"

    def give_room(self, node: int, count: int | None) -> None:
        """Let a node have room for so many of its pods; None takes the resource away."""
        amount = {self.room: None if count is None else str(count)}
        status = {"status": {"capacity": amount, "allocatable": amount}}
        self.cluster.client.patch(f"/api/v1/nodes/node{node}/status", status)

    # What is there.

    def change(self, **spec: object) -> None:
        self.cluster.client.patch(self._path, {"spec": spec})

    def found(self) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.client.get(self._path)
        return found

    def status(self) -> dict[str, Any]:
        return self.found().get("status") or {}

    def stands(self, state: str, reason: str) -> str:
        """Return the sentence of its condition if that is it, else nothing."""
        status = self.status()
        condition: dict[str, str] = (status.get("conditions") or [{}])[-1]
        assert condition.get("type") == status.get("state"), "the newest condition is the state"
        is_it = (condition.get("type"), condition.get("reason")) == (state, reason)
        return condition["message"] if is_it else ""

    def wait_to_stand(self, state: str, reason: str) -> str:
        found: str = self.wait(f"{self.name} is {state}, {reason}", lambda: self.stands(state, reason))
        return found

    def pods(self) -> dict[str, dict[str, Any]]:
        found = self.cluster.client.get(f"{self.place.core}/pods?labelSelector=job-name={self.name}")["items"]
        return {one["metadata"]["name"]: one for one in found}

    def on_node(self, node: str) -> str:
        """Return the one pod that is on a node."""
        (found,) = (name for name, pod in self.pods().items() if pod["spec"].get("nodeName") == node)
        return found

    def lives(self) -> dict[str, tuple[str, int]]:
        """Return its pods that are not on their way out: which each is, and how often its container was restarted."""
        return {
            name: (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"])
            for name, pod in self.pods().items()
            if "deletionTimestamp" not in pod["metadata"] and "containerStatuses" in pod["status"]
        }

    def events(self) -> list[tuple[str, str]]:
        found = self.cluster.client.get(f"{self.place.core}/events?fieldSelector=involvedObject.name={self.name}")
        return [(one["reason"], one["message"]) for one in found["items"]]

    def log(self, pod: str) -> str:
        """Return what the pod has said; nothing where its container has not started, or its node does not answer."""
        with contextlib.suppress(Refused):
            return str(self.cluster.client.get(f"{self.place.core}/pods/{pod}/log"))
        return ""

    def wait(self, what: str, is_so: Callable[[], Any]) -> Any:
        """Wait until something is so; what there is instead is told."""
        try:
            return wait_until(is_so, what, PATIENCE_S, 0.1)
        except AssertionError as problem:
            problem.add_note(self._story())
            raise

    def _story(self) -> str:
        """Tell how it stands, in as few lines as say it: what failed elsewhere is read from there alone."""
        status = self.status()
        lines = [f"{self.name}: {status.get('state')}, {json.dumps(status.get('conditions', [])[-1:])}"]
        for name, pod in self.pods().items():
            container = (pod["status"].get("containerStatuses") or [{}])[0]
            facts = pod["metadata"].get("deletionTimestamp"), pod["spec"].get("nodeName"), pod["status"].get("phase")
            lines.append(
                f"{name} of {pod['metadata']['creationTimestamp']}: {facts}, {json.dumps(container.get('state'))}"
            )
            lines += [f"    {line[:200]}" for line in self.log(name).splitlines()[-12:]]
        lines += [f"{reason}: {message[:200]}" for reason, message in self.events()]
        with contextlib.suppress(AssertionError):  # that may be what is told here
            lines += [f"round {number}: {world}" for number, world in [*self.steps.worlds().items()][-4:]]
        return "\n".join(lines)

    # What its workers have written.

    def look(self) -> Before:
        """Return how it stands, when every rank of its newest round has made a step."""
        number, world = self.wait(f"{self.name} trains", self._newest)
        return Before(number, world.pods, self.lives(), self.status()["restarts"], self.steps.committed())

    def _newest(self) -> tuple[int, World] | None:
        number, world = max(self.steps.worlds().items(), default=(0, None))
        return (number, world) if world is not None and world.is_whole else None

    def wait_for_world(self, after: int, *pods: str, size: int = 3) -> World:
        """Wait until a later round trains on so many nodes, these among them."""

        def is_there() -> World | None:
            number, world = self._newest() or (-1, None)
            return world if world and number > after and len(world.pods) == size and {*pods} <= {*world.pods} else None

        found: World = self.wait(f"{pods} of {self.name} train", is_there)
        return found

    def wait_for_steps(self, count: int) -> None:
        """Wait until so many more steps are made."""
        reached = max(world.furthest for world in self.steps.worlds().values()) + count
        self.wait(f"{self.name} trains", lambda: (found := self._newest()) and found[1].last >= reached)

    def assert_no_step_lost(self, before: Before) -> None:
        """See that in each round all ranks stopped at the same step, and that the next one began with the next step."""
        for old, new in self._changes(before):
            assert old.last == old.furthest == new.first - 1, (old, new)

    def assert_no_commit_lost(self, before: Before) -> None:
        """See that every round began behind what was committed, and left no step out."""
        for old, new in self._changes(before):
            assert before.committed <= new.first <= old.furthest + 1, (old, new)

    def _changes(self, before: Before) -> list[tuple[World, World]]:
        rounds = [world for number, world in self.steps.worlds().items() if number >= before.round]
        assert len(rounds) > 1
        return [*itertools.pairwise(rounds)]
