"""A proxy in front of moto's server: chosen requests are refused, not heard, not answered, answered by half or by nonsense.

What becomes of a request is decided where it is sent, and travels with it as a header: so whoever sends one that nobody will
hear knows it, and waits for a moment only, while every other request has all the time that a busy machine takes.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.httpsession import URLLib3Session
from ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planaria.aws.session import Cloud

CONNECT_S = 20.0
UNHEARD_S = (
    0.02  # until the client gives up a request that nobody hears: nothing else could happen, however long it waits
)
HEADER = "X-Fault"

GATEWAY = (200, {"Content-Type": "text/html"}, b"<p>Log in to this network & go on<p>")
CODES = {"denied": (403, "AccessDenied"), "throttled": (400, "ThrottlingException")}


class Proxy:
    """Forward to `target`; `fault(number)` says what becomes of the request with this number, counted from 0."""

    def __init__(self, target: str) -> None:
        self._host = target.removeprefix("http://")
        self.fault: Callable[[int], str | None] = lambda _: None
        self.seen: list[str] = []
        self.passed: Callable[[str], object] = lambda _: None  # told of what was asked, before its answer is passed on
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._impatient = URLLib3Session(timeout=(CONNECT_S, UNHEARD_S))
        self._server = ThreadingHTTPServer(("127.0.0.1", free_port()), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def begin(self, fault: Callable[[int], str | None]) -> None:
        """Count from 0 again, with these faults."""
        with self._lock:
            self.seen = []
            self.fault = fault

    def decide_for(self, cloud: Cloud) -> None:
        """Give the requests of these clients their faults."""
        for client in cloud._clients.values():
            client.meta.events.register("before-send", self._decide)

    def _decide(self, request: Any, **_: object) -> object:
        headers = {key: value.decode() if isinstance(value, bytes) else value for key, value in request.headers.items()}
        what = _what(request.method, urlsplit(request.url).path, headers, request.body)
        fault = self.fault(self._number(f"{_service(headers)} {what}"))
        if fault is None:
            return None
        request.headers[HEADER] = fault
        return self._impatient.send(request) if fault == "unheard" else None

    def vanish(self) -> None:
        """Refuse new connections. The port stays ours: it was asked for by its number."""
        self._server.socket.shutdown(socket.SHUT_RDWR)

    def appear(self) -> None:
        """Take connections again."""
        self._server.socket.listen()

    def close(self) -> None:
        """End the server and every request that hangs."""
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._impatient.close()

    def _number(self, what: str) -> int:
        with self._lock:
            self.seen.append(what)
            return len(self.seen) - 1

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(size)
                fault = self.headers.get(HEADER, "")
                if fault in CODES:
                    self._send(*_refusal(_service(self.headers), *CODES[fault]))
                    return
                if fault == "garbled":
                    self._send(*GATEWAY)
                    return
                if fault == "unheard":
                    proxy._over.wait()
                answer = None if fault == "unheard" else _forward(proxy._host, self, body)
                if answer is None or fault == "unanswered":
                    self.close_connection = True
                    return
                proxy.passed(_what(self.command, self.path, self.headers, body))
                self._send(*answer, is_whole=fault != "half")

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any  # noqa: N815  as the base class calls them

            def _send(self, status: int, headers: dict[str, str], body: bytes, *, is_whole: bool = True) -> None:
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body if is_whole else body[: len(body) // 2])
                self.close_connection = self.close_connection or not is_whole

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as the base class has it
                """Say nothing."""

        return Handler


def _what(method: str, path: str, headers: Mapping[str, str], body: object) -> str:
    text = body.decode("latin-1") if isinstance(body, bytes) else body if isinstance(body, str) else ""
    action = re.search(r"Action=(\w+)", text)
    target = headers.get("X-Amz-Target", "").rpartition(".")[2]
    return action[1] if action else target or f"{method} {path}"


def _forward(host: str, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(host, timeout=30)
    try:
        headers = {
            key: value for key, value in request.headers.items() if key.lower() not in ("expect", HEADER.lower())
        }
        connection.request(request.command, request.path, body, headers)
        answer = connection.getresponse()
        skipped = ("transfer-encoding", "connection", "content-length", "server", "date")
        kept = {key: value for key, value in answer.getheaders() if key.lower() not in skipped}
        return answer.status, kept, answer.read()
    finally:
        connection.close()


def _service(headers: Mapping[str, str]) -> str:
    found = re.search(r"Credential=[^/]+/\d+/[^/]+/([^/]+)/", headers.get("Authorization", ""))
    return found[1] if found else "nobody"


def _refusal(service: str, status: int, code: str) -> tuple[int, dict[str, str], bytes]:
    """Return a refusal as this service writes it."""
    if service in ("ssm", "logs"):
        return (
            status,
            {"Content-Type": "application/x-amz-json-1.1"},
            json.dumps({"__type": code, "message": "no"}).encode(),
        )
    error = f"<Error><Code>{code}</Code><Message>no</Message></Error>"
    wrapped = {"ec2": f"<Response><Errors>{error}</Errors></Response>", "s3": error}
    body = wrapped.get(service, f"<ErrorResponse>{error}</ErrorResponse>")
    return status, {"Content-Type": "text/xml"}, f'<?xml version="1.0"?>{body}'.encode()
