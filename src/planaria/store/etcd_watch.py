"""A watch on etcd in a thread of its own: a long answer of the gateway, read line by line, begun anew when it ends."""

from __future__ import annotations

import json
from contextlib import closing, suppress
from threading import Event as Flag

import requests

from planaria.store.bridge import BridgedWatching
from planaria.store.etcd_gateway import EtcdAway, EtcdDenied, Favourite, Gateway
from planaria.store.etcd_translate import changes_of, revision_of, span
from planaria.store.model import Resumed, WatchLost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from planaria.store.api import Where
    from planaria.store.bridge import Bridge
    from planaria.store.model import Event

_SILENT_S = 900.0  # etcd tells its progress every 600 s, and the kernel notices a host that is gone much sooner
_CONNECT_WITHIN_S = 2.0
_LOOK_WITHIN_S = 5.0
_DENIED_S = 1.0  # before the reader is sent to hear why: it may list at once, and should not come back at once
_PAUSES_S = (0.0, 0.1, 0.2, 0.5, 1.0)
_LINE_LIMIT_BYTES = 64 << 20  # etcd's own limit of a transaction is far below


class _HistoryLostError(Exception):
    """Etcd has compacted what we have not seen, or is another etcd than before."""


class EtcdWatching(BridgedWatching):
    """A watch with a thread of its own that reads one stream after the other."""

    def __init__(
        self,
        bridge: Bridge,
        endpoints: tuple[Where, Favourite],
        prefix: str,
        after: int,
        on_event: Callable[[Event], object],
    ) -> None:
        super().__init__(bridge, on_event)
        self._endpoints = endpoints
        self._prefix = prefix
        self._position = after
        self._is_first = True
        self._ending = Flag()
        self._answer: requests.Response | None = None
        self._favourite = endpoints[1]
        bridge.start_thread(self._run)  # one for each watch: it waits for the next line in a blocking read

    def cancel(self) -> None:
        """End it, and wake the thread up so that it leaves."""
        super().cancel()
        self._ending.set()
        self._end_stream()

    def _end_stream(self) -> None:
        answer = self._answer
        if answer is not None:
            with suppress(ValueError, OSError, RuntimeError):  # an answer that has ended meanwhile is a ValueError
                answer.raw.shutdown()

    def _run(self) -> None:
        gateway = Gateway(*self._endpoints, self._bridge.clock, self._ending)
        self._favourite.attach(self._end_stream)
        failures = 0
        try:
            while not self._ending.wait(_PAUSES_S[min(failures, len(_PAUSES_S) - 1)]):
                before = self._position
                try:
                    self._read(gateway)
                    failures = 0
                except _HistoryLostError:
                    self._post(WatchLost())
                    return
                except EtcdDenied:  # whoever lists will hear why
                    self._ending.wait(_DENIED_S)
                    self._post(WatchLost())
                    return
                except Exception:  # noqa: BLE001  whatever it was, the watch has to go on
                    failures = 0 if self._position != before else failures + 1
                    gateway.turn()
                self._is_first = False
        finally:
            self._favourite.detach(self._end_stream)
            gateway.close()

    def _read(self, gateway: Gateway) -> None:
        """Follow one stream to its end; silence, or our own end of it, is an end in order, everything else is an error."""
        gateway.choose()
        gateway.client.timeout = _CONNECT_WITHIN_S
        is_old = gateway.login()
        client = gateway.client
        asked = {**span(self._prefix), "start_revision": self._position + 1, "progress_notify": True}
        order: Any = {"create_request": asked}
        answer = client.session.post(
            client.get_url("/watch"),
            json=order,
            stream=True,
            timeout=(_CONNECT_WITHIN_S, _LOOK_WITHIN_S),
            headers={"Grpc-Metadata-hasleader": "true"},  # a member that lost its cluster ends the stream
        )
        with closing(answer):
            self._answer = answer
            if self._ending.is_set() or gateway.is_left:  # meanwhile, when there was no answer to shut down
                return
            if answer.status_code != requests.codes["ok"]:
                gateway.logout()  # it may be the token that is refused
                raise EtcdAway(answer.reason, was_sent=False)
            _be_patient(answer)
            try:
                for line in _lines(answer):
                    self._handle(gateway, json.loads(line), is_old)
                if not self._ending.is_set() and not gateway.is_left:
                    raise EtcdAway("the watch was ended by the other side", was_sent=False)
            except requests.exceptions.ConnectionError as exc:
                if "timed out" not in str(exc):
                    raise

    def _handle(self, gateway: Gateway, message: Mapping[str, Any], is_old: bool) -> None:
        result = message.get("result")
        if not isinstance(result, dict) or (result.get("canceled") and "compact_revision" not in result):
            gateway.logout()  # it may be the token that is refused: an etcd that was started anew says "permission denied" then
            if not is_old and "permission denied" in json.dumps(message):
                raise EtcdDenied("watch", by_rights=True)
            raise EtcdAway(json.dumps(message), was_sent=False)
        if int(result.get("compact_revision", 0)):
            raise _HistoryLostError
        if result.get("created"):
            self._check_life(gateway, revision_of(result))
        changes = changes_of(result)
        if changes:
            # All changes of one revision are in one message: it is whole, so the next stream may begin after it.
            self._position = changes[-1].revision
            self._post(*changes)
        elif not result.get("created"):
            # A word about its progress: all up to here was told, and may be compacted without a loss for us.
            self._position = max(self._position, revision_of(result))

    def _check_life(self, gateway: Gateway, revision: int) -> None:
        """Find out whether etcd has forgotten us: it was set up anew, or restored from an old copy."""
        if revision < self._position:  # a member that lags behind says so too: ask the majority
            answer = gateway.call(
                "/kv/range", {**span(""), "count_only": True}, repeatable=True, within_s=_LOOK_WITHIN_S
            )
            if revision_of(answer) < self._position:
                raise _HistoryLostError
        if not self._is_first:
            # However the last one ended: an etcd that was set up anew meanwhile may have come further than the old one,
            # and its cluster may be called the same.
            self._post(Resumed())


def _be_patient(answer: requests.Response) -> None:
    """Wait for the next line much longer than for the first: such a wait can be ended from outside."""
    sock = getattr(getattr(answer.raw, "connection", None), "sock", None)
    if sock is not None:
        sock.settimeout(_SILENT_S)


def _lines(answer: requests.Response) -> Iterator[bytes]:
    rest = b""
    for chunk in answer.iter_content(chunk_size=None):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LINE_LIMIT_BYTES:
            raise ValueError("a line of etcd's answer has no end")
        yield from (line for line in lines if line.strip())
