"""The reconciler itself, over a server in memory that refuses on order; copies hear of changes when a test says so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from kubesim.door import Door
from kubesim.given import elastic_spec, plain_spec
from kubesim.server import Server, copied
from kubesim.timeline import Timeline
from waiting import PATIENCE_S

from planaria.errors import KubeError
from planaria.kube.books import Books
from planaria.kube.gather import Gatherer
from planaria.kube.model import Delete
from planaria.kube.names import JOB_KIND
from planaria.kube.queue import Queue
from planaria.kube.reconcile import MOST_ACTIONS, RESYNC_S, Reconciler
from planaria.kube.refusals import REFUSED_S

Json = dict[str, Any]
KEY = ("default", "resnet")
STATUS = "PUT PyTorchJob resnet/status"
T = TypeVar("T")


class Bench:
    """A server, an operator's parts around the reconciler, and what it asked of the server."""

    def __init__(self) -> None:
        self.time = Timeline()
        self.server = Server(lambda: self.time.now)
        self.asked: list[str] = []
        self.events: list[str] = []
        self.told = self.events.append
        self.before: dict[str, Callable[[], object]] = {}  # what happens just before a call
        self.woken: list[tuple[str, str]] = []
        self.has_woken = asyncio.Event()
        door: Any = Door(self.server, self)
        self.books = Books(self.wake, clock=lambda: self.time.now)
        self.gatherer = Gatherer(door, self.wake, lambda: 0.5)
        self.reconciler = Reconciler(door, self.books, self.gatherer, lambda: self.time.now, lambda: "token")

    def wake(self, key: tuple[str, str]) -> None:
        self.woken.append(key)
        self.has_woken.set()

    def call(self, call: Callable[[], T], what: str) -> T:
        self.asked.append(what)
        self.before.pop(what, lambda: None)()
        return call()

    def deleting(self, _action: Delete) -> None:
        pass

    def make(self, spec: Json, name: str = "resnet") -> None:
        meta = {"name": name, "namespace": "default"}
        self.server.create(JOB_KIND, {"kind": JOB_KIND, "metadata": meta, "spec": spec})
        self.hear()

    def edit(self, change: Callable[[Json], None]) -> None:
        """Change the job, as its owner does; nobody has heard of it yet."""
        self.server.edit(JOB_KIND, "resnet", change)

    def touch(self) -> None:
        self.edit(lambda job: job["metadata"].update(labels={"touched": "yes"}))

    def hear(self) -> None:
        for copy in self.books.copies:
            copy.reset(copy.keep(copied(obj)) for obj in self.server.list(copy.selection.kind.name))

    async def look(self) -> float | None:
        """Look once; `asked` is what it asked."""
        self.asked.clear()
        return await self.reconciler.look(KEY)

    def names(self, kind: str) -> list[str]:
        return sorted(name for this, name in self.server.objects if this == kind)

    @property
    def job(self) -> Json:
        return self.server.objects[JOB_KIND, "resnet"]

    @property
    def condition(self) -> Json:
        found: Json = self.job["status"]["conditions"][-1]
        return found


def run(story: Callable[[Bench], Awaitable[None]], spec: Json | None = None) -> None:
    async def whole() -> None:
        bench = Bench()
        bench.make(spec or elastic_spec())
        try:
            await asyncio.wait_for(story(bench), PATIENCE_S)  # type: ignore[arg-type]  # a coroutine
        finally:
            await bench.gatherer.close()

    asyncio.run(whole())


def refused(status: int) -> Callable[[], object]:
    def refuse() -> None:
        raise KubeError(f"was refused with {status}", status=status)

    return refuse


def pushed(step: int) -> str:
    told = {"version": 1, "round": 1, "nodes": 1, "step": step, "samples": None, "seconds": float(step)}
    return json.dumps(told)


def runs(pod: Json) -> None:
    state = {"name": "pytorch", "ready": True, "restartCount": 0, "state": {"running": {}}}
    pod["spec"]["nodeName"] = "n1"
    pod["status"] = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [state],
    }


def made(asked: list[str]) -> list[str]:
    return [what for what in asked if what.startswith(("POST", "DELETE")) and " Event " not in what]


def test_the_status_is_written_before_anything_is_done() -> None:
    async def story(bench: Bench) -> None:
        assert await bench.look() == RESYNC_S
        assert bench.asked[0] == STATUS
        assert "POST Pod resnet-worker-0" in made(bench.asked)
        await bench.look()
        assert made(bench.asked) == []
        assert await bench.look() == RESYNC_S
        assert bench.asked == [], "nothing has changed"

    run(story, plain_spec(1))


def test_a_conflict_leaves_no_status_that_says_what_was_not_done() -> None:
    async def story(bench: Bench) -> None:
        bench.touch()
        with pytest.raises(KubeError) as problem:
            await bench.look()
        assert problem.value.status == 409
        assert bench.asked == [STATUS, "GET PyTorchJob resnet"]
        assert "status" not in bench.job
        await bench.look()
        assert bench.names("Pod") == ["resnet-worker-0"], "it has read it, and needs no watch to go on"
        assert bench.condition["type"] == "Created"

    run(story)


@pytest.mark.parametrize("status", [403, 500])
def test_a_status_that_is_refused_is_followed_by_nothing(status: int) -> None:
    async def story(bench: Bench) -> None:
        bench.before[STATUS] = refused(status)
        with pytest.raises(KubeError):
            await bench.look()
        assert bench.asked == [STATUS]

    run(story)


def test_a_job_that_is_gone_meanwhile_is_forgotten() -> None:
    async def story(bench: Bench) -> None:
        def gone() -> None:
            bench.server.remove(JOB_KIND, "resnet")
            refused(404)()

        bench.before[STATUS] = gone
        with pytest.raises(KubeError):
            await bench.look()
        assert made(bench.asked) == []
        assert await bench.look() is None
        assert bench.asked == []

    run(story)


def test_samples_stay_until_a_status_with_them_was_written() -> None:
    async def story(bench: Bench) -> None:
        await bench.look()
        for step in (10, 20):
            bench.gatherer.push(KEY, pushed(step))
        assert len(bench.gatherer.metrics(KEY).samples) == 1
        bench.touch()
        with pytest.raises(KubeError):
            await bench.look()
        assert len(bench.gatherer.metrics(KEY).samples) == 1, "they are in no status"
        await bench.look()
        assert bench.gatherer.metrics(KEY).samples == ()

    run(story, elastic_spec(policy={"windowSamples": 1, "warmUpSamples": 0}))


def test_a_job_made_anew_under_its_name_knows_nothing_of_the_one_before() -> None:
    async def story(bench: Bench) -> None:
        bench.before["POST Pod resnet-worker-0"] = refused(403)
        await bench.look()
        for step in (10, 20):
            bench.gatherer.push(KEY, pushed(step))
        bench.server.remove(JOB_KIND, "resnet")
        bench.make(elastic_spec())
        await bench.look()
        assert bench.gatherer._jobs[KEY].pushed is None
        assert "POST Pod resnet-worker-0" in bench.asked, "what was refused was the other one's"
        assert "POST Lease resnet-run" in bench.asked, "and what was known to be there, too"
        assert bench.condition["reason"] == "JobCreated"

    run(story)


def test_a_delete_means_the_pod_that_was_seen_and_no_other_of_its_name() -> None:
    async def story(bench: Bench) -> None:
        await bench.look()
        other = copied(bench.server.objects["Pod", "resnet-worker-0"])
        bench.server.remove("Pod", "resnet-worker-0")
        bench.server.create("Pod", other)
        bench.edit(lambda job: job["spec"].update(suspend=True))
        bench.books.wrote(bench.books.jobs.selection.kind, copied(bench.job))
        await bench.look()
        assert "DELETE Pod resnet-worker-0" in bench.asked
        assert bench.names("Pod") == ["resnet-worker-0"], "it is another one"
        bench.hear()
        await bench.look()
        assert bench.names("Pod") == []

    run(story)


def test_a_delete_that_the_server_could_not_do_is_no_delete() -> None:
    async def story(bench: Bench) -> None:
        await bench.look()
        bench.edit(lambda job: job["spec"].update(suspend=True))
        bench.hear()
        bench.before["DELETE Pod resnet-worker-0"] = refused(500)
        with pytest.raises(KubeError):
            await bench.look()
        assert bench.names("Pod") == ["resnet-worker-0"]
        await bench.look()
        assert bench.names("Pod") == []

    run(story)


def test_what_is_in_the_way_is_met_and_nothing_is_made_that_was_decided_without_it() -> None:
    async def story(bench: Bench) -> None:
        bench.server.create("Service", {"kind": "Service", "metadata": {"name": "resnet-worker-0"}})
        assert await bench.look() == 0.0
        assert bench.asked[-2:] == ["POST Service resnet-worker-0", "GET Service resnet-worker-0"]
        await bench.look()
        assert bench.condition["reason"] == "NameTaken"
        assert bench.names("Pod") == []

    run(story)


def test_an_object_of_the_job_s_own_that_is_there_already_is_taken_for_it() -> None:
    async def story(bench: Bench) -> None:
        owner = {"uid": bench.job["metadata"]["uid"], "controller": True}
        meta = {"name": "resnet-worker-0", "namespace": "default", "labels": {"job-name": "resnet"}}
        service = {"kind": "Service", "metadata": meta | {"ownerReferences": [owner]}}
        bench.server.create("Service", service)  # by an operator before this one, and the watch is behind
        assert await bench.look() == RESYNC_S
        assert bench.asked[-3:-1] == ["POST Service resnet-worker-0", "GET Service resnet-worker-0"]
        assert bench.names("Pod") == ["resnet-worker-0"]
        await bench.look()
        assert made(bench.asked) == []

    run(story, plain_spec(1, master=False))


def test_what_was_in_the_way_and_is_gone_by_now_is_made_at_the_next_look() -> None:
    async def story(bench: Bench) -> None:
        bench.server.create("Service", {"kind": "Service", "metadata": {"name": "resnet-worker-0"}})
        bench.before["GET Service resnet-worker-0"] = lambda: bench.server.remove("Service", "resnet-worker-0")
        assert await bench.look() == 0.0
        await bench.look()
        assert made(bench.asked) == ["POST Service resnet-worker-0", "POST Pod resnet-worker-0"]

    run(story, plain_spec(1, master=False))


def test_a_pod_that_takes_its_time_to_end_is_known_to_be_ending_before_the_watch_says_so() -> None:
    async def story(bench: Bench) -> None:
        await bench.look()
        bench.server.edit("Pod", "resnet-worker-0", lambda pod: pod["spec"].update(nodeName="n1"))
        bench.edit(lambda job: job["spec"].update(suspend=True))
        bench.hear()
        await bench.look()
        assert made(bench.asked) == ["DELETE Pod resnet-worker-0"]
        known = bench.books.pods.get(("default", "resnet-worker-0"))
        assert known is not None
        assert "deletionTimestamp" in known["metadata"]

    run(story, plain_spec(1, master=False))


def test_a_secret_that_is_there_already_is_not_read() -> None:
    async def story(bench: Bench) -> None:
        name = f"resnet-token-{bench.job['metadata']['uid'][:8]}"
        bench.server.create("Secret", {"kind": "Secret", "metadata": {"name": name}})
        await bench.look()
        assert f"POST Secret {name}" in bench.asked
        assert f"GET Secret {name}" not in bench.asked
        assert bench.names("Pod") == ["resnet-worker-0"]
        await bench.look()
        assert made(bench.asked) == []

    run(story)


def test_the_pattern_of_a_spec_that_is_wrong_is_not_tried() -> None:
    async def story(bench: Bench) -> None:
        await bench.look()
        assert bench.condition["reason"] == "InvalidSpec"
        assert bench.condition["message"].startswith("spec.elasticPolicy.metric expects an object")

    run(story, elastic_spec(policy={"metric": [1]}))


def test_what_is_refused_is_told_holds_up_nothing_else_and_is_tried_again_after_a_while() -> None:
    async def story(bench: Bench) -> None:
        bench.before["POST Pod resnet-master-0"] = refused(403)
        assert (await bench.look() or REFUSED_S) < 1.0, "the next look tells it"
        assert bench.names("Pod") == ["resnet-worker-0", "resnet-worker-1"]
        assert "FailedCreate: Pod resnet-master-0 was refused: was refused with 403" in bench.events
        assert await bench.look() == REFUSED_S
        assert bench.condition["reason"] == "CreateRefused"
        assert made(bench.asked) == []
        bench.time.now += REFUSED_S
        await bench.look()
        assert made(bench.asked) == ["POST Pod resnet-master-0"]
        await bench.look()
        assert bench.condition["reason"] == "WorkersMissing"

    run(story, plain_spec(2))


def test_a_refusal_of_a_worker_that_nobody_wants_any_more_shrinks_nothing() -> None:
    grace_s = 5  # less than until the refused one is tried again

    async def story(bench: Bench) -> None:
        def run_all() -> None:
            for name in bench.names("Pod"):
                bench.server.edit("Pod", name, runs)
            bench.hear()

        bench.before["POST Pod resnet-worker-2"] = refused(403)
        await bench.look()
        run_all()
        await bench.look()
        bench.time.now += grace_s + 1
        await bench.look()
        assert bench.job["status"]["targetReplicas"] == 2
        for _ in range(5):
            await bench.look()
            bench.time.now += grace_s
        bench.server.remove("Pod", "resnet-worker-1")
        bench.hear()
        for _ in range(5):
            await bench.look()
            bench.time.now += grace_s
        assert bench.job["status"]["targetReplicas"] == 2
        assert bench.names("Pod") == ["resnet-worker-0", "resnet-worker-1"]

    run(story, elastic_spec(1, 3, 3, policy={"pendingGraceSeconds": grace_s}))


def test_a_pattern_that_takes_long_holds_up_its_own_job_and_not_the_look() -> None:
    metric = {"pattern": r"(?P<time>(a+)+)$", "sample": "a" * 64 + "b"}

    async def story(bench: Bench) -> None:
        assert await bench.look() == RESYNC_S
        assert bench.asked == [STATUS]
        assert bench.condition["reason"] == "PatternUntried"
        bench.woken.clear()
        while KEY not in bench.woken:
            bench.has_woken.clear()
            await bench.has_woken.wait()
        await bench.look()
        assert bench.condition["reason"] == "InvalidSpec"
        assert "took more than 0.5 s on the sample" in bench.condition["message"]
        assert bench.names("Pod") == []

    run(story, elastic_spec(policy={"metric": metric}))


def test_a_job_of_many_pods_gets_a_few_at_each_look_and_each_of_them_once() -> None:
    async def story(bench: Bench) -> None:
        total: list[str] = []
        while await bench.look() == 0.0:
            assert len(made(bench.asked)) == MOST_ACTIONS
            total += made(bench.asked)
        total += made(bench.asked)
        assert len(total) == len(set(total)) == 2 * 101
        assert len(bench.names("Pod")) == 101
        bench.edit(lambda job: job["spec"].update(suspend=True))
        bench.hear()
        assert await bench.look() == 0.0
        assert len(made(bench.asked)) == MOST_ACTIONS

    run(story, plain_spec(100))


def test_what_the_server_could_not_do_is_tried_again_and_is_no_refusal() -> None:
    async def story(bench: Bench) -> None:
        bench.before["POST Pod resnet-worker-0"] = refused(500)
        with pytest.raises(KubeError):
            await bench.look()
        assert bench.events == ["JobCreated: PyTorchJob resnet is created."]
        await bench.look()
        assert bench.names("Pod") == ["resnet-worker-0"]

    run(story, plain_spec(1, master=False))


def test_what_was_refused_before_costs_no_turn() -> None:
    async def story(bench: Bench) -> None:
        for number in range(40):
            bench.before[f"POST Pod resnet-worker-{number}"] = refused(403)
        for _ in range(9):
            await bench.look()
        assert bench.names("Pod") == [f"resnet-worker-{number}" for number in range(40, 60)]

    run(story, plain_spec(60, master=False))


def test_jobs_of_thousands_of_pods_keep_another_waiting_for_one_look_each() -> None:
    """Counted in calls, not in seconds: before the small job's pod, every big one has had a turn or two."""

    async def story(bench: Bench) -> None:
        big = [f"big-{number}" for number in range(8)]
        for name in big:
            bench.make(plain_spec(1000, master=False), name)
        queue = Queue(bench.reconciler.look, lambda: 0.5, bench.events.append)
        for name in (*big, "resnet"):
            queue.wake(("default", name))
        working = asyncio.ensure_future(queue.run(2))
        while "POST Pod resnet-worker-0" not in bench.asked:
            await asyncio.sleep(0)  # one step of the loop
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        before = bench.asked[: bench.asked.index("POST Pod resnet-worker-0")]
        assert len(made(before)) < len(big) * MOST_ACTIONS + MOST_ACTIONS

    run(story)
