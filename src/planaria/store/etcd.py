"""A store in etcd 3.4 or later, through its v3 API.

The library is etcd3gw: kept by OpenStack and released several times a year, pure Python over `requests`, which most
training images have. The other candidate, aetcd, brings grpcio and protobuf, whose versions training images like to
pin differently, and knows no TLS. What etcd3gw does not do is done here: users, several endpoints, and watches that
notice a dead peer and lost history (its own watcher hides every error in a thread).

Its calls block, so a few threads make them and a bridge brings the answers to the loop. Only users of etcd pay for them.
"""

from __future__ import annotations

import os
from queue import SimpleQueue

from planaria.base.net import split_address
from planaria.base.text import safe_line
from planaria.errors import UsageError
from planaria.store.api import ANSWER_WITHIN_S, Store, Watching
from planaria.store.bridge import Bridge
from planaria.store.model import Denied, LeaseGone, Refused, Unavailable, is_repeatable, why_not_prefix, why_refused
from planaria.store.pending import Pending

try:
    from planaria.store.etcd_gateway import EtcdAway, EtcdDenied, EtcdRefused, Favourite, Gateway
    from planaria.store.etcd_translate import body_of, reply_of
    from planaria.store.etcd_watch import EtcdWatching
except ImportError as exc:
    raise UsageError(
        f"the store in etcd needs the library {exc.name or 'etcd3gw'}, which is not installed",
        hint="pip install 'planaria[etcd]'",
    ) from exc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop
    from planaria.store.api import Where
    from planaria.store.model import Event, Reply, Request

_THREADS = 3  # a renewal of a lease need not wait for a listing, or for another request that a dead endpoint holds up
_THREADS_SHARE = 0.8  # of a request's time: the thread knows better than the deadline whether etcd got it


class EtcdStore(Store):
    """A client of etcd. `where.endpoints` are members of one cluster: "host:port", or URLs with http or https."""

    def __init__(self, loop: Loop, where: Where) -> None:
        _check(where)
        self._loop = loop
        self._where = where
        self._favourite = Favourite()
        self._bridge = Bridge(loop)
        self._pending = Pending(loop)
        self._orders: SimpleQueue[tuple[int, Request, float] | None] = SimpleQueue()
        self._threads = 0
        self._watches: list[EtcdWatching] = []
        self._is_closed = False

    def ask(self, asked: Request, on_reply: Callable[[Reply], object], *, timeout_s: float = ANSWER_WITHIN_S) -> None:
        """Hand a request to a thread."""
        if self._is_closed:
            return
        why = why_refused(asked)
        if why is not None:
            self._loop.call_soon(lambda: None if self._is_closed else on_reply(Refused(why)))
            return
        number = self._pending.add(asked, on_reply, timeout_s, was_sent=True)
        self._orders.put((number, asked, self._loop.now() + timeout_s * _THREADS_SHARE))
        if self._threads < _THREADS:
            self._threads += 1
            self._bridge.start_thread(self._work)

    def watch(self, prefix: str, after: int, on_event: Callable[[Event], object]) -> Watching:
        """Tell every change under `prefix` after a revision."""
        why = why_not_prefix(prefix)
        if why is not None:
            raise ValueError(why)
        if self._is_closed:
            return Watching()
        watching = EtcdWatching(self._bridge, (self._where, self._favourite), prefix, after, on_event)
        self._watches = [*filter(lambda known: known.is_open, self._watches), watching]
        return watching

    def close(self) -> None:
        """Tell the threads to leave; they do so once what they wait for has come or timed out."""
        self._is_closed = True
        self._pending.clear()
        for watching in self._watches:
            watching.cancel()
        for _ in range(self._threads):
            self._orders.put(None)
        self._bridge.close()

    def _work(self) -> None:
        gateway = Gateway(self._where, self._favourite, self._bridge.clock, self._bridge.closing)
        while (order := self._orders.get()) is not None:
            number, asked, deadline = order
            reply = _perform(gateway, asked, deadline - self._bridge.clock())
            self._bridge.post(_answering(self._pending, number, reply))
        gateway.close()


def _check(where: Where) -> None:
    """Find what can never work before anything is tried. Raises UsageError."""
    if not where.endpoints:
        raise UsageError("the store in etcd needs an endpoint", hint="--rdzv-endpoint=host:2379")
    for endpoint in where.endpoints:
        scheme, _, address = endpoint.rpartition("://")
        try:
            split_address(address.rstrip("/"))
        except ValueError as exc:
            raise UsageError(f"--rdzv-endpoint: {endpoint!r}: {exc}") from exc
        if scheme not in ("", "http", "https"):
            raise UsageError(f"--rdzv-endpoint: {endpoint!r}: etcd is reached by http or https, not {scheme}")
    for path in filter(None, (where.ca, where.cert, where.key)):
        if not os.access(path, os.R_OK):
            raise UsageError(f"the certificate file {path!r} cannot be read")


def _answering(pending: Pending, number: int, reply: Reply) -> Callable[[], object]:
    return lambda: pending.answer(number, reply)


def _perform(gateway: Gateway, asked: Request, within_s: float) -> Reply:
    path, body = body_of(asked)
    try:
        return reply_of(asked, gateway.call(path, body, repeatable=is_repeatable(asked), within_s=within_s))
    except EtcdRefused as exc:
        return LeaseGone() if exc.is_missing else Refused(str(exc))
    except EtcdDenied as exc:
        return Denied(str(exc), exc.by_rights)
    except EtcdAway as exc:
        return Unavailable(str(exc), exc.was_sent)
    except Exception as exc:  # noqa: BLE001  a thread that dies takes its share of all later requests with it
        return Unavailable(safe_line(f"{gateway.name}: {exc}", 200), maybe_done=not is_repeatable(asked))
