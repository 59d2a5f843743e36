"""Weather on a real cluster of two nodes with the operator: pods are deleted, evicted, out of memory, and a kubelet is killed.

Two jobs train the NumPy example at the same time, and their ranks write down each step that they make: what was lost, made
twice or made by two worlds is read from that. Two more jobs cannot begin. Nodes tell how much room they have for each job, so
that it is known what is where: of each job one pod of three is on the second node.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import kube_images
import pytest
from kube_training import Place, TrainingJob

from planaria.kube.main import operator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kube_cluster import Cluster

pytestmark = [pytest.mark.root, pytest.mark.timeout(300)]

FENCE_TTL_S = 10  # whoever is silent for longer is fenced, also if only busy processors are the reason
EXAMPLE = ("/job/train.py", "/workspace/examples/numpy/main.py", "--epochs=1000000", "--step-seconds=0.2")
ABSENT = "planaria-test/absent:1"
WRONG = "raise SystemExit('there is no such column')"


class Jobs:
    """All of them, in one namespace. Whoever falls silent is missed in the second soon, in the first not by busy processors."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.place = Place(cluster, {"wrong.py": WRONG})
        self.first, self.second, self.absent, self.wrong = (
            TrainingJob(self.place, name) for name in ("first", "second", "absent", "wrong")
        )
        self.training = self.first, self.second

    def create(self) -> None:
        """Have two of them train."""
        for job in self.training:
            job.give_room(1, 2)
            job.give_room(2, 1)
        processor, memory = {"cpu": "250m"}, {"memory": "300Mi"}
        # With limits for all of it, the kernel's killer sees no difference between processes but their memory.
        resources = {"limits": {**processor, **memory, self.first.room: 1}}
        self.first.create(EXAMPLE, 3, env={"PET_RDZV_CONF": "ttl=30"}, resources=resources)
        env = {"PET_RDZV_CONF": f"ttl={FENCE_TTL_S}", "PET_MAX_RESTARTS": "100"}
        resources = {"limits": {**memory, self.second.room: 1}, "requests": processor}
        self.second.create(EXAMPLE, 3, env=env, resources=resources)
        some = {"requests": {"cpu": "100m"}}  # who asks for nothing gets nothing where others are busy
        self.absent.create(EXAMPLE, 1, image=ABSENT, resources=some)
        self.wrong.create(["/job/wrong.py"], 1, spec={"backoffLimit": 1}, resources=some)
        for job in self.training:
            job.wait_for_world(-1)
        for job in self.training:
            job.wait_for_steps(
                5
            )  # what befalls a job in its first second is for the tests of agents, which try it often
        # Kubelets look after volumes now and then only: meanwhile there is other weather.
        self.before_filling, self.filled = self.second.look(), self.second.on_node("node2")
        self.second.steps.order("fill", self.filled)

    def wait_for_eviction(self) -> None:
        """Wait until what was filled is evicted and replaced, so that the second job is in no weather."""
        job, known = self.second, self.before_filling.lives[self.filled]
        job.wait("it is replaced", lambda: job.lives().get(self.filled, known) != known)
        job.wait_for_world(self.before_filling.round, self.filled)

    def remove(self) -> None:
        self.cluster.kubectl("delete", "namespace", self.place.namespace, "--wait=false")
        for number, node in self.cluster.nodes.items():
            for job in self.training:
                job.give_room(number, None)
            node.ctr("images", "rm", f"docker.io/{ABSENT}")


@pytest.fixture(scope="module")
def jobs(kube_cluster: Cluster) -> Iterator[Jobs]:
    flags = ["--kubeconfig", kube_cluster.kubeconfig]
    assert operator(["install", "--image", kube_images.PLANARIA, "--replicas=1", *flags]) == 0
    found = Jobs(kube_cluster)
    try:
        found.create()
        yield found
    finally:
        found.remove()
        assert operator(["uninstall", *flags]) == 0


def delete(job: TrainingJob, pod: str) -> None:
    job.place.kubectl("delete", "pod", pod, "--wait=false")


def evict(job: TrainingJob, pod: str) -> None:
    """Do what `kubectl drain` does to each pod of a node."""
    body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": pod}}
    job.cluster.client.create(f"{job.place.core}/pods/{pod}/eviction", body)


@pytest.mark.parametrize(
    ("take", "rank"),
    [(delete, 0), (evict, 2)],
    ids=["rank 0 is deleted", "rank 2 is evicted"],
)
def test_a_worker_that_is_deleted_or_evicted_comes_back_under_its_name_and_no_step_is_lost(
    jobs: Jobs, take: Callable[[TrainingJob, str], None], rank: int
) -> None:
    job = jobs.first
    before = job.look()
    gone = before.pods[rank]
    take(job, gone)
    after = job.wait_for_world(before.round, gone).pods
    job.assert_no_step_lost(before)
    job.wait("its pod is told to run", lambda: gone in job.lives())
    lives = job.lives()
    assert lives.keys() == before.lives.keys()
    assert {name for name in lives if lives[name] != before.lives[name]} == {gone}, "the others stay as they are"
    assert job.stands("Running", "JobRunning")
    assert job.status()["restarts"] == before.restarts, "who takes a pod costs the job no restart"
    staying = [place for place in range(2) if place != rank]  # that the smaller world has, too
    assert [after[place] for place in staying] == [before.pods[place] for place in staying], "they keep their ranks"
    assert rank != 2 or after[rank] == gone, "it takes its ranks back"


def test_a_container_that_needs_more_memory_than_it_may_have_is_restarted_in_its_pod_and_counts(jobs: Jobs) -> None:
    job = jobs.first
    before = job.look()
    greedy = before.pods[1]
    job.steps.order("eat_all", greedy)
    job.wait_for_world(before.round, greedy)
    job.assert_no_commit_lost(before)
    uid, restarts = before.lives[greedy]
    job.wait("its restart is told", lambda: job.lives() == before.lives | {greedy: (uid, restarts + 1)})
    ended = job.pods()[greedy]["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
    job.wait("the restart is counted", lambda: job.status()["restarts"] == before.restarts + 1)


def test_a_worker_that_its_kubelet_evicts_is_replaced_and_no_commit_is_lost(jobs: Jobs) -> None:
    jobs.wait_for_eviction()
    job = jobs.second
    job.assert_no_commit_lost(jobs.before_filling)
    event = "PodTaken", f"{jobs.filled} was taken by the cluster (Evicted); it is replaced"
    job.wait("it is told", lambda: event in job.events())
    assert job.status()["restarts"] == 0, "weather does not count"


def test_a_worker_process_that_is_killed_for_its_memory_is_started_again_by_its_agent_and_no_pod_is(jobs: Jobs) -> None:
    jobs.wait_for_eviction()
    job = jobs.second
    before = job.look()
    greedy = before.pods[2]
    job.steps.order("eat", greedy)
    job.wait_for_world(before.round, *before.pods)
    job.assert_no_commit_lost(before)
    killed = "the kernel's OOM killer, out of memory in its memory cgroup"
    job.wait("its agent tells of it", lambda: killed in job.log(greedy))
    assert job.lives() == before.lives
    assert job.status()["restarts"] == before.restarts


def test_an_image_that_cannot_be_pulled_is_told_in_the_kubelets_words_and_the_job_begins_when_it_can(
    jobs: Jobs,
) -> None:
    job = jobs.absent
    told = job.wait_to_stand("BelowMin", "ContainerWaiting")
    assert re.match(
        r"PyTorchJob absent waits, 0 of at least 1 Workers run: "
        rf"absent-worker-0 cannot start \((ErrImagePull|ImagePullBackOff): .*{ABSENT}",
        told,
    )
    assert job.status()["targetReplicas"] == 1
    # There is a pod of the old template: another one is for a job that is suspended.
    specs = job.found()["spec"]["pytorchReplicaSpecs"]
    (container,) = specs["Worker"]["template"]["spec"]["containers"]
    container["image"] = kube_images.PLANARIA
    job.change(pytorchReplicaSpecs=specs)
    assert "pytorchReplicaSpecs.Worker.template" in job.wait_to_stand("Invalid", "ImmutableFieldChanged")
    container["image"] = ABSENT
    job.change(pytorchReplicaSpecs=specs)
    job.wait_to_stand("BelowMin", "ContainerWaiting")
    for node in jobs.cluster.nodes.values():
        node.ctr("images", "tag", f"docker.io/{kube_images.PLANARIA}", f"docker.io/{ABSENT}")
    job.wait_for_world(-1, "absent-worker-0", size=1)
    job.wait_to_stand("Running", "JobRunning")


def test_a_script_that_always_fails_fails_the_job_for_good_after_as_many_restarts_as_it_may_have(jobs: Jobs) -> None:
    job = jobs.wrong
    told = job.wait_to_stand("Failed", "BackoffLimitExceeded")
    assert re.fullmatch(
        r"PyTorchJob wrong failed: 2 restarts, and backoffLimit is 1; wrong-worker-0 ended with status 1 \(.*\)\.", told
    )
    restarting = [message for reason, message in job.events() if reason == "JobRestarting"]
    assert any("wrong-worker-0 ended with status 1" in message for message in restarting)
    job.wait("nothing of it runs", lambda: not job.pods())
    # What is over is over.
    job.change(backoffLimit=100)
    generation = job.found()["metadata"]["generation"]
    job.wait("the change is seen", lambda: job.status()["observedGeneration"] == generation)
    assert job.stands("Failed", "BackoffLimitExceeded") == told
    assert not job.pods()


def test_containers_of_a_killed_kubelet_train_on_and_replacements_wait_until_they_have_left_or_are_fenced(
    jobs: Jobs,
) -> None:
    jobs.wait_for_eviction()
    cluster, leaves, is_fenced = jobs.cluster, jobs.first, jobs.second
    before = {job: job.look() for job in jobs.training}
    old = {job: job.on_node("node2") for job in jobs.training}
    extra = {job: f"{job.name}-worker-3" for job in jobs.training}
    containers = {job: container(job, old[job]) for job in jobs.training}
    for job in jobs.training:
        job.give_room(1, 3)
    cluster.kill_kubelet(2)
    try:
        for job in jobs.training:
            job.wait("its pod is evicted", lambda job=job: "deletionTimestamp" in job.pods()[old[job]]["metadata"])
            job.wait("its replacement waits", lambda job=job: "waiting for a place" in job.log(extra[job]))
            job.wait_for_steps(5)
            # Both containers are alive, and one world trains: the one that was there.
            assert container(job, extra[job]) in cluster.nodes[1].running()
            assert containers[job] in cluster.nodes[2].running()
            assert max(job.steps.worlds()) == before[job].round
            assert old[job] in before[job].pods
            assert job.stands("Running", "JobRunning")
        assert_fenced(cluster, is_fenced, old[is_fenced], extra[is_fenced])
    finally:
        cluster.restart_kubelet(2)
    # The kubelet is back, and does what it has missed.
    world = leaves.wait_for_world(before[leaves].round, extra[leaves])
    assert old[leaves] not in world.pods
    leaves.assert_no_step_lost(before[leaves])
    for job in jobs.training:
        assert job.lives().keys() == {*before[job].pods, extra[job]} - {old[job]}
        assert job.status()["restarts"] == before[job].restarts


def assert_fenced(cluster: Cluster, job: TrainingJob, old: str, extra: str) -> None:
    """Let an old member fall silent: its replacement takes its place, and the old one finds that others went on without it."""
    before, name, ctr = job.look(), container(job, old), cluster.nodes[2].ctr
    processes = len(ctr("tasks", "ps", name).splitlines())
    ctr("tasks", "pause", name)
    world = job.wait_for_world(before.round, extra)
    assert old not in world.pods
    ctr("tasks", "resume", name)
    job.wait("its worker is ended", lambda: len(ctr("tasks", "ps", name).splitlines()) < processes)
    job.wait_for_steps(5)
    assert name in cluster.nodes[2].running(), "its agent lives on"
    assert old not in job.look().pods
    job.assert_no_commit_lost(before)


def container(job: TrainingJob, pod: str) -> str:
    """Return the container of a pod as containerd knows it."""
    found: str = job.pods()[pod]["status"]["containerStatuses"][0]["containerID"]
    return found.removeprefix("containerd://")
