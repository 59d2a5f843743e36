"""Sentences that people read when a run is ended, or cannot begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from planaria.agent.machine import step
from planaria.agent.main import observe
from planaria.agent.model import Begun, EndRequested, Group, Job, Outcome, StopRequested, WorkersStarted
from planaria.agent.report import Style, final_screen
from planaria.agent.status import View, why_not_ready
from planaria.base.loop import Loop
from planaria.base.value import replace
from planaria.errors import UsageError
from planaria.process.model import Command

if TYPE_CHECKING:
    from pathlib import Path
from types import SimpleNamespace

WHY = "its owner asked for the end of the run"
JOB = Job(Command("script", "a.py", ()), 1, "job7", "default", 3, 30.0, (15,), {})


def running() -> Group:
    group, _ = step(Group(size=1, max_restarts=0, grace_s=30.0), Begun(0.0))
    return step(group, WorkersStarted(0.0))[0]


def test_the_owner_is_named_once() -> None:
    said = final_screen(running(), Outcome("stopped", 143, explanation=f"{WHY} (on node a)"), Style())
    assert said == "stopped: its owner asked for the end of the run (on node a)\n"


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (EndRequested(WHY, 0.0, 1.0), "the job is being ended by its owner"),
        (EndRequested(WHY, 9.0, 1.0, has_listeners=True), "the job is being ended by its owner"),
        (StopRequested(15, 1.0), "this node is draining"),
    ],
)
def test_one_that_is_stopped_says_so_and_not_that_it_drains(event: EndRequested | StopRequested, why: str) -> None:
    group, _ = step(running(), event)
    assert why_not_ready(View(JOB, group, 2.0, "h", 2, 1)) == why


def test_a_handler_that_cannot_be_had_is_named_with_its_flag(tmp_path: Path) -> None:
    job = replace(JOB, event_handlers=f"jsonl:{tmp_path}/no folder/x")
    loop = Loop()
    try:
        with pytest.raises(UsageError, match=r"^--event-log-handler: cannot open '.*/no folder/x' for events: "):
            observe(job, loop, SimpleNamespace(workers=None), print)  # type: ignore[arg-type]
    finally:
        loop.close()
