from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from planaria.dashboard.main import dashboard

if TYPE_CHECKING:
    from pathlib import Path


def test_help_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    assert dashboard(["--help"]) == 0
    assert capfd.readouterr().out.startswith("usage: planaria dashboard")


def test_a_folder_that_is_none_is_told_before_anything_is_served(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert dashboard([f"--run-dir={tmp_path}/nowhere"]) == 2
    assert capfd.readouterr().err == f"planaria: --run-dir expects a directory, got '{tmp_path}/nowhere'\n"


def test_a_port_that_is_taken_is_told_in_one_sentence(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert dashboard([f"--port={port}"]) == 71
    told = f"planaria: cannot serve the page at 127.0.0.1:{port}: Address already in use\n"
    assert capfd.readouterr().err == told


def test_a_token_that_cannot_be_used_is_told(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANARIA_TOKEN", "")
    assert dashboard([]) == 2
    assert capfd.readouterr().err == "planaria: PLANARIA_TOKEN expects a secret, got an empty one\n"
