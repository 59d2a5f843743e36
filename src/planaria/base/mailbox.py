"""From any thread to a loop: calls that are posted are made on the loop, in order."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.base.loop import Loop


class Mailbox:
    """A list of calls and a bell that wakes the loop. `close` it on the loop; what is posted later is not called."""

    _bell = -1

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._calls: list[Callable[[], object]] = []
        self._is_closed = False
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        loop.on_readable(self._bell, self._make_calls)

    def post(self, call: Callable[[], object]) -> None:
        """Have a call made on the loop. Never blocks; the loop may take its time."""
        if not self._is_closed:
            self._calls.append(call)
            os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        """Make no more calls."""
        self._is_closed = True
        self._loop.forget(self._bell)
        self._calls.clear()

    def __del__(self) -> None:
        # Not before: a thread may be about to ring, and its number would be another's descriptor by then. A lock would do
        # as well, but not in a process that forks.
        if self._bell >= 0:
            os.close(self._bell)

    def _make_calls(self) -> None:
        os.eventfd_read(self._bell)
        for _ in range(len(self._calls)):  # one that is posted meanwhile rings again
            if not self._is_closed:  # by the call before
                self._calls.pop(0)()
