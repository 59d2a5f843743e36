"""A server on loopback that is to one Lease and one ConfigMap what a Kubernetes API server is, and fails on order.

It is for faults that a real API server shows when it likes to and not when a test wants it to; everything else is tested with a
real one. Faults are taken by the next requests that they fit, one each.
"""

from __future__ import annotations

import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]


class Fault(NamedTuple):
    """What to do instead: answer with a status, or (0) cut the connection before, or (-1) after doing what was asked."""

    method: str
    kind: str
    status: int
    headers: tuple[tuple[str, str], ...] = ()


class Seen(NamedTuple):
    method: str
    kind: str
    query: dict[str, list[str]]
    token: str


class ScriptedApi:
    """The server: `objects` by kind, `seen` in order, `faults` to come."""

    def __init__(self) -> None:
        self.lock = threading.Condition()
        self.version = 100
        self.objects: dict[str, Json] = {}
        self.history: list[tuple[str, str, Json]] = []
        self.oldest = 100
        self.seen: list[Seen] = []
        self.faults: list[Fault] = []
        self.is_over = False
        self.is_away = False
        api = self

        class Handler(_Handler):
            server_api = api

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        for kind in ("configmaps", "leases"):
            self.make(kind)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def make(self, kind: str) -> None:
        with self.lock:
            self.objects[kind] = {"metadata": {"name": "job-run", "namespace": "ours", "uid": str(uuid.uuid4())}}
            self._written(kind, "ADDED")

    def write(self, kind: str, body: Json) -> Json | None:
        """Write an object if its version is the present one."""
        with self.lock:
            now = self.objects[kind]["metadata"]["resourceVersion"]
            if body["metadata"]["resourceVersion"] != now:
                return None
            self.objects[kind] = body
            return self._written(kind, "MODIFIED")

    def remove(self, kind: str) -> None:
        with self.lock:
            self._written(kind, "DELETED")
            del self.objects[kind]

    def _written(self, kind: str, what: str) -> Json:
        self.version += 1
        metadata = {**self.objects[kind]["metadata"], "resourceVersion": f"v{self.version}"}
        self.objects[kind] = {**self.objects[kind], "metadata": metadata}
        self.history.append((kind, what, self.objects[kind]))
        self.lock.notify_all()
        return self.objects[kind]

    def forget(self) -> None:
        """Remember no version but the present ones."""
        with self.lock:
            self.oldest = self.version
            self.lock.notify_all()

    def take_fault(self, method: str, kind: str) -> Fault | None:
        if self.is_away:
            return Fault(method, kind, 0)
        with self.lock:
            for fault in self.faults:
                if (fault.method, fault.kind) == (method, kind):
                    self.faults.remove(fault)
                    return fault
        return None

    def events(self, kind: str, after: int) -> Iterator[tuple[str, Json]]:
        """Give what happens to an object after a version, without end."""
        while not self.is_over and not self.is_away:
            with self.lock:
                if after < self.oldest:
                    yield "ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"}
                    return
                fresh = [(what, found) for one, what, found in self.history if one == kind and _number(found) > after]
                if not fresh:
                    self.lock.wait(0.05)
                    continue
            for what, found in fresh:
                after = _number(found)
                yield what, found

    def count(self, method: str, kind: str) -> int:
        with self.lock:
            return sum((one.method, one.kind) == (method, kind) for one in self.seen)

    def close(self) -> None:
        self.is_over = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _number(found: Json) -> int:
    return int(found["metadata"]["resourceVersion"][1:])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_api: ScriptedApi

    def log_message(self, *_args: object) -> None:
        pass

    def do_GET(self) -> None:
        api, kind = self.server_api, self._kind()
        query = parse_qs(urlsplit(self.path).query)
        method = "WATCH" if "watch" in query else "LIST" if query else "GET"
        if self._fails(method, kind, query):
            return
        found = api.objects.get(kind)
        if method == "WATCH":
            self._stream(kind, int(query["resourceVersion"][0][1:]))
        elif method == "LIST":
            items = [found] if found else []
            self._answer(200, {"items": items, "metadata": {"resourceVersion": f"v{api.version}"}})
        elif found is None:
            self._answer(404, {"message": "not found"})
        else:
            self._answer(200, found)

    def do_PUT(self) -> None:
        kind = self._kind()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = self._fails("PUT", kind, {})
        if fault and fault.status != -1:
            return
        found = self.server_api.write(kind, body)
        if fault:
            self.close_connection = True
        elif found is None:
            self._answer(409, {"message": "the object has been modified"})
        else:
            self._answer(200, found)

    def do_PATCH(self) -> None:
        api, kind = self.server_api, self._kind()
        change = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._fails("PATCH", kind, {}):
            return
        with api.lock:
            found = api.objects[kind]
            merged = {**found, "data": {**found.get("data", {}), **change["data"]}}
        written = api.write(kind, merged)
        assert written is not None
        self._answer(200, written)

    def _fails(self, method: str, kind: str, query: dict[str, list[str]]) -> Fault | None:
        api = self.server_api
        with api.lock:
            api.seen.append(Seen(method, kind, query, self.headers.get("Authorization", "")))
        fault = api.take_fault(method, kind)
        if fault is not None and fault.status > 0:
            self._answer(fault.status, {"message": f"scripted {fault.status}"}, dict(fault.headers))
        elif fault is not None:
            self.close_connection = True
        return fault

    def _kind(self) -> str:
        return "leases" if "/leases" in self.path else "configmaps"

    def _answer(self, status: int, body: Json, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, kind: str, after: int) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        try:
            for what, found in self.server_api.events(kind, after):
                line = json.dumps({"type": what, "object": found}).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            return
