"""One thread's way to etcd: several endpoints, a user's token, and what each failure means for the request.

Everything here blocks and belongs to one thread. `etcd.py` says why etcd3gw, and brings the answers to the loop.
"""

from __future__ import annotations

import json

import requests
from etcd3gw.client import Etcd3Client
from etcd3gw.exceptions import Etcd3Exception
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

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
_NOT_FOUND, _EXHAUSTED, _PRECONDITION, _UNAUTHENTICATED = 5, 8, 9, 16  # gRPC's status codes
_FINAL = (3, _NOT_FOUND, 7, 12)  # bad argument, no such lease, not permitted, no such method


class EtcdRefused(Exception):
    """Etcd will not do this. `is_missing`: what was asked for, a lease, does not exist."""

    def __init__(self, why: str, *, is_missing: bool = False) -> None:
        super().__init__(why)
        self.is_missing = is_missing


class EtcdAway(Exception):
    """No endpoint gave an answer. `was_sent`: one of them may have got the request."""

    def __init__(self, why: str, *, was_sent: bool) -> None:
        super().__init__(why)
        self.was_sent = was_sent


class Favourite:
    """The endpoint that all threads of a store use, until one of them finds it wanting."""

    def __init__(self) -> None:
        self.place = 0


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

    def choose(self) -> None:
        """Use the favourite for what comes next."""
        self._place = self._favourite.place

    def call(self, path: str, body: Mapping[str, object], *, repeatable: bool, within_s: float) -> dict[str, Any]:
        """Return etcd's answer.

        Raises:
            EtcdRefused: It said no.
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

    def login(self) -> None:
        """Get a token for the user, if there is one and we have none."""
        client = self.client
        if not self._where.user or "Authorization" in client.session.headers:
            return
        body = {"name": self._where.user, "password": self._where.password}
        try:
            answer = _post(client, "/auth/authenticate", body)
        except _AuthOff:
            return  # an etcd without users lets everybody in
        except _TokenRefused as exc:
            raise EtcdRefused(f"etcd does not let {self._where.user!r} in: {exc}") from exc
        except EtcdRefused as exc:
            raise EtcdRefused(f"etcd does not let {self._where.user!r} in: {exc}") from exc
        except EtcdAway as exc:
            raise EtcdAway(str(exc), was_sent=False) from exc  # the token may have been made; the request was not sent
        client.session.headers["Authorization"] = str(answer.get("token"))

    def logout(self) -> None:
        """Forget the token: the next request gets a new one."""
        self.client.session.headers.pop("Authorization", None)

    def turn(self) -> None:
        """Make the next endpoint the favourite, unless another thread was first."""
        if self._favourite.place == self._place:
            self._favourite.place = (self._place + 1) % len(self._clients)

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.session.close()


class _TokenRefused(Exception):
    """The token is not known to this etcd, which may have restarted."""


class _AuthOff(Exception):
    """This etcd has no users."""


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
    if code == _UNAUTHENTICATED:
        return _TokenRefused(told)
    if code == _PRECONDITION and "authentication is not enabled" in message:
        return _AuthOff(told)
    if code in _FINAL or (code == _EXHAUSTED and "space exceeded" in message):
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
    """Return the innermost reason: what wraps it repeats the address and the path."""
    while cause.args and isinstance(getattr(cause.args[0], "reason", cause.args[0]), BaseException):
        cause = getattr(cause.args[0], "reason", cause.args[0])
    return str(cause)


def _told(client: Etcd3Client, message: str) -> str:
    return safe_line(f"etcd at {client.base_url}: {message}", 200)
