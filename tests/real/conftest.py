"""The private room every test of real processes lives in."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import Room, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def room() -> Iterator[Room]:
    """A short private folder. When the test is over no process, folder or file of its job may be left."""
    found = Room()
    try:
        yield found
        found.assert_deserted()
    finally:
        found.close()


@pytest.fixture
def terminal(room: Room) -> Iterator[Terminal]:
    """A terminal, and what was started in it. It is gone before the room is."""
    found = Terminal(room)
    try:
        yield found
    finally:
        found.close()
