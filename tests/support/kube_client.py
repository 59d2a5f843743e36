"""Calls of a Kubernetes API server with nothing but the standard library, for tests and for the helpers of a test cluster."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

CALL_S = 30.0
MERGE = "application/merge-patch+json"


class Refused(Exception):
    """The API server answered, but not with what was asked for."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:500]}")
        self.status = status


class Who(NamedTuple):
    """Where an API server is, the authority that its certificate comes from, and who calls: by a certificate or a token."""

    host: str
    port: int
    authority: str
    certificate: tuple[str, str] | None = None  # its file and that of its key
    token: str = ""


class _Connection(http.client.HTTPSConnection):
    """Has its socket before it connects: one that is reset before `wrap_socket` gets it is left open by Python."""

    def __init__(self, who: Who, timeout_s: float, context: ssl.SSLContext) -> None:
        super().__init__(who.host, who.port, timeout=timeout_s)
        self._trust = context

    def connect(self) -> None:
        self.sock = self._trust.wrap_socket(socket.socket(), server_hostname=self.host)
        self.sock.settimeout(self.timeout)
        self.sock.connect((self.host, self.port))


class Client:
    """Every call is a connection of its own, so it may be shared by threads, and survives a server that comes and goes."""

    def __init__(self, who: Who) -> None:
        self.who = who
        self._context = ssl.create_default_context(cafile=who.authority)
        if who.certificate is not None:
            self._context.load_cert_chain(*who.certificate)

    def _ask(
        self, method: str, path: str, body: object, kind: str, timeout_s: float
    ) -> tuple[http.client.HTTPSConnection, http.client.HTTPResponse]:
        connection = _Connection(self.who, timeout_s, self._context)
        headers = {"Accept": "application/json", "Content-Type": kind}
        if self.who.token:
            headers["Authorization"] = f"Bearer {self.who.token}"
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            refusal = answer.read() if answer.status >= 300 else None
        except BaseException:
            connection.close()
            raise
        if refusal is not None:
            connection.close()
            raise Refused(answer.status, refusal.decode(errors="replace"))
        return connection, answer

    def call(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Any:
        """Return the JSON of the answer, or its text where it has none.

        Raises:
            Refused: It is no success.
            OSError: There was no answer. http.client.HTTPException: There was half of one.
        """
        connection, answer = self._ask(method, path, body, kind, CALL_S)
        try:
            text = answer.read().decode()
            return json.loads(text) if "json" in answer.headers.get("Content-Type", "") else text
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """Return an object, or a list of them."""
        return self.call("GET", path)

    def has(self, path: str) -> bool:
        """Tell whether there is such an object."""
        try:
            self.get(path)
        except Refused as exc:
            if exc.status != 404:
                raise
            return False
        return True

    def may(self, path: str) -> bool:
        """Tell whether an object would be shown: the server hears of a role a moment after it was made."""
        try:
            self.has(path)
        except Refused as exc:
            if exc.status != 403:
                raise
            return False
        return True

    def create(self, path: str, body: object) -> Any:
        """Make an object in the collection of that path."""
        return self.call("POST", path, body)

    def patch(self, path: str, body: object) -> Any:
        """Merge some fields into an object."""
        return self.call("PATCH", path, body, MERGE)

    def delete(self, path: str) -> None:
        """Delete an object, whether it is there or not."""
        try:
            self.call("DELETE", path)
        except Refused as exc:
            if exc.status != 404:
                raise

    def watch(self, path: str, since: str) -> Iterator[dict[str, Any]]:
        """Give the events of a collection from a revision on, until the server ends it or nothing comes for a while."""
        connection, answer = self._ask(
            "GET", f"{path}?watch=1&allowWatchBookmarks=1&resourceVersion={since}", None, "application/json", 120.0
        )
        try:
            while line := answer.readline():
                yield json.loads(line)
        finally:
            connection.close()
