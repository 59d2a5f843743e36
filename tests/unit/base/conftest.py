"""The loop on which the ends of connections live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from net_ends import CONNECTIONS, LISTENERS

from planaria.base.loop import Loop

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    for listener in LISTENERS:
        listener.close()
    for connection in CONNECTIONS:
        connection._end()
    LISTENERS.clear()
    CONNECTIONS.clear()
    loop.close()
