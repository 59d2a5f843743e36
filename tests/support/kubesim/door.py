"""The door to a server in memory, as far as the operator's reconciler goes through it. Nothing in it waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from kubesim.server import Conflict, Json, Server, copied
from planaria.errors import KubeError
from planaria.kube.api import Listed
from planaria.kube.model import Delete
from planaria.kube.resources import Kind

T = TypeVar("T")


class Caller(Protocol):
    """Whose calls they are: it makes them, or does not."""

    def call(self, call: Callable[[], T], what: str, /) -> T: ...

    def told(self, event: str, /) -> None: ...

    def deleting(self, action: Delete, /) -> None: ...


class Door:
    """What `planaria.kube.api.Api` is for an API server."""

    def __init__(self, server: Server, caller: Caller) -> None:
        self._server, self._caller = server, caller

    async def get(self, kind: Kind, _namespace: str, name: str) -> Json | None:
        found = self._call(lambda: self._server.get(kind.name, name), f"GET {kind.name} {name}")
        return None if found is None else copied(found)

    async def list(self, kind: Kind, _namespace: str = "", **_how: object) -> Listed:
        return Listed(tuple(copied(self._call(lambda: self._server.list(kind.name), f"LIST {kind.name}"))), "")

    async def create(self, obj: Json) -> Json:
        kind, what = obj["kind"], f"POST {obj['kind']} {obj['metadata']['name']}"
        if kind == "Event":
            self._call(lambda: self._caller.told(f"{obj['reason']}: {obj['message']}"), what)
            return obj
        return copied(self._call(lambda: self._server.create(kind, obj), what))

    async def patch(self, kind: Kind, _namespace: str, name: str, _changes: Json) -> Json:
        assert kind.name == "Event"
        return self._call(dict, f"PATCH Event {name}")

    async def replace(self, obj: Json, part: str = "") -> Json:
        kind, name = obj["kind"], obj["metadata"]["name"]
        what = f"PUT {kind} {name}" + (f"/{part}" if part else "")
        return copied(self._call(lambda: self._server.replace(kind, name, obj, part), what))

    async def delete(self, kind: Kind, _namespace: str, name: str, *, uid: str = "", **_how: object) -> Json | None:
        def act() -> bool:
            if self._server.get(kind.name, name) is None:
                return False
            self._caller.deleting(Delete(kind.name, name, uid))
            self._server.delete(kind.name, name, uid or None)
            return True

        if not self._call(act, f"DELETE {kind.name} {name}"):
            return None
        found = self._server.get(kind.name, name)
        return {"kind": "Status"} if found is None else copied(found) | {"kind": kind.name}

    def _call(self, call: Callable[[], T], what: str) -> T:
        try:
            return self._caller.call(call, what)
        except Conflict as problem:
            raise KubeError(str(problem), status=409) from problem
