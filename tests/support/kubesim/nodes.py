"""A scheduler with capacity, and kubelets: start delays, restarts in place, evictions, nodes that fall silent or go."""

from __future__ import annotations

from random import Random
from typing import Any

from kubesim.server import Server
from kubesim.timeline import Timeline
from planaria.kube.times import stamp

Json = dict[str, Any]
_RESTART_S = 2.0


class Container:
    """A trainer that runs. It lives on its node, whatever the API server believes."""

    def __init__(self, pod: Json, started_s: float) -> None:
        self.name, self.uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        self.labels = pod["metadata"]["labels"]
        self.node, self.policy = pod["spec"]["nodeName"], pod["spec"]["restartPolicy"]
        self.started_s = started_s
        self.is_drained = False

    @property
    def is_worker(self) -> bool:
        return self.labels["replica-type"] == "worker"


class Nodes:
    """All nodes, each with room for so many pods."""

    def __init__(self, server: Server, time: Timeline, rng: Random, rooms: dict[str, int]) -> None:
        self.server, self.time, self.rng = server, time, rng
        self.running: dict[str, Container] = {}  # by uid of the pod
        self.silent: set[str] = set()
        self.lost: set[str] = set()  # uids of pods whose containers went with their machine: nobody heard them go
        self.unheard: dict[str, tuple[Container, int]] = {}  # ended while its kubelet was silent
        self.drain_s = 3.0
        for name, room in rooms.items():
            self.add(name, room)
        server.watchers.append(self._heard)

    def add(self, name: str, room: int) -> None:
        ready = {"type": "Ready", "status": "True"}
        status = {"allocatable": {"nvidia.com/gpu": str(room)}, "conditions": [ready]}
        self.server.create("Node", {"metadata": {"name": name}, "status": status})
        self.time.after(0.1, self._schedule_all)

    def resize(self, name: str, room: int) -> None:
        self.server.edit("Node", name, lambda node: node["status"]["allocatable"].update({"nvidia.com/gpu": str(room)}))
        self.time.after(0.1, self._schedule_all)

    # What can happen to nodes and pods.

    def fall_silent(self, name: str) -> None:
        """The kubelet dies: containers run on; the control plane notices later, and later still wants the pods gone."""
        self.silent.add(name)
        self.time.after(10.0, lambda: self._ready(name, is_ready=False))
        self.time.after(40.0, lambda: self._evict_silent(name))

    def speak_again(self, name: str) -> None:
        self.silent.discard(name)
        self._ready(name, is_ready=True)
        for pod in self.server.list("Pod"):
            if pod["spec"].get("nodeName") == name:
                self._catch_up(pod)
        for uid, container in list(self.running.items()):
            if container.node == name and not self._is_there(container):
                del self.running[uid]

    def _catch_up(self, pod: Json) -> None:
        """The kubelet is back: it reports what ended meanwhile, and does what it was asked to."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if "deletionTimestamp" in pod["metadata"]:
            self._drain(pod)
        elif uid in self.unheard:
            container, status = self.unheard.pop(uid)
            self.running[uid] = container
            self.end(container, status)
        elif uid not in self.running:
            self.time.after(1.0, lambda: self._start(name, uid))

    def vanish(self, name: str) -> None:
        """The machine is gone, with its containers, its Node and its pods."""
        self.silent.discard(name)
        self._lose(name)
        self.server.remove("Node", name)
        for pod in self.server.list("Pod"):
            if pod["spec"].get("nodeName") == name:
                self.server.remove("Pod", pod["metadata"]["name"])

    def power_off(self, name: str) -> None:
        """The machine is off, with its containers; its Node and its pods are still there."""
        self._lose(name)
        self.fall_silent(name)

    def _lose(self, name: str) -> None:
        for uid in [uid for uid, container in self.running.items() if container.node == name]:
            self.lost.add(uid)
            del self.running[uid]

    def evict(self, name: str) -> None:
        pod = self.server.get("Pod", name)
        if pod is None or pod["metadata"]["uid"] not in self.running or pod["spec"]["nodeName"] in self.silent:
            return
        del self.running[pod["metadata"]["uid"]]
        self._set(name, {"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"})

    def end(self, container: Container, status: int, reason: str = "") -> None:
        """The container's process ends by itself."""
        if self.running.pop(container.uid, None) is None:
            return
        if container.node in self.silent:
            self.unheard[container.uid] = (container, status)
            return
        ended = {
            "exitCode": status,
            "reason": reason or ("Completed" if status == 0 else "Error"),
            "startedAt": stamp(container.started_s),
            "finishedAt": stamp(self.time.now),
        }
        again = container.policy == "Always" or (container.policy == "OnFailure" and status != 0)
        pod = self.server.get("Pod", container.name)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return
        if not again:
            phase = "Succeeded" if status == 0 else "Failed"
            self._set(container.name, {"phase": phase, "containerStatuses": [_trainer({"terminated": ended}, pod)]})
            return
        waiting = {**_trainer({"waiting": {"reason": "CrashLoopBackOff"}}, pod), "lastState": {"terminated": ended}}
        waiting["restartCount"] += 1
        self._set(container.name, {"containerStatuses": [waiting]})
        self.time.after(_RESTART_S, lambda: self._start(container.name, container.uid))

    # What the control plane does.

    def _heard(self, kind: str, name: str) -> None:
        if kind != "Pod":
            return
        pod = self.server.objects.get((kind, name))
        if pod is None or "nodeName" not in pod["spec"]:
            self.time.after(0.2, self._schedule_all)
        elif "deletionTimestamp" in pod["metadata"]:
            self._drain(pod)

    def _schedule_all(self) -> None:
        for pod in self.server.list("Pod"):
            if not pod["spec"].get("nodeName"):
                self._schedule(pod["metadata"]["name"])

    def _schedule(self, name: str) -> None:
        fitting = [node for node in self.server.list("Node") if self._room(node) > 0]
        if not fitting:
            refused = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0 nodes are available",
            }
            self._set(name, {"phase": "Pending", "conditions": [refused]})
            return
        node = self.rng.choice(fitting)["metadata"]["name"]

        def bind(pod: Json) -> None:
            pod["spec"]["nodeName"] = node
            pod["status"] = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}

        self.server.edit("Pod", name, bind)
        pod = self.server.get("Pod", name)
        assert pod is not None
        uid = pod["metadata"]["uid"]
        self.time.after(self.rng.uniform(0.5, 4.0), lambda: self._start(name, uid))

    def _room(self, node: Json) -> int:
        if node["status"]["conditions"][0]["status"] != "True":
            return 0
        name = node["metadata"]["name"]
        used = [
            pod
            for pod in self.server.list("Pod")
            if pod["spec"].get("nodeName") == name
            and (pod.get("status") or {}).get("phase") not in ("Failed", "Succeeded")
        ]
        return int(node["status"]["allocatable"]["nvidia.com/gpu"]) - len(used)

    def _start(self, name: str, uid: str) -> None:
        pod = self.server.get("Pod", name)
        if pod is None or pod["metadata"]["uid"] != uid or "deletionTimestamp" in pod["metadata"]:
            return
        if (
            pod["spec"]["nodeName"] in self.silent
            or pod["status"]["phase"] in ("Failed", "Succeeded")
            or uid in self.running
        ):
            return
        self.running[uid] = Container(pod, self.time.now)
        state = _trainer({"running": {"startedAt": stamp(self.time.now)}}, pod)
        self._set(
            name,
            {"phase": "Running", "containerStatuses": [state], "conditions": [{"type": "Ready", "status": "True"}]},
        )

    def _drain(self, pod: Json) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        container = self.running.get(uid)
        if container is not None and container.is_drained:
            return
        if container is not None and container.node not in self.silent:
            container.is_drained = True
        self.time.after(self.rng.uniform(0.2, self.drain_s), lambda: self._drained(name, uid))

    def _drained(self, name: str, uid: str) -> None:
        pod = self.server.get("Pod", name)
        if pod is None or pod["metadata"]["uid"] != uid or pod["spec"]["nodeName"] in self.silent:
            return
        self.running.pop(uid, None)
        self.server.remove("Pod", name)

    def _ready(self, name: str, *, is_ready: bool) -> None:
        if is_ready != (name in self.silent):
            self.server.edit("Node", name, lambda node: node["status"]["conditions"][0].update(status=str(is_ready)))
            self.time.after(0.1, self._schedule_all)

    def _evict_silent(self, name: str) -> None:
        if name not in self.silent:
            return
        for pod in self.server.list("Pod"):
            if pod["spec"].get("nodeName") == name:
                self.server.delete("Pod", pod["metadata"]["name"])

    def _is_there(self, container: Container) -> bool:
        pod = self.server.get("Pod", container.name)
        return pod is not None and pod["metadata"]["uid"] == container.uid

    def _set(self, name: str, status: Json) -> None:
        self.server.edit("Pod", name, lambda pod: pod.update(status={**(pod.get("status") or {}), **status}))


def _trainer(state: Json, pod: Json) -> Json:
    old = ((pod.get("status") or {}).get("containerStatuses") or [{}])[0]
    kept = {name: old[name] for name in ("lastState",) if name in old}
    return {"name": "pytorch", "state": state, "restartCount": old.get("restartCount", 0), **kept}
