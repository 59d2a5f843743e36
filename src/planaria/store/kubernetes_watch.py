"""Following one object of Kubernetes in a thread: list it, read the stream of its versions, begin anew when that ends."""

from __future__ import annotations

import json
from threading import Event as Flag

from planaria.store.bridge import BridgedWatching
from planaria.store.kubernetes_api import CONFIG_MAPS, Api, ApiDenied, ApiForgot
from planaria.store.kubernetes_keys import read_keys
from planaria.store.model import WatchLost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from http.client import HTTPResponse
    from typing import Any

    from planaria.store.bridge import Bridge
    from planaria.store.kubernetes_api import Access, Manners
    from planaria.store.model import Event

    Json = dict[str, Any]

_SILENT_S = 300.0  # a stream is begun anew after so long; the kernel notices a host that is gone much sooner
_LIST_WITHIN_S = 5.0
_DENIED_S = 1.0  # before the reader is sent to hear why: it may list at once, and should not come back at once
_PAUSES_S = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0)
_LINE_LIMIT_BYTES = 8 << 20  # an object has at most 1 MiB, half as much again in JSON


class Lost(Exception):
    """Whoever follows the object has to begin anew."""


class Stream:
    """Tells every version of one object to `on_object`, which may raise `Lost`, in its thread; None while it is out of sight.

    `on_lost` is called, from the thread too, as the last word.
    """

    def __init__(
        self,
        bridge: Bridge,
        reach: tuple[Access, Manners],
        kind: str,
        on_object: Callable[[Json | None], object],
        on_lost: Callable[[], object],
    ) -> None:
        self._bridge = bridge
        self._kind = kind
        self._on_object = on_object
        self._on_lost = on_lost
        self._ending = Flag()
        self._reach = reach
        self._api: Api | None = None
        self._version = ""
        bridge.start_thread(self._run)  # one for each: it waits for the next line in a blocking read

    def end(self) -> None:
        """End it, and wake the thread up so that it leaves."""
        self._ending.set()
        if self._api is not None:
            self._api.interrupt()

    def _run(self) -> None:
        try:
            self._follow()
        except Exception:  # noqa: BLE001  whoever follows has to hear of it, whatever it was
            if not self._ending.is_set():
                self._on_lost()
        finally:
            if self._api is not None:
                self._api.close()

    def _follow(self) -> None:
        api = self._api = Api(*self._reach, self._bridge.clock, self._ending)
        failures = 0
        while not self._ending.wait(_PAUSES_S[min(failures, len(_PAUSES_S) - 1)]):
            try:
                if not self._version:
                    found, self._version = api.list(self._kind, _LIST_WITHIN_S)
                    self._on_object(found)
                self._read(api)
                failures = 0
            except Lost:
                raise
            except ApiForgot:
                self._version = ""
            except ApiDenied:  # whoever lists will hear why
                self._ending.wait(_DENIED_S)
                raise
            except Exception:  # noqa: BLE001  whatever it was, the watch has to go on
                api.close()
                self._version = ""
                failures += 1
                self._on_object(None)

    def _read(self, api: Api) -> None:
        """Follow one stream to its end."""
        answer = api.watch(self._kind, self._version, _SILENT_S)
        try:
            while not self._ending.is_set() and (line := _line(answer)):
                self._handle(json.loads(line))
        finally:
            api.close()  # an answer without its end: nothing else can be asked here

    def _handle(self, told: Json) -> None:
        found = told["object"]
        if told["type"] == "ERROR":
            if found.get("code") == 410:
                raise ApiForgot(str(found.get("message")))
            raise OSError(str(found.get("message")))
        if told["type"] == "DELETED":
            raise Lost
        if told["type"] != "BOOKMARK":
            self._on_object(found)
        self._version = str(found["metadata"]["resourceVersion"])


class KubernetesWatching(BridgedWatching):
    """A watch that a stream of its own, and so a thread of its own, reads."""

    def __init__(
        self,
        bridge: Bridge,
        reach: tuple[Access, Manners],
        span: tuple[str, int],
        on_event: Callable[[Event], object],
    ) -> None:
        super().__init__(bridge, on_event)
        self._prefix, self._position = span
        self._stream = Stream(bridge, reach, CONFIG_MAPS, self._saw, lambda: self._post(WatchLost()))

    def cancel(self) -> None:
        """Tell nothing more, and end the stream."""
        super().cancel()
        self._stream.end()

    def _saw(self, found: Json | None) -> None:
        if found is None:
            return
        keys = read_keys(found)
        changes = keys.changes_after(self._position)
        if changes is None:
            raise Lost
        self._position = keys.revision
        wanted = tuple(change for change in changes if change.key.startswith(self._prefix))
        if wanted:
            self._post(*wanted)


def _line(answer: HTTPResponse) -> bytes:
    line = answer.readline(_LINE_LIMIT_BYTES)
    if line and not line.endswith(b"\n"):
        raise ValueError("a line of the API server's answer has no end")
    return line
