"""One thread's way to a Kubernetes API server: one connection, a token that may change, and what each failure means.

Everything here blocks and belongs to one thread, except `Access`, which all threads of a store share. The standard library
does it: the official client takes a second to import and 50 MB of memory, and knows nothing that is needed here.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import ssl
from email.utils import parsedate_to_datetime
from urllib.parse import quote, urlsplit

from planaria.base.keep_alive import keep_alive
from planaria.base.text import safe_line
from planaria.base.value import Value
from planaria.errors import UsageError
from planaria.store.kubernetes_account import ACCOUNT, own_namespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event as Flag
    from typing import Any

    from planaria.store.api import Where

    Json = dict[str, Any]

CONFIG_MAPS, LEASES = "/api/v1/namespaces/{}/configmaps", "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
_KINDS = {CONFIG_MAPS: "ConfigMap", LEASES: "Lease"}
_PAUSE_S = 0.25  # before the next try
_DENIED_S = 0.5  # before the next try of who was denied: people have to see to it, or it comes in a moment
_SHORTEST_TRY_S = 0.5
_CONNECT_WITHIN_S = 3.0  # with TLS: who takes a connection and says nothing may be a door with nobody behind it
_ANSWER_WITHIN_S = 5.0  # for a stream to begin
_LONGEST_WAIT_S = 30.0  # whatever the API server says
_IDLE_S = 20.0  # a connection that was silent for longer may be about to be closed by the other side
_BODY_LIMIT_BYTES = 8 << 20
_OK, _UNAUTHORISED, _FORBIDDEN, _NOT_FOUND, _CONFLICT, _GONE = 200, 401, 403, 404, 409, 410
_TOO_LARGE, _INVALID, _TOO_MANY = 413, 422, 429


class ApiAway(Exception):
    """No answer, or none that tells whether the request was performed. `was_sent`: the API server may have got it."""

    def __init__(self, why: str, *, was_sent: bool) -> None:
        super().__init__(why)
        self.was_sent = was_sent


class ApiDenied(Exception):
    """Not done as things are. `by_rights`: we were not let in, may not do this, or what we may use is missing; else no room."""

    def __init__(self, why: str, *, by_rights: bool) -> None:
        super().__init__(why)
        self.by_rights = by_rights


class ApiConflict(Exception):
    """Somebody wrote the object first."""


class ApiForgot(Exception):
    """The API server does not remember that far back."""


class Access(Value):
    """Where the API server is and how to be let in; which objects are meant."""

    server: str
    tls: ssl.SSLContext | None
    token_file: str
    namespace: str
    name: str

    @property
    def place(self) -> str:
        """How to call the two objects to people."""
        return f"{self.namespace}/{self.name}"


def access_to(where: Where) -> Access:
    """Return how to reach the two objects that an endpoint `[NAMESPACE/]NAME` names.

    Raises:
        UsageError: Something that is needed is missing.
    """
    options = dict(where.options)
    if len(where.endpoints) != 1:
        raise UsageError(
            f"the store in Kubernetes needs one endpoint, got {len(where.endpoints)}",
            hint="--rdzv-endpoint=[NAMESPACE/]NAME, the name of a Lease and a ConfigMap",
        )
    namespace, _, name = where.endpoints[0].rpartition("/")
    server = options.get("server", "")
    if not server:
        raise UsageError(
            "the store in Kubernetes needs the address of the API server, which KUBERNETES_SERVICE_HOST tells in a pod",
            hint="elsewhere: --rdzv-conf=server=https://HOST:PORT,cacert=FILE,token_file=FILE",
        )
    secure = server.startswith("https://")
    token_file = options.get("token_file") or ("" if where.cert or not secure else f"{ACCOUNT}/token")
    ca = where.ca or (f"{ACCOUNT}/ca.crt" if secure and os.access(f"{ACCOUNT}/ca.crt", os.R_OK) else "")
    for path in filter(None, (token_file, ca, where.cert, where.key)):
        if not os.access(path, os.R_OK):
            raise UsageError(
                f"the store in Kubernetes cannot read {path!r}",
                hint="in a pod the service account's token must be mounted; elsewhere --rdzv-conf=token_file=FILE,cacert=FILE",
            )
    namespace = namespace or own_namespace("default")  # as everywhere in Kubernetes, where nobody says otherwise
    return Access(server, _tls(ca, where) if secure else None, token_file, namespace, name)


def _tls(ca: str, where: Where) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if where.cert:
            context.load_cert_chain(where.cert, where.key or None)
    except OSError as exc:  # SSLError is one
        raise UsageError(f"the certificates for the API server cannot be used: {exc}") from exc
    return context


class Manners:
    """Until when the API server asked a client to wait. All threads of a store share one."""

    until = 0.0


class Api:
    """The connection of one thread. `closing` ends every wait."""

    def __init__(self, access: Access, manners: Manners, clock: Callable[[], float], closing: Flag) -> None:
        self.access = access
        self._manners = manners
        self._clock = clock
        self._closing = closing
        self._address = urlsplit(access.server)
        self._connection: http.client.HTTPConnection | None = None
        self._used_at = 0.0
        self._token = ""
        self._token_seen: tuple[int, int] | None = None
        self._server_time: tuple[float, float] | None = None

    @property
    def is_closing(self) -> bool:
        """Tell whether nobody waits for an answer any more."""
        return self._closing.is_set()

    def get(self, kind: str, within_s: float) -> Json:
        """Return an object as it is now."""
        return self._repeat("GET", self._path(kind), None, within_s)

    def list(self, kind: str, within_s: float) -> tuple[Json, str]:
        """Return the object as a list of one, and the version that a watch may begin after."""
        found = self._repeat("GET", f"{self._path(kind, named=False)}?{self._selector()}", None, within_s)
        items = found.get("items") or []
        if not items:
            raise self._missing(kind)
        return items[0], str((found.get("metadata") or {}).get("resourceVersion", ""))

    def put(self, kind: str, body: Json, within_s: float) -> Json:
        """Write an object, if it is still of the version that the body names. Sent again only while nobody has seen it.

        Raises:
            ApiConflict: It is of another version.
        """
        return self._repeat("PUT", self._path(kind), body, within_s)

    def patch(self, kind: str, change: Json, within_s: float) -> Json:
        """Change some fields of an object, whatever its version. To do so twice is as good as once."""
        return self._repeat("PATCH", self._path(kind), change, within_s)

    def watch(self, kind: str, after: str, silent_s: float) -> http.client.HTTPResponse:
        """Open the stream of an object's versions, not before the API server wants to be asked again.

        It ends by itself a little before `silent_s`.
        """
        if self._closing.wait(max(0.0, self._manners.until - self._clock())):
            raise ApiAway(f"{self._called()}: it asked us to wait", was_sent=False)
        query = (
            f"watch=true&allowWatchBookmarks=true&timeoutSeconds={int(silent_s * 0.8)}&resourceVersion={quote(after)}"
        )
        path = f"{self._path(kind, named=False)}?{query}&{self._selector()}"
        answer = self._send("GET", path, None, _ANSWER_WITHIN_S)
        if answer.status != _OK:
            raise self._meaning_of("GET", path, answer.status, answer.read(_BODY_LIMIT_BYTES), answer.headers)
        if self._connection is not None and self._connection.sock is not None:
            self._connection.sock.settimeout(silent_s)  # the next line may take much longer than the first
        return answer

    def interrupt(self) -> None:
        """End what another thread waits for at this connection; from any thread."""
        connection = self._connection
        sock = connection.sock if connection is not None else None
        if sock is not None:
            import socket

            try:
                socket.socket.shutdown(
                    sock, socket.SHUT_RDWR
                )  # not TLS's own, which would pull its state from under a reader
            except OSError:  # it has ended meanwhile
                return

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def server_now(self) -> float:
        """Return the API server's wall clock, to the second; 0 when it never told."""
        if self._server_time is None:
            return 0.0
        told, at = self._server_time
        return told + self._clock() - at

    def _path(self, kind: str, *, named: bool = True) -> str:
        folder = kind.format(quote(self.access.namespace, safe=""))
        return f"{folder}/{quote(self.access.name, safe='')}" if named else folder

    def _selector(self) -> str:
        return f"fieldSelector=metadata.name%3D{quote(self.access.name, safe='')}"

    def _repeat(self, method: str, path: str, body: Json | None, within_s: float) -> Json:
        """Ask until there is an answer or no time. Rights and objects that were applied together come a moment apart."""
        deadline = self._clock() + within_s
        pause_s = self._manners.until - self._clock()
        why = "it asked us to wait" if pause_s > 0 else "no time was left to try"
        problem: Exception = ApiAway(f"{self._called()}: {why}", was_sent=False)
        while not self._closing.wait(min(max(pause_s, 0.0), max(0.0, deadline - self._clock()))):
            left_s = deadline - self._clock()
            if left_s <= 0:
                break
            pause_s = _PAUSE_S
            try:
                return self._once(method, path, body, max(left_s, _SHORTEST_TRY_S))
            except ApiAway as exc:
                if exc.was_sent and method == "PUT":
                    raise
                problem, pause_s = exc, max(_PAUSE_S, self._manners.until - self._clock())
            except ApiDenied as exc:
                if not exc.by_rights:
                    raise
                problem, pause_s = exc, _DENIED_S
        raise problem

    def _once(self, method: str, path: str, body: Json | None, timeout_s: float) -> Json:
        data = None if body is None else json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        answer = self._send(method, path, data, timeout_s)
        try:
            content = answer.read(_BODY_LIMIT_BYTES)
        except (OSError, http.client.HTTPException) as exc:
            self.close()
            raise ApiAway(self._told(exc), was_sent=True) from exc
        self._used_at = self._clock()
        self._note_time(answer.headers)
        if answer.status != _OK:
            raise self._meaning_of(method, path, answer.status, content, answer.headers)
        try:
            found = json.loads(content)
        except ValueError as exc:
            raise ApiAway(f"{self._called()}: the answer is not an API server's", was_sent=True) from exc
        if not isinstance(found, dict):
            raise ApiAway(f"{self._called()}: the answer is not an API server's", was_sent=True)
        return found

    def _send(self, method: str, path: str, data: bytes | None, timeout_s: float) -> http.client.HTTPResponse:
        connection = self._connected(timeout_s)
        headers = {"Accept": "application/json", "User-Agent": "planaria"}
        if data is not None:
            headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
        if self.access.tls is not None and self.access.token_file:
            headers["Authorization"] = f"Bearer {self._current_token()}"
        try:
            connection.request(method, path, data, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as exc:
            self.close()
            raise ApiAway(self._told(exc), was_sent=True) from exc

    def _connected(self, timeout_s: float) -> http.client.HTTPConnection:
        """Return the connection, made anew when it may have been closed by the other side: a write must not be lost by that."""
        if self._connection is not None and (self._clock() - self._used_at > _IDLE_S or _is_left(self._connection)):
            self.close()
        if self._connection is None:
            host, port, within_s = self._address.hostname or "", self._address.port, min(timeout_s, _CONNECT_WITHIN_S)
            made = (
                http.client.HTTPSConnection(host, port, timeout=within_s, context=self.access.tls)
                if self.access.tls is not None
                else http.client.HTTPConnection(host, port, timeout=within_s)
            )
            try:
                made.connect()
                keep_alive(made.sock)
            except OSError as exc:
                made.close()
                raise ApiAway(self._told(exc), was_sent=False) from exc
            self._connection, self._used_at = made, self._clock()
        self._connection.sock.settimeout(timeout_s)
        return self._connection

    def _current_token(self) -> str:
        """Return the token; the kubelet writes a new file before the old token ends."""
        try:
            status = os.stat(self.access.token_file)
            if self._token_seen != (status.st_mtime_ns, status.st_ino):
                with open(self.access.token_file, encoding="ascii") as file:
                    self._token = file.read().strip()
                self._token_seen = (status.st_mtime_ns, status.st_ino)
        except (OSError, ValueError) as exc:
            if not self._token:
                raise ApiDenied(
                    f"the token file {self.access.token_file!r} cannot be read: {exc}", by_rights=True
                ) from exc
        return self._token

    def _note_time(self, headers: http.client.HTTPMessage) -> None:
        told = headers.get("Date")
        if told is not None:
            try:
                self._server_time = (parsedate_to_datetime(told).timestamp(), self._clock())
            except ValueError:
                return

    def _meaning_of(
        self, method: str, path: str, status: int, content: bytes, headers: http.client.HTTPMessage
    ) -> Exception:
        """Return what an answer that is not good says about the request."""
        said = f"{self._called()}: {_message(content, status)}"
        if status == _CONFLICT:
            return ApiConflict(said)
        if status == _GONE:
            return ApiForgot(said)
        if status == _UNAUTHORISED:
            self._token_seen = None  # read it again, whatever its file looks like
            return ApiDenied(f"{said} (it does not know who we are: is the token a valid one?)", by_rights=True)
        if status == _NOT_FOUND:
            return self._missing(CONFIG_MAPS if path.startswith(self._path(CONFIG_MAPS, named=False)) else LEASES)
        if status == _FORBIDDEN:
            return ApiDenied(said, by_rights=True)
        if status in (_TOO_LARGE, _INVALID):
            return ApiDenied(said, by_rights=False)
        self._manners.until = max(self._manners.until, self._clock() + _retry_after_s(headers))
        return ApiAway(said, was_sent=status != _TOO_MANY and method != "GET")

    def _missing(self, kind: str) -> ApiDenied:
        return ApiDenied(
            f"there is no {_KINDS[kind]} {self.access.place}: an agent may not make it, so it must be there before",
            by_rights=True,
        )

    def _called(self) -> str:
        return f"the API server at {self.access.server}"

    def _told(self, exc: Exception) -> str:
        if isinstance(exc, TimeoutError):
            why = "no answer in time"
        elif isinstance(exc, ssl.SSLCertVerificationError):
            why = f"its certificate is not accepted: {exc.verify_message.rstrip('.')}"
        elif isinstance(exc, ssl.SSLError):
            why = f"it broke TLS ({(exc.reason or 'unknown reason').lower().replace('_', ' ')})"
        elif isinstance(exc, OSError) and exc.strerror:
            why = exc.strerror
        else:
            why = str(exc) or type(exc).__name__
        return safe_line(f"{self._called()}: {why}", 200)


def _is_left(connection: http.client.HTTPConnection) -> bool:
    """Tell whether the other side has closed a connection, or said something that nobody asked for."""
    return connection.sock is None or bool(select.select([connection.sock], [], [], 0)[0])


def _message(content: bytes, status: int) -> str:
    """Return the sentence in a Status object."""
    try:
        found = json.loads(content)
        text = str(found["message"])
    except (ValueError, LookupError, TypeError):
        text = ""
    return safe_line(text or f"{status} {http.client.responses.get(status, '')}", 300)


def _retry_after_s(headers: http.client.HTTPMessage) -> float:
    told = headers.get("Retry-After", "")
    return min(float(told), _LONGEST_WAIT_S) if told.isascii() and told.isdigit() else _PAUSE_S
