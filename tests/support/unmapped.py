"""Memory that can be had but not mapped, as in a process that may not have so much."""

from __future__ import annotations

import errno
import os

from planaria.agent.stock import Memfd

WHY = "the system gives no memory for a snapshot: Cannot allocate memory"


class Unmapped(Memfd):
    """Memory that a test can keep from being mapped."""

    def __init__(self) -> None:
        self.is_short = False

    def view(self, number: int, size_bytes: int) -> memoryview:
        if self.is_short:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return super().view(number, size_bytes)
