"""An etcd that says what no etcd says, or says no: every request gets its answer and its reason, and no thread is lost."""

from __future__ import annotations

import json
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event as Flag
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from store_clients import ask_in_vain

from planaria.base.loop import Loop
from planaria.store import etcd_watch
from planaria.store.api import Where
from planaria.store.backends import open_store
from planaria.store.follow import follow
from planaria.store.model import (
    Changed,
    Delete,
    Denied,
    Get,
    Grant,
    LeaseGone,
    Listed,
    Put,
    Refused,
    Renew,
    Unavailable,
)
from planaria.testing.store_client import Client, run_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planaria.store.model import Request

pytest.importorskip("etcd3gw")
CREATED = b'{"result":{"header":{"revision":"5"},"created":true}}\n'
EVENT = b'{"result":{"header":{"revision":"6"},"events":[{"kv":{"key":"aw==","value":"dg==","mod_revision":"6"}}]}}\n'


class _Server(ThreadingHTTPServer):
    daemon_threads = True


class FakeEtcd:
    """Answers every request with `status` and `body`, and the watches with `streams`, one after the other.

    The last stream is held open until the end, and is there for whoever asks again.
    """

    def __init__(self) -> None:
        self.status = 200
        self.body: object = {}
        self.streams: list[bytes] = []
        self.orders: list[dict[str, object]] = []
        self.over = Flag()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path.endswith("/watch"):
                    self._stream(asked)
                    return
                body = json.dumps(fake.body).encode()
                self.send_response(fake.status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _stream(self, asked: dict[str, object]) -> None:
                fake.orders.append(asked)
                is_last = len(fake.streams) == 1
                content = fake.streams[0] if is_last else fake.streams.pop(0)
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
                self.wfile.flush()
                if not is_last:
                    self.wfile.write(b"0\r\n\r\n")
                else:
                    fake.over.wait()
                self.close_connection = True

            def log_message(self, *_args: object) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def etcd() -> Iterator[FakeEtcd]:
    fake = FakeEtcd()
    yield fake
    fake.close()


@pytest.fixture
def client(etcd: FakeEtcd) -> Iterator[Client]:
    loop = Loop()
    made = Client(loop, open_store("etcd", loop, Where((etcd.address,))))
    yield made
    made.store.close()
    loop.close()


@pytest.mark.parametrize(
    ("asked", "body"),
    [
        (Put("k", b"v", 7), {"responses": []}),
        (Put("k", b"v", 7), {"succeeded": True, "responses": 5}),
        (Put("k", b"v", 7), {"responses": [3]}),
        (Put("k", b"v", 7), {"responses": [{"response_range": {"kvs": [{}]}}]}),
        (Put("k", b"v"), []),
        (Delete("k", 7), {"succeeded": True, "responses": []}),
        (Delete("k", 7), {"succeeded": True, "responses": [3]}),
        (Get("k"), {"kvs": [3]}),
        (Get("k"), {"kvs": {"a": 1}}),
        (Get("k"), {"kvs": [{"key": 5, "mod_revision": "1"}]}),
        (Grant(2.0), {"ID": [], "TTL": {}}),
        (Grant(2.0), "text"),
        (Renew(5), {"result": {"TTL": []}}),
        (Renew(5), None),
    ],
    ids=repr,
)
def test_an_answer_that_is_none_is_said_to_be_none(
    etcd: FakeEtcd, client: Client, asked: Request, body: object
) -> None:
    etcd.body = body
    (reply,) = ask_in_vain(client, asked)
    assert isinstance(reply, Unavailable)
    assert etcd.address in reply.why
    assert reply.maybe_done == isinstance(asked, (Put, Delete, Grant))


def test_answers_that_are_none_cost_no_thread(etcd: FakeEtcd, client: Client) -> None:
    etcd.body = {"responses": []}
    for _ in range(10):  # there are three threads
        reply = client.ask(Put("k", b"v", 7), timeout_s=20.0)
        assert isinstance(reply, Unavailable)
        assert "no answer within" not in reply.why


@pytest.mark.parametrize(
    ("status", "code", "message", "reply"),
    [
        (403, 7, "etcdserver: permission denied", Denied),
        (400, 3, "etcdserver: user name is empty", Denied),
        (429, 8, "etcdserver: mvcc: database space exceeded", Denied),
        (400, 3, "etcdserver: key is not provided", Refused),
        (404, 5, "etcdserver: requested lease not found", LeaseGone),
        (503, 14, "etcdserver: no leader", Unavailable),
    ],
)
def test_a_no_of_etcd_means_so(
    etcd: FakeEtcd, client: Client, status: int, code: int, message: str, reply: type
) -> None:
    etcd.status, etcd.body = status, {"error": message, "message": message, "code": code}
    (found,) = ask_in_vain(client, Put("k", b"v"))
    assert isinstance(found, reply)
    if isinstance(found, Denied):
        assert found.by_rights == ("space" not in message)
    if not isinstance(found, LeaseGone):
        assert message in found.why  # type: ignore[attr-defined]


def test_a_token_that_a_change_of_users_made_old_is_asked_for_anew(etcd: FakeEtcd, client: Client) -> None:
    message = "etcdserver: revision of auth store is old"
    etcd.status, etcd.body = 400, {"error": message, "message": message, "code": 3}
    (reply,) = ask_in_vain(client, Put("k", b"v"))
    assert isinstance(reply, Unavailable)
    assert message in reply.why


@pytest.mark.parametrize("odd", [b"[]\n", b"17\n", b'{"result":{"events":5}}\n', b'{"result":{"header":[]}}\n', b"{\n"])
def test_a_watch_survives_what_is_no_message(etcd: FakeEtcd, client: Client, odd: bytes) -> None:
    etcd.streams = [CREATED + odd, CREATED + EVENT]
    assert client.watch("k", 5).wait_for(1) == [Changed("k", b"v", 6)]


def test_a_watch_goes_on_after_the_progress_it_was_told_of(etcd: FakeEtcd, client: Client) -> None:
    progress, later = b'{"result":{"header":{"revision":"40"}}}\n', EVENT.replace(b'"6"', b'"46"')
    etcd.streams = [CREATED + progress, CREATED.replace(b'"5"', b'"45"') + later]
    client.watch("k", 5).wait_for(1)
    orders = [order["create_request"] for order in etcd.orders]
    assert [order["start_revision"] for order in orders] == [6, 41]  # type: ignore[index]
    assert all(order["progress_notify"] for order in orders)  # type: ignore[index]


@pytest.mark.parametrize("end", ["by the other side", "by silence"])
def test_an_etcd_that_was_set_up_anew_and_has_come_further_is_listed_again(
    etcd: FakeEtcd, client: Client, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its revision says nothing then, however the watch had ended."""
    told: list[object] = []
    if end == "by silence":
        monkeypatch.setattr(etcd_watch, "_SILENT_S", 0.2)

    def take(event: object) -> None:
        told.append(event)
        etcd.body = {"header": {"revision": "9"}, "kvs": []}

    etcd.body = {"header": {"revision": "5"}, "kvs": [{"key": "aw==", "value": "dg==", "mod_revision": "4"}]}
    further = CREATED.replace(b'"5"', b'"9"')
    etcd.streams = [CREATED, further] if end == "by the other side" else [further]
    following = follow(client.loop, client.store, "k", take)
    run_until(client.loop, lambda: len(told) > 1)
    first, then = told[:2]
    assert isinstance(first, Listed)
    assert [(entry.key, entry.value) for entry in first.entries] == [("k", b"v")]
    assert then == Listed((), 9)
    following.cancel()


def test_a_watch_is_patient_with_silence_and_the_kernel_looks_after_the_host(etcd: FakeEtcd, client: Client) -> None:
    etcd.streams = [CREATED + EVENT]
    watched = client.watch("k", 5)
    watched.wait_for(1)
    sock = watched.watching._answer.raw.connection.sock  # type: ignore[union-attr]
    assert sock.gettimeout() > 600  # in which etcd says how far it is
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    probes = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
    every_s = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) + probes * every_s <= 30


def test_a_watch_leaves_an_endpoint_together_with_the_requests(etcd: FakeEtcd) -> None:
    other = FakeEtcd()
    loop = Loop()
    try:
        etcd.streams, other.streams = [CREATED], [CREATED + EVENT]
        client = Client(loop, open_store("etcd", loop, Where((etcd.address, other.address))))
        watched = client.watch("k", 5)
        run_until(loop, lambda: loop.run_once(0.01) or etcd.orders)
        etcd.status, other.body = 503, {"header": {"revision": "5"}}
        client.ask(Get("k"))
        assert watched.wait_for(1) == [Changed("k", b"v", 6)]
        client.store.close()
    finally:
        other.close()
        loop.close()
