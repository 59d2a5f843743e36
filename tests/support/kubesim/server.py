"""An API server's memory: objects with uids and resourceVersions, deletion with grace, owners that take what they own along."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]


class Conflict(Exception):
    """Somebody wrote first, or there is such an object already."""


class Server:
    """Everything that is stored. `watchers` hear of every change."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.objects: dict[tuple[str, str], Json] = {}
        self.watchers: list[Callable[[str, str], None]] = []
        self._counter = 0

    def get(self, kind: str, name: str) -> Json | None:
        return self.objects.get((kind, name))

    def list(self, kind: str) -> list[Json]:
        """Return what is stored itself: nobody changes what he read."""
        return [obj for (this, _), obj in self.objects.items() if this == kind]

    def create(self, kind: str, body: Json) -> Json:
        name = body["metadata"]["name"]
        if (kind, name) in self.objects:
            raise Conflict(f"{kind} {name} is there already")
        obj = copied(body)
        obj["metadata"] |= {"uid": f"{self._next():08x}-uid", "creationTimestamp": self.stamp(), "generation": 1}
        self.objects[kind, name] = obj
        self._changed(kind, name)
        return obj

    def replace(self, kind: str, name: str, body: Json, part: str) -> Json:
        """Write an object, or a part of it, if it is still of the version that the body says."""
        obj = self.objects.get((kind, name))
        if obj is None or obj["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise Conflict(f"{kind} {name} was changed")
        if part:
            obj[part] = copied(body[part])
        else:
            obj.update({field: copied(value) for field, value in body.items() if field not in ("metadata", "status")})
            obj["metadata"] |= {"annotations": copied(body["metadata"].get("annotations") or {})}
        self._changed(kind, name)
        return obj

    def edit(self, kind: str, name: str, change: Callable[[Json], None]) -> None:
        """Change an object as its owner or its kubelet does."""
        obj = self.objects.get((kind, name))
        if obj is None:
            return
        before = copied(obj)
        change(obj)
        if obj.get("spec") != before.get("spec"):
            obj["metadata"]["generation"] += 1
        if obj != before:
            self._changed(kind, name)

    def delete(self, kind: str, name: str, uid: str | None = None) -> None:
        """Delete an object; a pod with a node gets its grace first, and its kubelet takes it away then."""
        obj = self.objects.get((kind, name))
        if obj is None or uid not in (None, obj["metadata"]["uid"]):
            raise Conflict(f"there is no such {kind} {name}")
        is_over = (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if kind == "Pod" and obj["spec"].get("nodeName") and not is_over:
            grace = obj["spec"].get("terminationGracePeriodSeconds", 30)
            obj["metadata"].setdefault("deletionTimestamp", self.stamp())
            obj["metadata"].setdefault("deletionGracePeriodSeconds", grace)
            self._changed(kind, name)
        else:
            self.remove(kind, name)

    def remove(self, kind: str, name: str) -> None:
        """Take an object away, and all that it owns."""
        gone = self.objects.pop((kind, name), None)
        if gone is None:
            return
        self._changed(kind, name)
        for owned, obj in list(self.objects.items()):
            if any(owner["uid"] == gone["metadata"]["uid"] for owner in obj["metadata"].get("ownerReferences") or ()):
                self.remove(*owned)

    def stamp(self) -> str:
        from planaria.kube.times import stamp

        return stamp(self.now())

    def _next(self) -> int:
        self._counter += 1
        return self._counter

    def _changed(self, kind: str, name: str) -> None:
        if (kind, name) in self.objects:
            self.objects[kind, name]["metadata"]["resourceVersion"] = str(self._next())
        for watcher in self.watchers:
            watcher(kind, name)


def copied(obj: Any) -> Any:
    """Return it as whoever reads it over a wire gets it."""
    return json.loads(json.dumps(obj))
