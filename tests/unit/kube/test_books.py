from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from stored_rounds import ONE, RUN, stored
from stored_rounds import node as worker
from waiting import PATIENCE_S

from planaria.kube.api import Change
from planaria.kube.books import Books
from planaria.kube.burial import RoundSeen
from planaria.kube.queue import Queue
from planaria.kube.resources import CONFIG_MAP, LEASE, POD, SECRET, SERVICE
from planaria.kube.resources import JOB as JOB_KIND
from planaria.kube.seen import NO_METRICS, JobSeen
from planaria.store.kubernetes_keys import INDEX, read_keys, write_keys
from planaria.store.model import Put

KEY = ("n", "resnet")
JOB = JobSeen("resnet", "n", "u1", 1, False, {}, {})


def obj(name: str, version: int = 1, owner: str = "u1", job: str = "resnet", **rest: Any) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, "namespace": "n", "uid": f"uid-{name}", "resourceVersion": str(version)}
    meta["labels"] = {"group-name": "training.kubedl.io", "job-name": job} if job else {}
    if owner:
        meta["ownerReferences"] = [{"uid": owner, "controller": True}]
    return {"metadata": meta, **rest}


def job_object() -> dict[str, Any]:
    return {"metadata": {"name": "resnet", "namespace": "n", "uid": "u1", "resourceVersion": "1"}}


def made() -> tuple[Books, list[tuple[str, str]]]:
    woken: list[tuple[str, str]] = []
    return Books(woken.append), woken


def node(version: int, gpus: int, ready: str = "True") -> dict[str, Any]:
    status = {"conditions": [{"type": "Ready", "status": ready}], "allocatable": {"nvidia.com/gpu": str(gpus)}}
    return {"metadata": {"name": "a", "uid": "a", "resourceVersion": str(version)}, "spec": {}, "status": status}


def test_objects_of_the_job_are_owned_and_others_are_foreign_whether_watched_or_met() -> None:
    books, _ = made()
    books.wrote(SERVICE, obj("resnet-worker-0"))
    books.wrote(CONFIG_MAP, obj("resnet-run", data={"secret": "rendezvous"}))
    books.wrote(LEASE, obj("resnet-run"))
    books.met(job_object(), SECRET, obj("resnet-token-u1"))
    books.met(job_object(), SERVICE, obj("resnet-worker-1", owner="", job=""))
    books.met(job_object(), POD, obj("resnet-worker-2", owner="somebody", job=""))
    world = books.world(JOB, NO_METRICS)
    assert set(world.owned) == {
        ("Service", "resnet-worker-0"),
        ("ConfigMap", "resnet-run"),
        ("Lease", "resnet-run"),
        ("Secret", "resnet-token-u1"),
    }
    assert world.foreign == {("Service", "resnet-worker-1"), ("Pod", "resnet-worker-2")}
    assert books.config_maps.get(("n", "resnet-run"))["data"] == {}  # type: ignore[index]  # it is there


def test_jobs_of_one_name_in_two_namespaces_have_nothing_in_common() -> None:
    books, woken = made()

    def elsewhere(found: dict[str, Any]) -> dict[str, Any]:
        found["metadata"] |= {"namespace": "m", "uid": found["metadata"]["uid"] + "-m"}
        return found

    place = {"replica-type": "worker", "replica-index": "0"}
    mine, theirs = obj("resnet-worker-0", spec={}), elsewhere(obj("resnet-worker-0", owner="u2", spec={}))
    for pod in (mine, theirs):
        pod["metadata"]["labels"] |= place
        books.pods.wrote(pod)
    for kind in (SERVICE, LEASE, SECRET):
        books.wrote(kind, obj("resnet-run"))
    books.wrote(CONFIG_MAP, obj("resnet-progress", data={"progress": "of n"}))
    books.wrote(CONFIG_MAP, elsewhere(obj("resnet-progress", owner="u2", data={"progress": "of m"})))
    other = JobSeen("resnet", "m", "u2", 1, False, {}, {})
    assert [pod.uid for pod in books.world(JOB, NO_METRICS).pods] == ["uid-resnet-worker-0"]
    assert [pod.uid for pod in books.world(other, NO_METRICS).pods] == ["uid-resnet-worker-0-m"]
    assert set(books.world(other, NO_METRICS).owned) == {("ConfigMap", "resnet-progress")}
    for job in (JOB, other):
        assert books.world(job, NO_METRICS).foreign == frozenset()
    assert (books.progress(("n", "resnet")), books.progress(("m", "resnet"))) == ("of n", "of m")
    woken.clear()
    books.pods.take(Change("DELETED", theirs))
    assert woken == [("m", "resnet")]
    books.forget(("m", "resnet"))
    assert ("Lease", "resnet-run") in books.world(JOB, NO_METRICS).owned


def test_a_secret_that_a_kubelet_misses_is_made_again() -> None:
    books, _ = made()
    books.wrote(SECRET, obj("resnet-token-u1"))
    assert ("Secret", "resnet-token-u1") in books.world(JOB, NO_METRICS).owned
    waiting = {"reason": "CreateContainerConfigError", "message": 'secret "resnet-token-u1" not found'}
    status = {"containerStatuses": [{"name": "pytorch", "state": {"waiting": waiting}}]}
    books.wrote(POD, obj("resnet-worker-0", spec={}, status=status))
    assert ("Secret", "resnet-token-u1") not in books.world(JOB, NO_METRICS).owned


def test_a_lease_is_made_again_soon_when_workers_run_that_are_not_ready() -> None:
    """Nobody watches Leases: one that somebody has deleted is missed by the agents alone."""
    now = 0.0
    books = Books(lambda _key: None, clock=lambda: now)

    def is_known() -> bool:
        return ("Lease", "resnet-run") in books.world(JOB, NO_METRICS).owned

    def worker(version: int, *, ready: bool) -> None:
        status = {"containerStatuses": [{"name": "pytorch", "ready": ready, "state": {"running": {}}}]}
        books.wrote(POD, obj("resnet-worker-0", version, spec={}, status=status))

    books.wrote(LEASE, obj("resnet-run"))
    worker(1, ready=True)
    now = 1000.0
    assert is_known(), "all is well"
    worker(2, ready=False)
    assert not is_known()
    books.wrote(LEASE, obj("resnet-run"))
    now = 1050.0
    assert is_known(), "it was there a moment ago: a write for every look would be too much"
    now = 1061.0
    assert not is_known()
    books.met(job_object(), LEASE, obj("resnet-run", owner="somebody"))
    assert ("Lease", "resnet-run") in books.world(JOB, NO_METRICS).foreign, "or nobody would do anything else"
    books.wrote(LEASE, obj("resnet-run"))
    worker(3, ready=True)
    now = 1061.0 + 1801.0
    assert not is_known(), "once in a while it is made sure in any case"


def test_of_a_job_all_is_kept_but_what_kubectl_and_the_server_noted_about_it() -> None:
    books, _ = made()
    found = job_object() | {"spec": {"suspend": True}}
    notes = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "yes"}
    found["metadata"] |= {"annotations": notes, "managedFields": []}
    books.jobs.take(Change("ADDED", found))
    assert books.jobs.get(KEY) == {
        "metadata": job_object()["metadata"] | {"annotations": {"mine": "yes"}},
        "spec": {"suspend": True},
    }


def test_what_agents_pushed_is_found_by_the_name_of_its_job() -> None:
    books, woken = made()
    assert books.progress(KEY) == ""
    books.wrote(CONFIG_MAP, obj("resnet-progress", data={"progress": "{}", "more": "x"}))
    assert books.progress(KEY) == "{}"
    assert woken == [KEY]


@pytest.mark.parametrize(
    "index",
    [
        '{"version":1,"revision":1e999,"forgotten":0,"keys":{},"changes":[],"leases":[]}',
        '{"version":1,"revision":3,"forgotten":0,"keys":{},"changes":[],"leases":[Infinity]}',
        '{"version":1,"revision":3,"forgotten":0,"keys":{"planaria/u1/round":[1e999,null]},"changes":[],"leases":[]}',
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_whatever_is_written_into_a_store_the_books_go_on(index: str) -> None:
    books, _ = made()
    said: list[str] = []
    books.config_maps.say = said.append
    for name in ("resnet-run", "resnet-other"):
        books.config_maps.take(Change("ADDED", obj(name, data={INDEX: index})))
    books.wrote(CONFIG_MAP, obj("resnet-run", 2, data={INDEX: index}))
    books.config_maps.reset([books.config_maps.keep(obj("resnet-run", 3, data={INDEX: index}))])
    assert books.world(JOB, NO_METRICS).round == RoundSeen()
    assert said == [], "it is read as nothing of ours"


def test_of_a_store_only_the_two_keys_are_decoded_that_matter() -> None:
    found = stored(worker(ONE))
    keys = read_keys(found)
    for number in range(3):
        keys.perform(Put(f"planaria/{number}", b"x"))
    found = write_keys(found, keys)
    found["binaryData"] |= {f"planaria.value.{keys.revision}": "no base64"}
    books, _ = made()
    books.wrote(CONFIG_MAP, obj("resnet-run", owner=RUN) | {part: found[part] for part in ("data", "binaryData")})
    assert books.world(JOB, NO_METRICS).round == RoundSeen((worker(ONE),))


def test_progress_that_is_renewed_many_times_is_looked_at_once_and_with_its_last_words() -> None:
    async def story() -> None:
        looks: list[str] = []
        looked = asyncio.Event()

        async def look(key: tuple[str, str]) -> None:
            looks.append(books.progress(key))
            looked.set()

        async def look_after(changes: Callable[[], None]) -> int:
            """Return how many jobs wait after the changes; then let them be looked at."""
            looked.clear()
            changes()
            waiting = len(queue)
            if waiting:
                async with asyncio.timeout(PATIENCE_S):
                    await looked.wait()
            return waiting

        def pushed(*versions: int) -> None:
            for version in versions:
                said = obj("resnet-progress", version, data={"progress": f"step {version}"})
                books.config_maps.take(Change("MODIFIED", said))
                books.config_maps.take(Change("MODIFIED", said))  # told twice: by a watch that began anew

        def met(*versions: int) -> None:
            for version in versions:
                said = obj("resnet-run", version, data={"round": f"{version}"})
                books.config_maps.take(Change("MODIFIED", said))

        queue = Queue(look, lambda: 0.5, lambda _: None)
        books = Books(queue.wake)
        working = asyncio.ensure_future(queue.run(2))
        try:
            assert await look_after(lambda: pushed(*range(1, 9))) == 1
            assert await look_after(lambda: pushed(9)) == 1
            assert await look_after(lambda: met(10)) == 1, "it is new"
            assert await look_after(lambda: met(11, 12, 13)) == 0, "the rendezvous is the agents' own"
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        assert looks == ["step 8", "step 9", "step 9"]

    asyncio.run(story())


def test_room_is_measured_when_something_changed_and_only_more_of_it_is_news() -> None:
    async def story() -> None:
        books, woken = made()
        assert books.nodes is not None
        books.jobs.wrote(job_object())
        books.nodes.wrote(node(1, 2))
        assert not books.measure(), "the first count is nothing new"
        assert books.world(JOB, NO_METRICS).free == {"nodes": 1.0, "nvidia.com/gpu": 2.0}
        woken.clear()
        books.nodes.wrote(node(2, 2))
        assert woken == [], "a heartbeat wakes nobody"
        books.nodes.wrote(node(3, 3))
        assert woken == [KEY]
        assert books.measure()
        assert not books.measure()
        books.nodes.wrote(node(4, 1))
        assert not books.measure()

    asyncio.run(story())


def test_a_pod_on_a_node_that_is_not_ready_is_on_a_lost_one() -> None:
    books, _ = made()
    assert books.nodes is not None
    labels = {"replica-type": "worker", "replica-index": "0"}
    pod = obj("resnet-worker-0", spec={"nodeName": "a", "volumes": [{}]}, status={"phase": "Running"})
    pod["metadata"]["labels"] |= labels
    books.wrote(POD, pod)
    books.nodes.wrote(node(1, 2))
    assert books.world(JOB, NO_METRICS).lost_nodes == frozenset()
    books.nodes.wrote(node(2, 2, ready="Unknown"))
    assert books.world(JOB, NO_METRICS).lost_nodes == {"a"}


def test_which_init_containers_are_sidecars_is_kept() -> None:
    books, _ = made()
    inits = [{"name": "proxy", "restartPolicy": "Always", "image": "p"}, {"name": "fetch", "image": "f"}]
    statuses = [{"name": "proxy", "restartCount": 7}, {"name": "fetch", "restartCount": 2}]
    pod = obj("resnet-worker-0", spec={"initContainers": inits}, status={"initContainerStatuses": statuses})
    pod["metadata"]["labels"] |= {"replica-type": "worker", "replica-index": "0"}
    books.wrote(POD, pod)
    (seen,) = books.world(JOB, NO_METRICS).pods
    assert seen.restarts == 2


def test_a_job_with_another_spec_is_told_of_and_one_with_another_status_is_not() -> None:
    renewed: list[tuple[str, str]] = []
    books = Books(lambda _key: None, renewed=renewed.append)

    def job(version: int, generation: int, uid: str = "u1") -> dict[str, Any]:
        meta = {"name": "resnet", "namespace": "n", "uid": uid, "resourceVersion": str(version)}
        return {"metadata": meta | {"generation": generation}, "status": {"version": version}}

    books.wrote(JOB_KIND, job(1, 1))
    assert renewed == [KEY]
    books.wrote(JOB_KIND, job(2, 1))
    assert renewed == [KEY]
    books.wrote(JOB_KIND, job(3, 2))
    assert renewed == [KEY] * 2
    books.gone(JOB_KIND, KEY, "u1")
    assert renewed == [KEY] * 3
