from __future__ import annotations

import asyncio
from typing import Any

from planaria.errors import KubeError
from planaria.kube.events import Teller, written
from planaria.kube.model import Event
from planaria.kube.resources import Kind

JOB = {"metadata": {"name": "resnet", "namespace": "n", "uid": "u"}}
RUNNING = Event("JobRunning", "PyTorchJob resnet is running.")


class Server:
    """Keeps events by their names, as an API server does."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.is_away = False

    async def create(self, obj: dict[str, Any]) -> None:
        if self.is_away:
            raise KubeError("away")
        if obj["metadata"]["name"] in self.events:
            raise KubeError("there is one", status=409)
        self.events[obj["metadata"]["name"]] = obj

    async def patch(self, _kind: Kind, _namespace: str, name: str, changes: dict[str, Any]) -> None:
        if name not in self.events:
            raise KubeError("there is none", status=404)
        self.events[name] |= changes


def told(server: Server, *events: tuple[Event, float], teller: Teller | None = None) -> list[dict[str, Any]]:
    async def tell() -> None:
        speaking = teller or Teller(server)  # type: ignore[arg-type]  # the two calls it makes
        for event, at in events:
            await speaking.tell(JOB, event, at)

    asyncio.run(tell())
    return list(server.events.values())


def test_an_event_is_one_that_people_find_below_their_job() -> None:
    event = written(JOB, Event("JobFailed", "x" * 2000, is_warning=True), 0.0)
    assert event["involvedObject"] | {"kind": "PyTorchJob", "name": "resnet", "uid": "u"} == event["involvedObject"]
    assert (event["type"], event["reason"], event["firstTimestamp"]) == ("Warning", "JobFailed", "1970-01-01T00:00:00Z")
    assert len(event["message"]) == 1000


def test_the_same_words_soon_after_are_not_told_and_later_are_counted() -> None:
    (event,) = told(Server(), (RUNNING, 0.0), (RUNNING, 10.0), (RUNNING, 400.0), (RUNNING, 401.0))
    assert (event["count"], event["lastTimestamp"]) == (2, "1970-01-01T00:06:40Z")


def test_other_words_are_another_event() -> None:
    assert len(told(Server(), (RUNNING, 0.0), (Event("JobRunning", "other"), 0.0))) == 2


def test_an_operator_that_comes_later_goes_on_counting() -> None:
    server = Server()
    told(server, (RUNNING, 0.0))
    (event,) = told(server, (RUNNING, 10.0))
    assert (event["count"], event["lastTimestamp"]) == (2, "1970-01-01T00:00:10Z")


def test_an_event_that_cannot_be_told_is_no_reason_to_stop_and_is_told_the_next_time() -> None:
    server = Server()
    server.is_away = True
    teller = Teller(server)  # type: ignore[arg-type]  # the two calls it makes
    assert told(server, (RUNNING, 0.0), teller=teller) == []
    server.is_away = False
    assert len(told(server, (RUNNING, 1.0), teller=teller)) == 1


def test_an_event_that_the_server_has_forgotten_is_a_new_one() -> None:
    server = Server()
    teller = Teller(server)  # type: ignore[arg-type]  # the two calls it makes
    told(server, (RUNNING, 0.0), (RUNNING, 400.0), teller=teller)
    server.events.clear()  # after an hour
    (event,) = told(server, (RUNNING, 4000.0), teller=teller)
    assert (event["count"], event["firstTimestamp"]) == (1, "1970-01-01T01:06:40Z")
    (event,) = told(server, (RUNNING, 4400.0), teller=teller)
    assert event["count"] == 2
