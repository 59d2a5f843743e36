"""The ends of pods' logs, for the web page: fetched when somebody looks, a few at a time, never followed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from planaria.base.value import Value
from planaria.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.kube.api import Api

    Place = tuple[str, str, str]  # namespace, pod, container

FRESH_S = 2.0  # a page asks every second
MOST_BYTES = 32 << 10
MOST_LINES = 400, 40, 4  # asked for one after the other, until the end is among what comes
LIMIT_BYTES = 1 << 20  # of an answer
_MOST_KEPT = 16
_AT_ONCE = 4


class _Tail(Value):
    text: str
    why: str
    at: float


class Tails:
    """What containers printed last. The page asks on the operator's loop, which never waits: it is told what was there last."""

    def __init__(self, api: Api, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._known: dict[Place, _Tail] = {}
        self._tasks: dict[Place, asyncio.Task[None]] = {}

    def tail(self, place: Place) -> tuple[str, str]:
        """Return the end of a log, or why there is none, and see to it that the next answer is newer."""
        known = self._known.get(place)
        is_old = known is None or self._clock() - known.at >= FRESH_S
        if is_old and place not in self._tasks and len(self._tasks) < _AT_ONCE:
            self._tasks[place] = asyncio.get_running_loop().create_task(self._fetch(place))
        return ("", "the log is on its way") if known is None else (known.text, known.why)

    async def close(self) -> None:
        """Fetch nothing more."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _fetch(self, place: Place) -> None:
        try:
            text = await self._end(place)
            found = _Tail(text, "" if text else "the container has written nothing yet", self._clock())
        except KubeError as problem:
            found = _Tail("", f"the log of pod {place[1]} cannot be read now: {problem}", self._clock())
        finally:
            del self._tasks[place]
        self._known.pop(place, None)
        self._known[place] = found
        while len(self._known) > _MOST_KEPT:
            del self._known[next(iter(self._known))]

    async def _end(self, place: Place) -> str:
        """Return the last lines. A kubelet writes from the first of those asked for on: a limit cuts the newest."""
        text = ""
        for lines in MOST_LINES:
            text = await self._api.log(*place, {"tailLines": str(lines), "limitBytes": str(LIMIT_BYTES)})
            if len(text.encode()) < LIMIT_BYTES:
                break
        return newest(text)


def newest(text: str, most_bytes: int = MOST_BYTES) -> str:
    """Return the last lines that fit, or the end of the last one, if it alone is longer."""
    raw = text.encode()
    if len(raw) <= most_bytes:
        return text
    whole = raw[-most_bytes - 1 :].partition(b"\n")[2]
    return (whole or raw[-most_bytes:]).decode("utf-8", "ignore")
