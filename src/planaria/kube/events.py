"""Tell people what happened to a job, as Events of Kubernetes. The same words twice are one Event that was seen twice."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from planaria.errors import KubeError
from planaria.kube import times
from planaria.kube.resources import EVENT, JOB

if TYPE_CHECKING:
    from planaria.kube.api import Api
    from planaria.kube.model import Event, Json

_LONGEST = 1000  # of a message; the server takes 1024 bytes
_QUIET_S = 300.0  # the same words within it are not told again
_MISSING = 404
_MOST = 4096  # events that are remembered
COMPONENT = "planaria-operator"


class Teller:
    """Writes events. One that cannot be written is no reason to stop."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._told: dict[tuple[str, str], tuple[int, float]] = {}  # namespace and name -> how often, and when last

    async def tell(self, job: Json, event: Event, wall_s: float) -> None:
        """Tell one event of a job."""
        body = written(job, event, wall_s)
        meta = body["metadata"]
        key = meta["namespace"], meta["name"]
        count, last = self._told.pop(key, (0, 0.0))
        if count and 0 <= wall_s - last < _QUIET_S:
            self._told[key] = count, last
            return
        try:
            counted = await self._write(body, count)
        except KubeError:
            return
        self._told[key] = counted, wall_s
        if len(self._told) > _MOST:
            del self._told[next(iter(self._told))]

    async def _write(self, body: Json, count: int) -> int:
        """Write an event that was told `count` times before; return how often it was told then."""
        if count:
            try:
                await self._again(body, count + 1)
            except KubeError as problem:
                if problem.status != _MISSING:
                    raise
            else:
                return count + 1
        await self._first(body)  # the server keeps an event for an hour: then it is a new one
        return 1

    async def _first(self, body: Json) -> None:
        try:
            await self._api.create(body)
        except KubeError as problem:
            if not problem.is_conflict:
                raise
            await self._again(body, 2)  # told by an operator before this one

    async def _again(self, body: Json, count: int) -> None:
        meta = body["metadata"]
        changes = {"count": count, "lastTimestamp": body["lastTimestamp"]}
        await self._api.patch(EVENT, meta["namespace"], meta["name"], changes)


def written(job: Json, event: Event, wall_s: float) -> Json:
    """Return an event about a job as the server keeps it. Its name is made of its words: the same words are one object."""
    meta = job["metadata"]
    words = "\0".join((meta["uid"], event.reason, event.message)).encode()
    at = times.stamp(wall_s)
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.name,
        "metadata": {
            "name": f"{meta['name']}.{hashlib.sha256(words).hexdigest()[:16]}",
            "namespace": meta["namespace"],
        },
        "involvedObject": {
            "apiVersion": JOB.api_version,
            "kind": JOB.name,
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
        },
        "reason": event.reason,
        "message": event.message[:_LONGEST],
        "type": "Warning" if event.is_warning else "Normal",
        "source": {"component": COMPONENT},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
