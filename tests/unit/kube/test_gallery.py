from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from journals import Node

from planaria.contract import glimpse, progress
from planaria.errors import KubeError
from planaria.kube import names
from planaria.kube.books import Books
from planaria.kube.gallery import Gallery
from planaria.kube.names import Names
from planaria.kube.operator import Means, Operator, Settings
from planaria.kube.tails import FRESH_S, Tails

if TYPE_CHECKING:
    from collections.abc import Callable

RECORD = progress.Record("planaria 0.1.0", 3, 2, 4, 120, None, 41.5)


def job(state: str = "Running", name: str = "resnet") -> dict[str, Any]:
    return {"metadata": {"namespace": "team", "name": name, "uid": f"u-{name}"}, "spec": {}, "status": {"state": state}}


def pod(index: int, *, runs: bool = True) -> dict[str, Any]:
    labels = {names.JOB_LABEL: "resnet", names.TYPE_LABEL: "worker", names.INDEX_LABEL: str(index)}
    owners = [{"uid": "u-resnet", "controller": True}]
    meta = {"namespace": "team", "name": f"resnet-worker-{index}", "uid": f"p{index}", "labels": labels}
    state = {"running": {}} if runs else {"waiting": {"reason": "ContainerCreating"}}
    container = {"name": names.TRAINER, "state": state, "ready": runs}
    return {
        "metadata": {**meta, "ownerReferences": owners},
        "spec": {"containers": [{"name": names.TRAINER}]},
        "status": {"phase": "Running" if runs else "Pending", "containerStatuses": [container]},
    }


def pushed(*, seen: str = "") -> dict[str, Any]:
    labels = {names.JOB_LABEL: "resnet"}
    meta = {"namespace": "team", "name": Names("resnet").progress, "uid": "c1", "labels": labels}
    return {"metadata": meta, "data": {progress.KEY: progress.write(RECORD), glimpse.KEY: seen}}


def agent() -> Node:
    """Return the journal of the agent in the first pod, whose second worker is slow, and hangs in the end."""
    node = Node("resnet-worker-0", 0).begins().starts(1.0, 3, nodes=2, count=1)
    node.restarts(1.5, 3, "rank 1 failed", ready_s=0.2).steps(9.0, 3, 119)
    node.tell(9.5, "commit", tier="node", run=1, round=3, step=110, generation=4)
    node.tell(9.7, "straggler", round=3, ranks=[{"rank": 1, "host": "resnet-worker-0", "slower_by": 1.6}])
    return node.tell(70.0, "hang", round=3, ranks=[1], sentence="rank 1 is behind", policy="report")


def watched(wall: Callable[[], float]) -> tuple[Books, Gallery]:
    """Return books, and a gallery that hears of every change in them."""
    books = Books(lambda _key: None)
    gallery = Gallery(books, wall)
    books._wake = gallery.saw
    return books, gallery


def test_every_job_is_a_run_and_those_that_ended_come_last() -> None:
    books = Books(lambda _key: None)
    for one in (job("Failed", "a"), job("Running", "b")):
        books.jobs.wrote(one)
    told = Gallery(books, lambda: 0.0).runs()
    assert [(one["run_id"], one["is_over"]) for one in told] == [("team/b", False), ("team/a", True)]


def test_a_picture_has_pods_and_what_agents_pushed_and_how_many_ran_when() -> None:
    now = [100.0]
    books, gallery = watched(lambda: now[0])
    books.jobs.wrote(job())
    books.config_maps.wrote(pushed())
    for index in range(2):
        now[0] += 1
        books.pods.wrote(pod(index))
    found = gallery.picture("team/resnet")
    assert found is not None
    assert found["world_size"] == 2
    assert found["world_over_time"] == [[100_000, 0], [101_000, 1], [102_000, 2]]
    assert found["progress"]["step"] == 120  # type: ignore[index]  # it is JSON
    assert [one["sentence"] for one in found["timeline"]] == ["the agents are in round 3, with 4 workers on 2 nodes"]  # type: ignore[index, attr-defined]  # it is JSON
    assert gallery.picture("team/other") is None
    assert gallery.picture("nonsense") is None


def test_a_picture_has_what_the_leading_agent_lets_others_see() -> None:
    books, gallery = watched(lambda: 100.0)
    books.jobs.wrote(job())
    books.pods.wrote(pod(0))
    books.config_maps.wrote(pushed(seen=glimpse.write("resnet-worker-0", agent().events)))
    found: Any = gallery.picture("team/resnet")
    assert [(one["round"], one["total_s"]) for one in found["restarts"]["list"]] == [(3, 0.2)]
    assert found["hang"]["sentence"] == "rank 1 is behind"
    assert found["newest_commit"]["node"] == {"step": 110, "round": 3, "generation": 4}
    assert [(one["rank"], one["slower_by"]) for one in found["stragglers"]] == [(1, 1.6)]
    assert [(one["rank"], one["rate"], one["straggler"]) for one in found["ranks"]] == [(0, 2.0, None), (1, 2.0, 1.6)]


def test_whatever_is_in_the_config_map_the_job_has_a_page() -> None:
    books, gallery = watched(lambda: 100.0)
    books.jobs.wrote(job())
    strange = {"name": "planaria.round.started", "timestamp": 1, "metadata": {"round": [], "at": {}}}
    for text in (
        "{",
        "[]",
        "7",
        glimpse.write("x", [strange]),
        '{"version": 1, "events": [7, {"name": {}}]}',
        "x" * 200_000,
    ):
        books.config_maps.wrote(pushed(seen=text))
        found: Any = gallery.picture("team/resnet")
        assert found["progress"]["step"] == 120


def test_the_log_of_a_rank_is_the_end_of_what_its_pod_printed() -> None:
    class Api:
        asked: ClassVar[list[Any]] = []

        async def log(self, *asked: Any) -> str:
            self.asked.append(asked)
            if len(self.asked) > 1:
                raise KubeError("the API server is away")
            return "step 119\n"

    async def story() -> None:
        now = [0.0]
        books = Books(lambda _key: None)
        tails = Tails(Api(), lambda: now[0])  # type: ignore[arg-type]  # as far as it is asked
        gallery = Gallery(books, lambda: 0.0, tails)
        books.jobs.wrote(job())
        books.pods.wrote(pod(0))
        books.config_maps.wrote(pushed(seen=glimpse.write("resnet-worker-0", agent().events)))
        assert gallery.log_tail("team/resnet", 1, "stdout") == {"text": "", "why": "the log is on its way"}
        await asyncio.gather(*tails._tasks.values())
        assert gallery.log_tail("team/resnet", 1, "stdout") == {"text": "step 119\n", "why": ""}
        assert not tails._tasks, "what was fetched a moment ago is not fetched again"
        now[0] += FRESH_S
        gallery.log_tail("team/resnet", 1, "stderr")
        await asyncio.gather(*tails._tasks.values())
        told: Any = gallery.log_tail("team/resnet", 1, "stderr")
        assert told["why"].startswith("the log of pod resnet-worker-0 cannot be read now: the API server is away")
        told = gallery.log_tail("team/resnet", 3, "stdout")
        assert "which is rank 3's is not known" in told["why"]
        (first, *_) = Api.asked
        assert first[:3] == ("team", "resnet-worker-0", names.TRAINER)
        assert set(first[3]) == {"tailLines", "limitBytes"}
        await tails.close()

    asyncio.run(story())


def test_nothing_is_kept_of_a_job_that_is_not_there() -> None:
    books, gallery = watched(lambda: 0.0)
    books.config_maps.wrote(pushed(seen=glimpse.write("resnet-worker-0", agent().events)))
    for name in ("team/resnet", "team/other", "nonsense"):
        assert gallery.log_tail(name, 0, "stdout") is None
        assert gallery.picture(name) is None
    assert not gallery._seen_of
    books.jobs.wrote(job())
    assert gallery.log_tail("team/resnet", 0, "stdout") is not None
    assert list(gallery._seen_of) == [("team", "resnet")]
    books.jobs.gone(("team", "resnet"), "u-resnet")
    assert gallery.log_tail("team/resnet", 0, "stdout") is None, "a page that is still open asks on"
    books.config_maps.wrote(pushed(seen=glimpse.write("resnet-worker-0", agent().events[:3])))
    assert not gallery._seen_of
    assert not gallery._sizes


def test_an_operator_without_a_page_keeps_no_events() -> None:
    api = SimpleNamespace(before_call=lambda _: None)
    means = Means(lambda _: None, lambda: 0.0, lambda: "", lambda: 0.5)
    for port, kept in ((None, {progress.KEY}), (0, {progress.KEY, glimpse.KEY})):
        operator = Operator(api, Settings("me", dashboard_port=port), means)  # type: ignore[arg-type]  # nobody is called
        operator._books.config_maps.wrote(pushed(seen=glimpse.write("resnet-worker-0", agent().events)))
        (found,) = operator._books.config_maps
        assert set(found["data"]) == kept


def test_strange_pods_do_not_end_the_operator() -> None:
    books, gallery = watched(lambda: 0.0)
    books.jobs.wrote(job())
    books.pods.wrote({**pod(0), "status": {"containerStatuses": ["x", {"state": 7}]}})
    assert gallery.runs() == [{"run_id": "team/resnet", "state": "Running", "is_over": False}]


def test_the_operator_serves_the_page_on_loopback_and_takes_no_orders() -> None:
    async def ask(port: int, request: str) -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return int(head.split()[1]), body

    async def story() -> None:
        said: list[str] = []
        api = SimpleNamespace(before_call=lambda _: None)
        means = Means(said.append, lambda: 0.0, lambda: "", lambda: 0.5)
        operator = Operator(api, Settings("me", dashboard_port=0), means)  # type: ignore[arg-type]  # nobody is called
        async with operator._page():
            operator._books.jobs.wrote(job())
            port = int(said[0].rpartition(":")[2].strip("/"))
            assert said == [f"web page at http://127.0.0.1:{port}/"]
            assert (await ask(port, "GET /"))[1].startswith(b"<!doctype html>")
            code, body = await ask(port, "GET /api/runs")
            assert (code, json.loads(body)["takes_orders"]) == (200, False)
            assert (await ask(port, "GET /api/run/team%2Fresnet"))[0] == 200
            assert (await ask(port, "POST /api/run/team%2Fresnet/stop"))[0] == 403

    asyncio.run(story())
