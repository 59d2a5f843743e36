"""How tests wait: for the end of a process by its descriptor, for facts that nobody announces by looking again and again."""

from __future__ import annotations

import asyncio
import os
import select
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 40.0  # how long anything may take before a test calls it a hang: two busy cores, shared with others
_BETWEEN_LOOKS_S = 0.005


def wait_until(
    predicate: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S, between_s: float = _BETWEEN_LOOKS_S
) -> Any:
    """Return the predicate's first true answer. One that starts a program each time leaves the processors to others between.

    Raises:
        AssertionError: There was none in time.
    """
    deadline = time.monotonic() + timeout_s
    while not (answer := predicate()):
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(between_s)  # whoever waits here has no event to wait for
    return answer


async def until(predicate: Callable[[], Any], timeout_s: float = PATIENCE_S) -> None:
    """Wait on an event loop for what nobody announces."""
    async with asyncio.timeout(timeout_s):
        while not predicate():
            await asyncio.sleep(_BETWEEN_LOOKS_S)  # as above


def wait_dead(pid: int, timeout_s: float = PATIENCE_S) -> bool:
    """Wait until a process, anybody's, is dead, reaped or not; tell whether that came true."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], timeout_s)[0])
    finally:
        os.close(descriptor)
