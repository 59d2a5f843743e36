from __future__ import annotations

import asyncio
import os
import socket

import pytest

from planaria.dashboard import peers
from planaria.dashboard.door import Door
from planaria.dashboard.peers import is_ours, owner_in
from planaria.observe.request import Reply, Request

NOBODY = 65534
V4 = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2049 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4026 1 0000000000000000 100 0 0 10 0
   1: 0100007F:2049 0100007F:D431 01 00000000:00000000 00:00000000 00000000  1000        0 4027 1 0000000000000000 20 4 30 10 -1
   2: 0100007F:D431 0100007F:2049 01 00000000:00000000 00:00000000 00000000  1001        0 4028 1 0000000000000000 20 4 30 10 -1
   3: 0100007F:D432 0100007F:2049 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0000000000000000 20 4 30 10 -1
"""
V6 = """\
   0: 0000000000000000FFFF00000100007F:D433 0000000000000000FFFF00000100007F:2049 01 0:0 00:0 0  1002        0 4029 1 0
   1: 00000000000000000000000001000000:D434 00000000000000000000000001000000:2049 01 0:0 00:0 0  1003        0 4030 1 0
"""


@pytest.mark.skipif(peers.sys.byteorder != "little", reason="the tables are as machines of the other kind write them")
def test_the_client_end_of_a_connection_is_found_with_its_user() -> None:
    assert owner_in(V4, ("127.0.0.1", 0xD431), ("127.0.0.1", 8265)) == 1001
    assert owner_in(V4, ("::ffff:127.0.0.1", 0xD431), ("::ffff:127.0.0.1", 8265)) == 1001
    assert owner_in(V6, ("127.0.0.1", 0xD433), ("127.0.0.1", 8265)) == 1002
    assert owner_in(V6, ("::1", 0xD434), ("::1", 8265)) == 1003
    assert owner_in(V4, ("127.0.0.1", 0xD435), ("127.0.0.1", 8265)) is None
    assert owner_in(V4, ("127.0.0.1", 0xD432), ("127.0.0.1", 8265)) is None, "its process has left it: not root's"


def test_without_a_list_of_sockets_nobody_can_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_ours(("127.0.0.1", 1), ("127.0.0.1", 2))
    monkeypatch.setattr(peers, "TABLES", ("/nowhere",))
    assert is_ours(("127.0.0.1", 1), ("127.0.0.1", 2))


async def tell(_: Request, is_here: bool) -> Reply:
    return Reply(200, str(is_here).encode())


async def ask(user: int, host: str) -> bytes:
    """Return what a door says to a socket that a user has made."""
    door = Door(tell, is_ours)
    port = await door.open(host, 0)
    own = os.geteuid()
    os.seteuid(user)
    try:
        stream = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    finally:
        os.seteuid(own)
    await asyncio.to_thread(stream.connect, (host, port))
    reader, writer = await asyncio.open_connection(sock=stream)
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return (await reader.read()).rpartition(b"\r\n")[2]
    finally:
        writer.close()
        await door.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_our_own_user_is_one_of_ours(host: str) -> None:
    if host == "::1" and not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("there is no IPv6 here")
    assert asyncio.run(ask(os.geteuid(), host)) == b"True"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_another_user_of_this_machine_is_not() -> None:
    assert asyncio.run(ask(NOBODY, "127.0.0.1")) == b"False"
