"""A dry run shows the pipe of torch's timers where one was asked for, and only there."""

from __future__ import annotations

import pytest

from planaria.agent.conf import Credentials
from planaria.launch import dryrun
from planaria.launch.parse import parse
from planaria.launch.plan import Machine, plan

MACHINE = Machine("/usr/bin/python3", 4, "fresh-id", credentials=Credentials(None, None), plugins=frozenset())


@pytest.mark.parametrize(
    ("environ", "shown"),
    [
        ({}, None),
        ({"TORCHELASTIC_ENABLE_FILE_TIMER": "1"}, "(chosen at start)"),
        ({"TORCHELASTIC_ENABLE_FILE_TIMER": "1", "TORCHELASTIC_TIMER_FILE": "/x/pipe"}, "/x/pipe"),
    ],
)
def test_the_pipe_of_timers_is_shown(environ: dict[str, str], shown: str | None) -> None:
    made = plan(parse(["a.py"], environ), environ, MACHINE)
    (line,) = [line for line in dryrun.as_text(made).splitlines() if "TIMER_FILE" in line] or [None]
    assert line == (None if shown is None else f"  TORCHELASTIC_TIMER_FILE={shown}")
