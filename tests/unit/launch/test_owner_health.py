"""`planaria health`: what it asks, and what its exit status says, against doors of our own."""

from __future__ import annotations

import json
import os
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from planaria.errors import UsageError
from planaria.launch.owner_health import HELP, run_health

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Callable[[str, int, str], list[str]]]:
    """Make agents that answer every request alike; what they were asked is listed."""
    servers: list[socket.socket] = []

    def make(name: str, code: int, text: str) -> list[str]:
        folder = tmp_path / f"planaria-{name}"
        folder.mkdir()
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(folder / "http"))
        server.listen()
        servers.append(server)
        asked: list[str] = []

        def serve() -> None:
            stream, _ = server.accept()
            with stream:
                asked.append(stream.recv(4096).split()[1].decode())
                stream.sendall(f"HTTP/1.1 {code} X\r\nContent-Type: text/plain\r\n\r\n{text}\n".encode())

        threading.Thread(target=serve, daemon=True).start()
        return asked

    yield make
    for server in servers:
        server.close()


def ask(folder: Path, *words: str) -> int:
    return run_health(words, {"TMPDIR": str(folder)})


@pytest.fixture(autouse=True)
def _nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of other tests are in /tmp: only TMPDIR counts here."""
    monkeypatch.setattr("planaria.launch.owner_runs._parents", lambda environ: [environ["TMPDIR"]])


def test_one_agent_that_lives_is_healthy(
    tmp_path: Path, door: Callable[..., list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    asked = door("a", 200, "the loop turns")
    assert ask(tmp_path) == 0
    assert asked == ["/livez"]
    assert capfd.readouterr().out == "the loop turns\n"


def test_all_agents_have_to_say_yes(
    tmp_path: Path, door: Callable[..., list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    door("a", 200, "ready")
    asked = door("b", 503, "waiting for 1 more")
    assert ask(tmp_path, "--ready", "--json") == 1
    assert asked == ["/readyz"]
    told = json.loads(capfd.readouterr().out)
    assert told == {
        "schema": 1,
        "asked": "/readyz",
        "healthy": False,
        "agents": [{"code": 200, "said": "ready"}, {"code": 503, "said": "waiting for 1 more"}],
    }


def test_no_run_is_not_healthy_and_a_folder_that_was_left_behind_is_no_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    os.mkdir(tmp_path / "planaria-old")
    assert ask(tmp_path) == 1
    assert capfd.readouterr().out == "there is no run of yours here\n"


def test_it_has_help_and_no_other_flags(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert ask(tmp_path, "--help") == 0
    assert capfd.readouterr().out == HELP
    with pytest.raises(UsageError, match="planaria health has no flag '--port'"):
        ask(tmp_path, "--port")
