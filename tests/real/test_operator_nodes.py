"""The operator on a real cluster of two nodes: installed there, with its own permissions, and pods that truly train.

A step of the job is dominated by a wait for each sample of a batch that all workers share, so it truly falls with size, on two
cores as well. Its speed is read from what it prints. GPUs are told by the nodes: that is how room is taken and given back.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import TYPE_CHECKING, Any

import kube_images
import pytest
from waiting import wait_until

from planaria.kube.main import operator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kube_cluster import Cluster

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

PATIENCE_S = 120.0
TRAIN = """\
import sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
world = dist.get_world_size()
for step in range(1000000):
    began = time.monotonic()
    time.sleep(0.02 * 24 / min(world, int(sys.argv[1])))
    dist.barrier()
    took = time.monotonic() - began
    print(f"Epoch: [0][{step:4d}/1000000]\\tTime {took:6.3f} ({took:6.3f})\\tData  0.001 ( 0.001)", flush=True)
"""


class Place:
    """A namespace with a job."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.namespace = f"elastic-{secrets.token_hex(3)}"

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl("-n", self.namespace, *words, stdin=stdin)

    def start(self, helps_up_to: int, resources: dict[str, Any]) -> None:
        """Create the job of the tutorial, in a hurry, whose program gains nothing from more than so many workers."""
        self.cluster.kubectl("create", "namespace", self.namespace)
        self.kubectl("create", "configmap", "script", f"--from-literal=train.py={TRAIN}")
        self.kubectl("create", "-f", "-", stdin=json.dumps(job(helps_up_to, resources)))

    def status(self) -> dict[str, Any]:
        return json.loads(self.kubectl("get", "pytorchjob", "resnet", "-o", "json")).get("status") or {}

    def wait_for(self, what: str, **wanted: object) -> dict[str, Any]:
        """Wait until the block of the scaling says all of this."""

        def is_so() -> dict[str, Any] | None:
            block: dict[str, Any] = self.status().get("elasticScaling", {}).get("Worker", {})
            return block if block.items() >= wanted.items() else None

        try:
            found: dict[str, Any] = wait_until(is_so, what, PATIENCE_S, 0.3)
        except AssertionError as problem:
            problem.add_note(self.kubectl("get", "pods,events") + json.dumps(self.status(), indent=1))
            raise
        return found

    def log(self, pod: str) -> str:
        return self.cluster.try_kubectl("-n", self.namespace, "logs", pod, "--tail=50").stdout

    def pods(self) -> dict[str, str]:
        found = json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in found
            if "deletionTimestamp" not in pod["metadata"]
        }


def job(helps_up_to: int, resources: dict[str, Any]) -> dict[str, Any]:
    hasty = {
        "warmUpSamples": 1,
        "windowSamples": 3,
        "cooldownSeconds": 0,
        "pendingGraceSeconds": 3,
        "retrySeconds": 600,
    }
    container = {
        "name": "pytorch",
        "image": kube_images.PLANARIA,
        "args": ["/job/train.py", str(helps_up_to)],
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "resources": resources,
        "volumeMounts": [{"name": "script", "mountPath": "/job"}],
    }
    volume = {"name": "script", "configMap": {"name": "script"}}
    template = {"spec": {"terminationGracePeriodSeconds": 10, "volumes": [volume], "containers": [container]}}
    policy = {"minReplicas": 1, "maxReplicas": 3, "nProcPerNode": 1, "metric": {"batch": "global"}, **hasty}
    return {
        "apiVersion": "training.kubedl.io/v1alpha1",
        "kind": "PyTorchJob",
        "metadata": {"name": "resnet"},
        "spec": {
            "enableElastic": True,
            "elasticPolicy": policy,
            "pytorchReplicaSpecs": {"Worker": {"replicas": 1, "restartPolicy": "OnFailure", "template": template}},
        },
    }


@pytest.fixture(scope="module")
def places(kube_cluster: Cluster) -> Iterator[tuple[Place, Place]]:
    """Two jobs at the same time: one that needs a GPU for each worker, of which there are two, and one that needs none."""
    flags = ["--kubeconfig", kube_cluster.kubeconfig]
    assert (
        operator(["install", "--image", kube_images.PLANARIA, "--flag=--metrics-interval=2", "--replicas=1", *flags])
        == 0
    )
    for node in kube_cluster.nodes:
        kube_cluster.give_gpus(node, 1)
    found = Place(kube_cluster), Place(kube_cluster)
    found[0].start(helps_up_to=3, resources={"limits": {"nvidia.com/gpu": 1}})
    found[1].start(helps_up_to=2, resources={})
    yield found
    for place in found:
        kube_cluster.kubectl("delete", "namespace", place.namespace, "--wait=false")
    assert operator(["uninstall", *flags]) == 0
    wait_until(lambda: not any(place.pods() for place in found), "their pods are going", PATIENCE_S, 0.3)


def test_a_job_that_gains_nothing_from_a_third_worker_is_better_off_with_two(places: tuple[Place, Place]) -> None:
    place = places[1]
    block = place.wait_for("the gain is gone", elasticCondition="ReachMaxMetric", currentReplicas=2, lastReplicas=3)
    assert (block["continue"], block["message"]) == (False, "Pytorch job has reached the max metrics")
    wait_until(lambda: len(place.pods()) == 2, "the third has left", PATIENCE_S, 0.3)


def test_a_job_grows_to_the_room_there_is_returns_and_grows_again_when_there_is_more(
    kube_cluster: Cluster, places: tuple[Place, Place]
) -> None:
    place = places[0]
    place.wait_for("it has returned to two", elasticCondition="Stop", currentReplicas=2, lastReplicas=3)
    described = place.kubectl("describe", "pytorchjob", "resnet")
    assert re.search(r"Message: +There exists pending pods, return to the last replicas\n", described)
    survivors = place.pods()
    assert sorted(survivors) == ["resnet-worker-0", "resnet-worker-1"]
    kube_cluster.give_gpus(2, 2)
    place.wait_for("it has three workers", elasticCondition="ReachMaxReplicas", currentReplicas=3)
    assert place.pods().items() >= survivors.items(), "a resize restarts no pod"
    assert [figure[0] for figure in place.status()["scaling"]["figures"]] == [1, 2, 3]


def test_a_worker_that_is_deleted_is_replaced_under_its_name_and_the_others_train_on(
    places: tuple[Place, Place],
) -> None:
    place = places[1]
    place.wait_for("the gain is gone", elasticCondition="ReachMaxMetric", currentReplicas=2)
    before = wait_until(lambda: found if len(found := place.pods()) == 2 else None, "two are left", PATIENCE_S, 0.3)
    gone, stays = sorted(before)
    place.kubectl("delete", "pod", gone, "--wait=false")

    def is_back() -> bool:
        now = place.pods()
        return now.keys() == before.keys() and now[gone] != before[gone]

    wait_until(is_back, "it is back", PATIENCE_S, 0.3)
    assert place.pods()[stays] == before[stays]
    # It trains with the other one again: what it prints are steps that both have made.
    wait_until(lambda: "Epoch: [0][" in place.log(gone), "it trains", PATIENCE_S, 0.5)
    counts = place.status()["replicaStatuses"]["Worker"]
    assert (counts["active"], place.status()["restarts"]) == (2, 0), "who deletes a pod costs the job no restart"
