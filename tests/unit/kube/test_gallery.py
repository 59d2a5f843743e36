from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from planaria.contract import progress
from planaria.kube import names
from planaria.kube.books import Books
from planaria.kube.gallery import Gallery
from planaria.kube.names import Names
from planaria.kube.operator import Means, Operator, Settings

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


def pushed() -> dict[str, Any]:
    labels = {names.JOB_LABEL: "resnet"}
    meta = {"namespace": "team", "name": Names("resnet").progress, "uid": "c1", "labels": labels}
    return {"metadata": meta, "data": {progress.KEY: progress.write(RECORD)}}


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
