"""A stand-in for the metadata service of an EC2 instance, at its own address in a network namespace.

It speaks version 2 alone: a token by PUT, with a time to live, and 401 for whoever has none. A spot notice, a
recommendation to leave and the group's plans for the instance are there when a test says so.

    with Metadata("plt12x1h4", "i-1", "10.77.0.4") as metadata:
        metadata.spot = {"action": "terminate", "time": "2026-01-01T00:00:00Z"}
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

ADDRESS = "169.254.169.254"
ROLE = "planaria-worker"
ACCESS_KEY = "ASIAINSTANCEROLE"  # what a host signs its requests with when it has its key from here
LONGEST_TTL_S = 21600
_CLONE_NEWNET = 0x40000000
_T = TypeVar("_T")


def in_namespace(name: str, call: Callable[[], _T]) -> _T:
    """Return what `call` does in a network namespace. Sockets and threads that it makes stay there."""
    done: list[_T] = []
    problem: list[BaseException] = []

    def work() -> None:
        try:
            namespace = os.open(f"/run/netns/{name}", os.O_RDONLY)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            finally:
                os.close(namespace)
            done.append(call())
        except BaseException as exc:  # noqa: BLE001  handed to whoever called
            problem.append(exc)

    thread = threading.Thread(target=work)  # a namespace is a thread's; this one's ends with it
    thread.start()
    thread.join()
    if problem:
        raise problem[0]
    return done[0]


class Metadata:
    """The service of one instance. What is None is not there: 404."""

    def __init__(self, namespace: str, instance: str, address: str) -> None:
        self._namespace = namespace
        self.instance = instance
        self.address = address
        self.spot: dict[str, str] | None = None
        self.rebalance: dict[str, str] | None = None
        self.lifecycle: str | None = "InService"
        self.refused = 0
        self._tokens: dict[str, float] = {}

    def __enter__(self) -> Self:
        given = ["ip", "-n", self._namespace, "address", "add", f"{ADDRESS}/32", "dev", "lo"]
        subprocess.run(given, check=True, capture_output=True)
        self._server = in_namespace(self._namespace, lambda: _Server((ADDRESS, 80), self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        taken = ["ip", "-n", self._namespace, "address", "del", f"{ADDRESS}/32", "dev", "lo"]
        subprocess.run(taken, check=False, capture_output=True)

    def new_token(self, ttl_s: int) -> str:
        token = secrets.token_urlsafe(40)
        self._tokens[token] = time.monotonic() + ttl_s
        return token

    def knows(self, token: str | None) -> bool:
        known = token is not None and self._tokens.get(token, 0.0) > time.monotonic()
        self.refused += not known
        return known

    def value(self, path: str) -> str | None:
        """Return what is at a path below /latest/, None where there is nothing."""
        until = "2099-01-01T00:00:00Z"
        credentials = {"Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": ACCESS_KEY, "SecretAccessKey": "secret"}
        found: dict[str, Any] = {
            "dynamic/instance-identity/document": {"instanceId": self.instance, "region": "us-east-1"},
            "meta-data/instance-id": self.instance,
            "meta-data/local-ipv4": self.address,
            "meta-data/spot/instance-action": self.spot,
            "meta-data/events/recommendations/rebalance": self.rebalance,
            "meta-data/autoscaling/target-lifecycle-state": self.lifecycle,
            "meta-data/iam/security-credentials/": ROLE,
            f"meta-data/iam/security-credentials/{ROLE}": {
                **credentials,
                "Token": "session",
                "Expiration": until,
                "LastUpdated": "2020-01-01T00:00:00Z",
            },
        }
        value = found.get(path)
        return value if value is None or isinstance(value, str) else json.dumps(value)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, where: tuple[str, int], metadata: Metadata) -> None:
        self.metadata = metadata
        super().__init__(where, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_PUT(self) -> None:
        ttl = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        if self.path != "/latest/api/token":
            self._answer(404, "")
        elif self.headers.get("X-Forwarded-For"):
            self._answer(403, "")  # as EC2 does: a proxy that was talked into asking gets nothing
        elif not ttl.isdecimal() or not 1 <= int(ttl) <= LONGEST_TTL_S:
            self._answer(400, "")
        else:
            self._answer(200, self.server.metadata.new_token(int(ttl)), ttl)

    def do_GET(self) -> None:
        if not self.server.metadata.knows(self.headers.get("X-aws-ec2-metadata-token")):
            self._answer(401, "")
            return
        value = self.server.metadata.value(self.path.removeprefix("/latest/"))
        self._answer(404, "") if value is None else self._answer(200, value)

    def _answer(self, status: int, text: str, ttl: str = "") -> None:
        content = text.encode()
        self.send_response(status)
        if ttl:  # Amazon's library for Go, which is dockerd's, takes no token without it
            self.send_header("X-aws-ec2-metadata-token-ttl-seconds", ttl)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  http.server's name
        """Say nothing."""
