"""KubeDL's tutorial on a real cluster of two nodes, with our operator: three runs of its job at the same time.

The operator is installed there, with its own permissions. GPUs are told by the nodes: that is how room is taken and given back.
The workers that `grows` has truly train: see `kube_trainee`. How fast they are is read from what they print.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from typing import TYPE_CHECKING, NamedTuple

import kube_images
import pytest
from kube_tutorial import NAMESPACE, Tutorial

from planaria.kube.main import operator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kube_cluster import Cluster

pytestmark = [pytest.mark.root, pytest.mark.torch, pytest.mark.timeout(300)]

WORKERS = [f"resnet-worker-{index}" for index in range(3)]
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
# As the tutorial prints them.
RUNNING = """\
    Last Transition Time:  TIME
    Last Update Time:      TIME
    Message:               PyTorchJob resnet is running.
    Reason:                JobRunning
    Status:                True
    Type:                  Running
  Elastic Scaling:
    Worker:
      Continue:           true
      Current Replicas:   1
      Elastic Condition:  Start
      Start Time:         TIME
"""
ACTIVE = """\
  Replica Statuses:
    Master:
      Active:  1
    Worker:
      Active:  1
"""
STOPPED = """\
  Elastic Scaling:
    Worker:
      Continue:           false
      Current Replicas:   2
      Elastic Condition:  Stop
      Last Replicas:      3
      Message:            There exists pending pods, return to the last replicas
      Start Time:         TIME
"""
ENOUGH = """\
  Elastic Scaling:
    Worker:
      Continue:           false
      Current Replicas:   2
      Elastic Condition:  ReachMaxMetric
      Last Replicas:      3
      Message:            Pytorch job has reached the max metrics
      Start Time:         TIME
"""


class Runs(NamedTuple):
    """Each job has a worker, which makes no step before it is told to."""

    grows: Tutorial
    returns: Tutorial
    is_better_off: Tutorial
    said: list[str]  # when the first was made


class Return(NamedTuple):
    """What one job looked like when there was no room for its third worker."""

    described: str
    workers: dict[str, str]


@pytest.fixture(scope="module")
def runs(kube_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed, with which one of the jobs trains")
    flags = ["--kubeconfig", kube_cluster.kubeconfig]
    words = ["--image", kube_images.PLANARIA, "--flag=--metrics-interval=1", "--replicas=1", "--no-wait"]
    assert operator(["install", *words, *flags]) == 0
    for node in kube_cluster.nodes:
        kube_cluster.give_gpus(node, 2)  # one for each job, and one more
    with contextlib.ExitStack() as stack:
        grows, returns, is_better_off = (
            stack.enter_context(Tutorial(kube_cluster, name, tmp_path_factory.mktemp("volume")))
            for name in (NAMESPACE, f"{NAMESPACE}-2", f"{NAMESPACE}-3")
        )
        stack.callback(operator, ["uninstall", *flags])  # before the pods go, or it would make others
        # By the clock of a machine that others use too: the first line after a change says little, one of three may be late.
        said = grows.create(metric={"batch": "global"}, warmUpSamples=1, windowSamples=3)
        returns.create(["--pace", "0.3", "0.3", "0.3"])
        is_better_off.create(["--pace", "0.3", "0.3", "0.9"])
        for job in (grows, returns, is_better_off):
            job.wait_for_pods("etcd", "resnet-master-0", WORKERS[0])
        yield Runs(grows, returns, is_better_off, said)


@pytest.fixture(scope="module")
def returned(runs: Runs) -> Return:
    job = runs.returns
    job.begin()
    job.wait_for("it has returned to two", elasticCondition="Stop", currentReplicas=2, lastReplicas=3)
    found = described(job)
    job.wait("the third is gone", lambda: len(job.workers()) == 2)
    return Return(found, job.workers())


@pytest.fixture(scope="module")
def room(kube_cluster: Cluster, runs: Runs, returned: Return) -> None:
    """Have room for everybody, as soon as one job has found none."""
    for node in kube_cluster.nodes:
        kube_cluster.give_gpus(node, 8)
    runs.grows.begin()
    runs.is_better_off.begin()


def described(job: Tutorial) -> str:
    return re.sub(TIME, "TIME", job.kubectl("describe", "pytorchjob", "resnet"))


def test_the_tutorials_files_make_what_it_shows(runs: Runs) -> None:
    job = runs.grows
    assert runs.said == [
        "service/etcd-service created",
        "pod/etcd created",
        "persistentvolume/pv-torch-checkpoint created",
        "persistentvolumeclaim/pvc-torch-checkpoint created",
        "pytorchjob.training.kubedl.io/resnet created",
    ]
    pods = [line.split()[:3] for line in job.kubectl("get", "pod").splitlines()[1:]]
    assert pods == [[name, "1/1", "Running"] for name in ("etcd", "resnet-master-0", "resnet-worker-0")]
    services = [line.split() for line in job.kubectl("get", "svc").splitlines()[1:]]
    assert [(name, kind, ports) for name, kind, _, _, ports, _ in services] == [
        ("etcd-service", "ClusterIP", "2379/TCP"),
        ("resnet-master-0", "ClusterIP", "23456/TCP"),
        ("resnet-worker-0", "ClusterIP", "23456/TCP"),
    ]
    assert [address for _, _, address, *_ in services[1:]] == ["None", "None"]
    job.wait("it runs", lambda: "JobRunning" in str(job.statuses()[-1]["conditions"]))
    shown = described(job)
    assert RUNNING in shown
    assert ACTIVE in shown


def test_without_room_a_job_returns_to_two_and_grows_again_when_there_is_some(
    runs: Runs, returned: Return, room: None
) -> None:
    job = runs.returns
    assert STOPPED in returned.described
    assert sorted(returned.workers) == WORKERS[:2]
    pending = [pod["status"] for pod in job.pods_seen() if pod["metadata"]["name"] == WORKERS[2]]
    assert any(one.get("reason") == "Unschedulable" for status in pending for one in status.get("conditions", ()))
    job.wait_for("it has three workers", elasticCondition="ReachMaxReplicas", currentReplicas=3)
    assert job.sizes() == [1, 2, 3, 2, 3]
    assert job.workers().items() >= returned.workers.items(), "a resize restarts no pod"


def test_a_job_that_gains_nothing_from_a_third_worker_is_better_off_with_two(runs: Runs, room: None) -> None:
    job = runs.is_better_off
    job.wait_for("the gain is gone", elasticCondition="ReachMaxMetric", currentReplicas=2, lastReplicas=3)
    assert ENOUGH in described(job)
    assert job.sizes() == [1, 2, 3, 2]
    job.wait("the third has left", lambda: len(job.workers()) == 2)


def test_a_worker_that_is_deleted_is_replaced_under_its_name_and_the_others_train_on(runs: Runs, room: None) -> None:
    job = runs.is_better_off
    job.wait_for("the gain is gone", elasticCondition="ReachMaxMetric", currentReplicas=2)
    job.wait("two are left", lambda: len(job.workers()) == 2)
    before = job.workers()
    gone, stays = sorted(before)
    job.kubectl("delete", "pod", gone, "--wait=false")

    def is_back() -> bool:
        now = job.workers()
        return now.keys() == before.keys() and now[gone] != before[gone]

    job.wait("it is back", is_back)
    assert job.workers()[stays] == before[stays]
    # It trains with the other one again: only a round lets it begin.
    job.wait("it trains", lambda: "Epoch: [0][" in job.log(gone))
    job.wait("both are counted", lambda: job.statuses()[-1]["replicaStatuses"]["Worker"]["active"] == 2)
    assert job.statuses()[-1]["restarts"] == 0, "who deletes a pod costs none"


def test_a_job_that_gains_from_each_worker_grows_from_one_to_two_to_three_and_never_to_four(
    runs: Runs, room: None
) -> None:
    """Its workers train with torch. There is room for many more of them."""
    job = runs.grows
    block = job.wait_for("it has three workers", elasticCondition="ReachMaxReplicas", currentReplicas=3)
    assert (block["continue"], block["message"]) == (False, "Pytorch job has reached the max replicas")
    assert job.sizes() == [1, 2, 3]
    pods = {(pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in job.pods_seen()}
    assert sorted(name for name, _ in pods) == ["etcd", "resnet-master-0", *WORKERS], "a resize restarts no pod"
    evidence = job.statuses()[-1]["scaling"]
    one, two, three = (figure[1] for figure in evidence["figures"])
    assert one < two < three
    assert evidence["source"] == "lines"
    assert re.search(r"Epoch: \[\d+\]\[ *\d+/1000\]\tTime", job.log(WORKERS[2]))
    assert (job.folder / "checkpoint.pth.tar").exists(), "the claim is the tutorial's"
