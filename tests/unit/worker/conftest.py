"""The agent's end of a worker's link."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from notices import Notifier

from planaria.worker import loop
from planaria.worker.link import Link

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[socket.socket]:
    """Listen where a link is told that its agent is."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "c"))
        listener.listen()
        yield listener


@pytest.fixture
def notifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notifier]:
    """Be the agent of the loops that a test makes."""
    found = Notifier(str(tmp_path / "c"))
    link = Link(lambda: found.path)
    monkeypatch.setattr(loop, "LINK", link)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    yield found
    link._give_up()
    found.close()
