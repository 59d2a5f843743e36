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

WITNESS = b"witness"


def note_witness(peer: Peer, line: bytes) -> None:
    peer.is_witness = line == WITNESS


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlServer]:
    """A server whose only worker is this process."""
    monkeypatch.chdir(tmp_path)  # a socket's path has to be short
    loop = Loop()
    found = ControlServer(loop, "control", note_witness, 100)
    found.serve({os.getpid(): 0})
    yield found
    found.close()
    loop.close()


def connected(*lines: bytes) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
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


def test_when_nobody_is_let_in_any_more_nobody_listens(server: ControlServer) -> None:
    server.close()
    assert not server.has_listeners
