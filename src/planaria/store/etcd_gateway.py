"""One thread's way to etcd: several endpoints, a user's token, and what each failure means for the request.

Everything here blocks and belongs to one thread. `etcd.py` says why etcd3gw, and brings the answers to the loop.
"""

from __future__ import annotations

import json
import re

import requests
from etcd3gw.client import Etcd3Client
from etcd3gw.exceptions import Etcd3Exception
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from planaria.base.keep_alive import KEEP_ALIVE
from planaria.base.net import split_address
from planaria.base.text import safe_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from threading import Event as Flag
    from typing import Any

    from planaria.store.api import Where

PORT = 2379
_PAUSE_S = 0.2  # between two rounds through all endpoints
_SHORTEST_TRY_S = 0.5
_BAD_ARGUMENT, _NOT_FOUND, _NOT_PERMITTED, _EXHAUSTED, _PRECONDITION = 3, 5, 7, 8, 9  # gRPC's status codes
_NO_SUCH_METHOD, _UNAUTHENTICATED = 12, 16
_FINAL = (_BAD_ARGUMENT, _NOT_FOUND, _NO_SUCH_METHOD)
_NOISE = re.compile(r"\s*\(_ssl\.c:\d+\)")  # where in OpenSSL's wrapper: for nobody who reads this


class EtcdRefused(Exception):
    """Etcd will not do this. `is_missing`: what was asked for, a lease, does not exist."""

    def __init__(self, why: str, *, is_missing: bool = False) -> None:
        super().__init__(why)
        self.is_missing = is_missing


class EtcdDenied(Exception):
    """Etcd does not do this as things are. `by_rights`: it does not let us in, or not do this; else it has no room."""

    def __init__(self, why: str, *, by_rights: bool) -> None:
        super().__init__(why)
        self.by_rights = by_rights


class EtcdAway(Exception):
    """No endpoint gave an answer. `was_sent`: one of them may have got the request."""

    def __init__(self, why: str, *, was_sent: bool) -> None:
        super().__init__(why)
        self.was_sent = was_sent


class Favourite:
    """The endpoint that all threads of a store use, until one of them finds it wanting."""

    def __init__(self) -> None:
        self.place = 0
        self._streams: set[Callable[[], object]] = set()

    def turn(self, place: int, places: int) -> None:
        """Leave an endpoint for the next, unless another thread was first; end the streams that hang on it."""
        if self.place == place and places > 1:
            self.place = (place + 1) % places
            for end in tuple(self._streams):
                end()

    def attach(self, end: Callable[[], object]) -> None:
        """Have a stream ended when the endpoint is left: who only listens does not notice that nobody speaks any more."""
        self._streams.add(end)

    def detach(self, end: Callable[[], object]) -> None:
        """Forget a stream."""
        self._streams.discard(end)


class Gateway:
    """Posts to one endpoint until that fails, then to the next."""

    def __init__(self, where: Where, favourite: Favourite, clock: Callable[[], float], closing: Flag) -> None:
        self._where = where
        self._favourite = favourite
        self._clock = clock
        self._closing = closing
        self._clients = [_client(endpoint, where) for endpoint in where.endpoints]
        self._place = 0

    @property
    def client(self) -> Etcd3Client:
        """The client of the endpoint in use."""
        return self._clients[self._place]

    @property
    def name(self) -> str:
        """How to call the endpoint in use to people."""
        return f"etcd at {self.client.base_url}"

    def choose(self) -> None:
        """Use the favourite for what comes next."""
        self._place = self._favourite.place

    def call(self, path: str, body: Mapping[str, object], *, repeatable: bool, within_s: float) -> dict[str, Any]:
        """Return etcd's answer.

        Raises:
            EtcdRefused: It said no, for ever.
            EtcdDenied: It said no, for now.
            EtcdAway: It said nothing, or nothing that tells whether the request was performed.
        """
        deadline = self._clock() + within_s
        failures, why = 0, "no time was left to try"
        while not self._closing.is_set() and (left_s := deadline - self._clock()) > 0:
            share_s = left_s / max(1, len(self._clients) - failures % len(self._clients))
            self.choose()
            try:
                return self.post(path, body, max(share_s, _SHORTEST_TRY_S))
            except EtcdAway as exc:
                self.turn()
                if exc.was_sent and not repeatable:
                    raise
                why = str(exc)
            failures += 1
            if failures % len(self._clients) == 0:
                self._closing.wait(min(_PAUSE_S, max(0.0, deadline - self._clock())))
        raise EtcdAway(why, was_sent=False)

    def post(self, path: str, body: Mapping[str, object], timeout_s: float) -> dict[str, Any]:
        """Post once to the endpoint in use, with a fresh token if the one we had is not taken any more."""
        client = self.client
        client.timeout = timeout_s
        self.login()
        try:
            return _post(client, path, body)
        except _TokenRefused:
            self.logout()
            self.login()
            try:
                return _post(client, path, body)
            except _TokenRefused as exc:
                raise EtcdAway(str(exc), was_sent=False) from exc

    def login(self) -> bool:
        """Get a token for the user, if there is one and we have none; tell whether the token is an old one."""
        client = self.client
        if not self._where.user or "Authorization" in client.session.headers:
            return bool(self._where.user)
        body = {"name": self._where.user, "password": self._where.password}
        try:
            answer = _post(client, "/auth/authenticate", body)
        except _AuthOff:
            return False  # an etcd without users lets everybody in
        except (_TokenRefused, EtcdRefused, EtcdDenied) as exc:
            raise EtcdDenied(f"etcd does not let {self._where.user!r} in: {exc}", by_rights=True) from exc
        except EtcdAway as exc:
            raise EtcdAway(str(exc), was_sent=False) from exc  # the token may have been made; the request was not sent
        client.session.headers["Authorization"] = str(answer.get("token"))
        return False

    def logout(self) -> None:
        """Forget the token: the next request gets a new one."""
        self.client.session.headers.pop("Authorization", None)

    @property
    def is_left(self) -> bool:
        """Tell whether another endpoint than the one in use is the favourite now."""
        return self._place != self._favourite.place

    def turn(self) -> None:
        """Make the next endpoint the favourite, unless another thread was first."""
        self._favourite.turn(self._place, len(self._clients))

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.session.close()


class _TokenRefused(Exception):
    """The token is not known to this etcd, which may have restarted."""


class _AuthOff(Exception):
    """This etcd has no users."""


class _LastingAdapter(HTTPAdapter):
    """Connections whose other end is asked by the kernel, now and then, whether it is still there."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the pool, with our options for its sockets."""
        options = [*HTTPConnection.default_socket_options, *KEEP_ALIVE]
        super().init_poolmanager(*args, socket_options=options, **kwargs)


def _client(endpoint: str, where: Where) -> Etcd3Client:
    scheme, _, rest = endpoint.rpartition("://")
    protocol = scheme or ("https" if where.ca or where.cert else "http")
    host, port = split_address(rest.rstrip("/"))
    # The path is given because etcd3gw, left alone, asks for etcd's version first and fails at a release candidate's.
    client = Etcd3Client(
        host,
        port,
        protocol,
        ca_cert=where.ca or None,
        cert_cert=where.cert or None,
        cert_key=where.key or None,
        api_path="/v3/",
    )
    # Proxies and passwords from the environment are meant for the web; etcd is next door, and would get the password.
    client.session.trust_env = False
    client.session.mount(f"{protocol}://", _LastingAdapter())
    return client


def _post(client: Etcd3Client, path: str, body: Mapping[str, object]) -> dict[str, Any]:
    try:
        answer = client.post(client.get_url(path), json=body)
    except Etcd3Exception as exc:
        raise _meaning_of(client, exc) from exc
    except (OSError, ValueError) as exc:  # everything that `requests` raises is an OSError
        raise EtcdAway(_told(client, str(exc)), was_sent=True) from exc
    if not isinstance(answer, dict):
        raise EtcdAway(_told(client, "the answer is not etcd's"), was_sent=True)
    if "error" in answer:  # of a stream that had begun well
        raise EtcdAway(_told(client, json.dumps(answer["error"])), was_sent=True)
    return answer


def _meaning_of(client: Etcd3Client, exc: Etcd3Exception) -> Exception:
    """Return what a failure says about the request."""
    cause = exc.__context__
    if isinstance(cause, requests.exceptions.RequestException):
        return EtcdAway(_told(client, _root_of(cause)), was_sent=not _never_connected(cause))
    code, message = _error_of(exc)
    told = _told(client, message)
    if code == _UNAUTHENTICATED or (code == _BAD_ARGUMENT and "auth store is old" in message):
        return _TokenRefused(told)
    if code == _PRECONDITION and "authentication is not enabled" in message:
        return _AuthOff(told)
    if code == _NOT_PERMITTED:
        return EtcdDenied(told, by_rights=True)
    if code == _BAD_ARGUMENT and "user name is empty" in message:
        return EtcdDenied(f"{told} (it has users: say which one we are)", by_rights=True)
    if code == _EXHAUSTED and "space exceeded" in message:
        return EtcdDenied(told, by_rights=False)
    if code in _FINAL:
        return EtcdRefused(told, is_missing=code == _NOT_FOUND and "lease" in message)
    return EtcdAway(told, was_sent=True)


def _error_of(exc: Etcd3Exception) -> tuple[int, str]:
    """Return gRPC's code and message from the body of an error; old and new gateways lay it out differently."""
    text = str(getattr(exc, "detail_text", "") or exc)
    try:
        found = json.loads(text)
    except ValueError:
        return -1, text
    if not isinstance(found, dict):
        return -1, text
    code = found.get("code", found.get("grpc_code"))
    return code if isinstance(code, int) else -1, str(found.get("message") or found.get("error") or text)


def _never_connected(cause: requests.exceptions.RequestException) -> bool:
    if isinstance(cause, requests.exceptions.ConnectTimeout):
        return True
    reason = getattr(cause.args[0], "reason", None) if cause.args else None
    return isinstance(reason, (NewConnectionError, ConnectTimeoutError))


def _root_of(cause: BaseException) -> str:
    """Return the innermost reason: what wraps it repeats the address and the path, and how long this try was to wait."""
    if isinstance(cause, requests.exceptions.Timeout):
        return "no answer in time"
    while (inner := _inside(cause)) is not None:
        cause = inner
    text = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return _NOISE.sub("", text)


def _inside(cause: BaseException) -> BaseException | None:
    """Return the exception that another wraps: as a reason of its own, among its arguments, or as its cause."""
    wrapped = [getattr(item, "reason", item) for item in cause.args]
    found = [item for item in (*wrapped, cause.__cause__) if isinstance(item, BaseException)]
    return found[0] if found else None


def _told(client: Etcd3Client, message: str) -> str:
    return safe_line(f"etcd at {client.base_url}: {message}", 200)
