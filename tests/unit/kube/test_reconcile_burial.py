"""What the operator does before it says that a node is gone: it looks again, and writes only if nobody else has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from stored_rounds import NEXT, ONE, RUN, TWO, node, stored

from planaria.errors import KubeError
from planaria.kube.api import Listed
from planaria.kube.books import Books
from planaria.kube.burial import round_seen
from planaria.kube.model import Bury
from planaria.kube.reconcile import AGAIN_S, Reconciler
from planaria.kube.refusals import REFUSED_S
from planaria.store.kubernetes_keys import read_keys, write_keys
from planaria.store.model import Put, Written

JOB = {"apiVersion": "v1", "kind": "PyTorchJob", "metadata": {"name": "resnet", "namespace": "n", "uid": RUN}}


class Server:
    """An API server with pods and one ConfigMap."""

    def __init__(self, *pods: str, owner: str = RUN) -> None:
        self.pods = [{"metadata": {"name": "p", "uid": uid}, "status": {"phase": "Running"}} for uid in pods]
        self.found = stored(node(ONE), node(TWO)) | {"kind": "ConfigMap"}
        self.found["metadata"] |= {"namespace": "n", "ownerReferences": [{"uid": owner, "controller": True}]}
        self.selected: list[str] = []
        self.written: list[Any] = []
        self.events: list[str] = []
        self.status = 0

    async def list(self, _kind: object, _namespace: str, *, keep: Callable[[Any], Any], labels: str = "") -> Listed:
        self.selected.append(labels)
        return Listed(tuple(map(keep, self.pods)), "1")

    async def get(self, *_: object) -> dict[str, Any]:
        return self.found

    async def replace(self, obj: dict[str, Any]) -> dict[str, Any]:
        if self.status:
            raise KubeError("no", status=self.status)
        self.written.append(obj)
        return obj

    async def create(self, obj: dict[str, Any]) -> dict[str, Any]:
        self.events.append(f"{obj['reason']}: {obj['message']}")
        return obj


def look(server: Server, *nodes: str) -> float | None:
    books = Books(lambda _: None)
    reconciler = Reconciler(server, books, SimpleNamespace(), lambda: 1e9, lambda: "")  # type: ignore[arg-type]

    async def act() -> float | None:
        return await reconciler._act(JOB, [Bury(nodes)])

    return asyncio.run(act())


def buried(server: Server) -> list[frozenset[str]]:
    return [round_seen(obj, RUN).buried for obj in server.written]


def test_a_node_whose_pod_is_gone_is_named_and_people_are_told() -> None:
    server = Server(TWO)
    assert look(server, node(ONE)) is None
    assert buried(server) == [{node(ONE)}]
    assert server.events == ["MembersGone: The run goes on without resnet-worker-0, whose pods are gone for good."]


def test_a_pod_that_only_the_copy_had_lost_keeps_its_node_alive_whatever_labels_it_bears() -> None:
    server = Server(ONE, TWO)
    assert look(server, node(ONE)) is None
    assert (buried(server), server.events) == ([], [])
    assert server.selected == [""], "all pods of the namespace"


def test_a_pod_that_is_still_listed_and_has_ended_keeps_no_node_alive() -> None:
    server = Server(ONE, TWO)
    server.pods[0]["status"] = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {}}}]}
    look(server, node(ONE))
    assert buried(server) == [{node(ONE)}]


def test_of_several_only_those_are_named_that_are_gone() -> None:
    server = Server(TWO, NEXT)
    look(server, node(ONE), node(TWO))
    assert buried(server) == [{node(ONE)}]


def test_when_agents_write_at_the_same_time_it_looks_again_soon() -> None:
    server = Server()
    server.status = 409
    assert look(server, node(ONE)) == AGAIN_S
    assert server.events == []


@pytest.mark.parametrize("status", [403, 413, 422])
def test_a_note_that_the_server_will_not_have_holds_up_nothing_else(status: int) -> None:
    server = Server()
    server.status = status
    assert look(server, node(ONE)) == REFUSED_S
    assert server.events == []


def test_a_note_that_the_server_could_not_write_is_no_refusal() -> None:
    server = Server()
    server.status = 500
    with pytest.raises(KubeError):
        look(server, node(ONE))


def test_nobody_is_told_of_a_note_for_which_the_store_has_no_room() -> None:
    server = Server()
    keys = read_keys(server.found)
    while isinstance(keys.perform(Put(f"k{keys.revision}", b"x" * 1000)), Written):
        pass
    server.found = write_keys(server.found, keys)
    assert look(server, node(ONE), *(node(ONE, "x" * 2000, own) for own in range(3))) is None
    assert (server.written, server.events) == ([], [])


def test_an_object_of_another_job_or_with_something_else_in_it_is_left_alone() -> None:
    foreign, broken = Server(owner="another"), Server()
    broken.found["data"] = {"planaria.index": "[]"}
    for server in (foreign, broken):
        assert look(server, node(ONE)) is None
        assert server.written == []
