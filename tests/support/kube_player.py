"""Kubelets, a scheduler and agents for an API server that has none: pods are bound, run, train and end as they would.

Each namespace is a stage of its own: how much room its node has, and how fast its job trains. Nothing is pretended to the
operator; it sees the objects of a real API server, written by somebody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

from planaria.errors import KubeError
from planaria.kube.api import _Request
from planaria.kube.resources import CONFIG_MAP, NODE, POD, path
from planaria.kube.watching import Copy, Selection, Watcher

if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.kube.api import Api

GPU = "nvidia.com/gpu"
PUSH_S = 0.25  # between two messages of an agent; each says that a minute of training has passed
PUSHED_S = 60.0
NOW = "2022-09-11T12:08:29Z"


class Stage:
    """One namespace with one job. `speed(n)` is what n workers do in a second; None: nobody pushes."""

    def __init__(self, namespace: str, job: str, room: int, speed: Callable[[int], float] | None) -> None:
        self.namespace = namespace
        self.job = job
        self.room = room
        self.speed = speed
        self.is_done = False  # all workers end with status 0
        self.is_silent = False  # its kubelet confirms no end
        self.uids: dict[str, list[str]] = {}  # of every pod there ever was, by its name
        self.most = 0  # the most workers that ran at the same time
        self.round = 0
        self._nodes = 0
        self._totals = (0, 0.0, 0.0)

    @property
    def node(self) -> str:
        return f"node-{self.namespace}"

    def message(self, workers: int) -> str:
        """Return what an agent of so many pushes next."""
        assert self.speed is not None
        if workers != self._nodes:
            self._nodes, self.round = workers, self.round + 1
        step, samples, seconds = self._totals
        self._totals = step + 10, samples + self.speed(workers) * PUSHED_S, seconds + PUSHED_S
        step, samples, seconds = self._totals
        return json.dumps(
            {
                "version": 1,
                "agent": "planaria test",
                "round": self.round,
                "nodes": workers,
                "world": workers,
                "step": step,
                "samples": samples,
                "seconds": seconds,
            }
        )


class Player:
    """Plays all stages on one loop."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._stages: dict[str, Stage] = {}
        self._stirred = asyncio.Event()
        self._pods = Copy(Selection(POD), lambda _old, _new: self._stirred.set())

    async def run(self) -> None:
        """Play until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(Watcher(self._api, self._pods, lambda: 0.5, print).run())
            group.create_task(self._play())
            group.create_task(self._train())

    async def open(self, stage: Stage) -> None:
        """Make the node of a stage, and play it from now on."""
        amount = {GPU: str(stage.room), "pods": "110", "cpu": "64"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": stage.node}}
        await self._api.create(node)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": NOW}
        status = {"status": {"capacity": amount, "allocatable": amount, "conditions": [ready]}}
        await self._api.patch(NODE, "", stage.node, status, "status")
        self._stages[stage.namespace] = stage
        self._stirred.set()

    async def close(self, stage: Stage) -> None:
        """Take a stage away with its node and all of its pods."""
        self._stages.pop(stage.namespace, None)
        for pod in self._pods:
            meta = pod["metadata"]
            if meta["namespace"] == stage.namespace:
                await self._api.delete(POD, meta["namespace"], meta["name"], grace_s=0)
        await self._api.delete(NODE, "", stage.node)

    async def give_room(self, stage: Stage, room: int) -> None:
        """Let the node of a stage have room for so many workers."""
        amount = {GPU: str(room)}
        await self._api.patch(NODE, "", stage.node, {"status": {"capacity": amount, "allocatable": amount}}, "status")
        stage.room = room
        self._stirred.set()

    async def fall_silent(self, stage: Stage) -> None:
        """Let nothing be heard any more of the kubelet of a stage: it confirms no end of a pod, though it still begins some."""
        stage.is_silent = True
        unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "lastHeartbeatTime": NOW}
        await self._api.patch(NODE, "", stage.node, {"status": {"conditions": [unknown]}}, "status")

    async def finish(self, stage: Stage) -> None:
        """Let the training come to its end."""
        stage.is_done = True
        self._stirred.set()

    async def fail(self, stage: Stage, name: str, status: int) -> None:
        """Let the trainer of a pod end with a status, and nobody start it again."""
        ended = {"terminated": {"exitCode": status, "reason": "Error", "startedAt": NOW, "finishedAt": NOW}}
        for pod in self._of(stage):
            if pod["metadata"]["name"] == name:
                await self._status(pod, {"phase": "Failed", "containerStatuses": [_container(pod, ended)]})

    def workers(self, stage: Stage) -> list[str]:
        """Return the names of the job's workers that run."""
        return sorted(
            pod["metadata"]["name"]
            for pod in self._of(stage)
            if _is_worker(pod) and _phase(pod) == "Running" and pod["metadata"]["labels"]["job-name"] == stage.job
        )

    def _of(self, stage: Stage) -> list[dict[str, Any]]:
        return [pod for pod in self._pods if pod["metadata"]["namespace"] == stage.namespace]

    async def _play(self) -> None:
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            for stage in list(self._stages.values()):
                for pod in self._of(stage):
                    with contextlib.suppress(KubeError):  # somebody was faster: the watch tells
                        await self._act(stage, pod)
                stage.most = max(stage.most, len(self.workers(stage)))

    async def _act(self, stage: Stage, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        known = stage.uids.setdefault(meta["name"], [])
        if meta["uid"] not in known:
            known.append(meta["uid"])
        if "deletionTimestamp" in meta and stage.is_silent:
            return
        if "deletionTimestamp" in meta:
            await self._api.delete(POD, meta["namespace"], meta["name"], uid=meta["uid"], grace_s=0)
            self._pods.gone((meta["namespace"], meta["name"]), meta["uid"])
        elif not pod["spec"].get("nodeName"):
            await self._schedule(stage, pod)
        elif _phase(pod) == "Pending":
            running = {"phase": "Running", "containerStatuses": [_container(pod, {"running": {"startedAt": NOW}})]}
            await self._status(pod, running | {"conditions": [{"type": "Ready", "status": "True"}]})
        elif _phase(pod) == "Running" and stage.is_done and _is_worker(pod):
            ended = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": NOW, "finishedAt": NOW}}
            await self._status(pod, {"phase": "Succeeded", "containerStatuses": [_container(pod, ended)]})

    async def _schedule(self, stage: Stage, pod: dict[str, Any]) -> None:
        bound = [other for other in self._of(stage) if other["spec"].get("nodeName") and _is_worker(other)]
        if _is_worker(pod) and len(bound) >= stage.room:
            if not (pod.get("status") or {}).get("conditions"):
                message = f"0/1 nodes are available: 1 Insufficient {GPU}."
                refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
                await self._status(pod, {"conditions": [refused]})
            return
        meta = pod["metadata"]
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": stage.node},
        }
        where = path(POD, meta["namespace"], meta["name"], "binding")
        await self._api._json(_Request("POST", where, body=binding))

    async def _status(self, pod: dict[str, Any], status: dict[str, Any]) -> None:
        meta = pod["metadata"]
        self._pods.wrote(await self._api.patch(POD, meta["namespace"], meta["name"], {"status": status}, "status"))

    async def _train(self) -> None:
        while True:
            await asyncio.sleep(PUSH_S)  # time passes: that is what is played
            for stage in list(self._stages.values()):
                workers = len(self.workers(stage))
                if stage.speed is not None and workers and not stage.is_done:
                    data = {"data": {"progress": stage.message(workers)}}
                    with contextlib.suppress(KubeError):  # not made yet
                        await self._api.patch(CONFIG_MAP, stage.namespace, f"{stage.job}-progress", data)


def _is_worker(pod: dict[str, Any]) -> bool:
    return (pod["metadata"].get("labels") or {}).get("replica-type") == "worker"


def _phase(pod: dict[str, Any]) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def _container(pod: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    first = pod["spec"]["containers"][0]
    return {
        "name": first["name"],
        "image": first["image"],
        "imageID": "",
        "ready": "running" in state,
        "restartCount": 0,
        "state": state,
    }
