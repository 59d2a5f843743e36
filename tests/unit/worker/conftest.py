"""The agent's end of a worker's link."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

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
