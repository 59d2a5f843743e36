"""The end of a node whose launcher does not end."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from planaria.chaos import job as jobs
from planaria.chaos.watch import Watch

if TYPE_CHECKING:
    import pytest


class Launcher:
    """A node that waits for ever."""

    name, mark, host, is_struck = "n1.1", "none", None, True

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def exit_status(self) -> int:
        return 128 - self.process.wait()

    def processes(self) -> dict[int, str]:
        return {}

    def litter(self) -> tuple[str, ...]:
        return ()


def test_a_launcher_that_never_ends_is_killed_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "END_WITHIN_S", 0.0)
    monkeypatch.setattr(jobs, "strays", lambda _launchers: {})
    job = jobs.Job(cast("Any", SimpleNamespace(mark="none")), Watch(), 1, 1, [])
    node = Launcher()
    with node.process:
        job.bury(cast("Any", node))
    (end,) = job.ends
    assert (end.node, end.status, end.is_ours, end.is_late) == ("n1.1", 137, True, True)
