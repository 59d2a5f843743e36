"""The agent's end of the control socket, asked before the loop has turned."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from planaria.agent.control import ControlServer, Peer
from planaria.base.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WITNESS, ASK, FLOOD, BAD = b"witness", b"ask", b"flood", b"bad"


@pytest.fixture
def heard() -> list[bytes]:
    return []


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: list[bytes]) -> Iterator[ControlServer]:
    """A server whose only worker is this process. It answers some lines, and too many to one that does not read."""
    monkeypatch.chdir(tmp_path)  # a socket's path has to be short

    def hear(peer: Peer, line: bytes) -> None:
        heard.append(line)
        peer.is_witness = line == WITNESS
        if line == BAD:
            raise ValueError
        for _ in range({ASK: 1, FLOOD: 1000}.get(line, 0)):
            found.reply(peer, b"x" * 1000)

    loop = Loop()
    found = ControlServer(loop, "control", hear, 100)
    found.serve({os.getpid(): 0})
    yield found
    found.close()
    loop.close()


def connected(*lines: bytes) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)  # twice of what the system allows, at most
    found.connect("control")
    for line in lines:
        found.sendall(line + b"\n")
    return found


def test_a_worker_that_has_just_connected_listens_though_the_loop_was_busy_with_something_else(
    server: ControlServer,
) -> None:
    assert not server.has_listeners
    with connected(), connected(WITNESS):
        assert server.has_listeners
        assert server.speakers == server.witnesses == {0}


def test_a_witness_that_has_just_connected_is_known_as_one(server: ControlServer) -> None:
    with connected(WITNESS):
        assert not server.has_listeners
        assert server.witnesses == {0}


def test_one_that_has_hung_up_is_heard_to_the_end_though_it_cannot_be_answered(
    server: ControlServer, heard: list[bytes]
) -> None:
    with connected(ASK, ASK, b"word", BAD):
        pass
    assert not server.has_listeners
    assert heard == [ASK, ASK, b"word", BAD]


def test_one_that_does_not_read_is_dropped_at_once_and_only_once(server: ControlServer, heard: list[bytes]) -> None:
    with connected(FLOOD, b"never", BAD), connected(b"other"):
        assert server.has_listeners, "the other one"
        assert heard == [FLOOD, b"other"]


def test_what_was_said_over_a_connection_that_was_given_up_is_heard_before_what_the_next_one_says(
    server: ControlServer, heard: list[bytes]
) -> None:
    old = [b"%080d" % number for number in range(3500)]  # more than is read in a few turns
    with connected(b"\n".join(old)), connected(b"new"):
        while b"new" not in heard:
            server._loop.run_once(1.0)
    assert heard == [*old, b"new"]


def test_when_nobody_is_let_in_any_more_nobody_listens(server: ControlServer) -> None:
    server.close()
    assert not server.has_listeners
