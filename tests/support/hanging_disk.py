"""A disk that takes what a shelf gives it when its gate is open."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from planaria.archive import shelf
from planaria.base.files import write_all

if TYPE_CHECKING:
    import pytest

TIMEOUT_S = 60.0


class HangingDisk:
    """Hangs in every write until the gate is opened, for all shelves of this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._began, self._gate = threading.Event(), threading.Event()
        monkeypatch.setattr(shelf, "write_all", self._write_all)

    def _write_all(self, descriptor: int, content: memoryview) -> None:
        self._began.set()
        assert self._gate.wait(TIMEOUT_S)
        write_all(descriptor, content)

    def wait_begun(self) -> None:
        """Wait until it hangs in a write."""
        assert self._began.wait(TIMEOUT_S)

    def go_on(self) -> None:
        """Write what there is, and whatever comes."""
        self._gate.set()
