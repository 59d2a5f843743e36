"""Real agents whose owner asks again: a later order with less time, and a stop of a node that drains already."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from crew import Crew
from harness import PATIENCE_S, wait_until
from programs import clean_environment

if TYPE_CHECKING:
    from harness import Room

LISTENS = """
from planaria import worker
worker.report_progress(1)
tell(f"up {RANK}")
wait_forever()
"""
WAITS = """
from notes import *
from planaria import worker
from told import wait_at
keep_stamping()
if NODE == os.environ.get("DEAF"):
    signal.signal(signal.SIGTERM, lambda *_: note("asked"))
worker.report_progress(1)
note("met")
wait_at("over")
"""


def planaria(room: Room, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "planaria", *words],
        env=clean_environment(TMPDIR=room.tmp),
        cwd=room.root,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 2,
        check=False,
    )


def two_nodes(room: Room, *flags: str, deaf: str = "") -> Crew:
    """Start a run whose leader is `a`; the workers of the deaf one do not end of a SIGTERM."""
    room.make_gate("over")
    crew = Crew(room, "--max-restarts=3", *flags, nodes="1:2", job=WAITS)
    crew.add_first("a", env={"DEAF": deaf})
    crew.add("b", env={"DEAF": deaf})
    crew.wait_world("a", "b")
    return crew


def test_an_hour_of_grace_can_be_taken_back(room: Room) -> None:
    launcher = room.start([], LISTENS)
    room.hear("up 0")
    assert planaria(room, "stop", "--drain", "--grace=3600", "--no-wait").returncode == 0
    told = planaria(room, "stop")
    end = launcher.wait()
    assert (told.returncode, end.status, end.report["outcome"]) == (0, 143, "stopped"), told.stderr


@pytest.mark.parametrize("asker", ["a", "b"])
def test_an_hour_of_grace_on_all_nodes_can_be_taken_back_on_any(room: Room, asker: str) -> None:
    crew = two_nodes(room)
    assert planaria(room, "stop", "--drain", "--grace=3600", "--no-wait").returncode == 0
    told = planaria(room, "stop", f"--pid={crew.nodes[asker].pid}")
    assert told.returncode == 0, told.stderr
    ends = [crew.nodes[name].wait() for name in ("a", "b")]
    assert [(end.status, end.report["outcome"]) for end in ends] == [(143, "stopped")] * 2, crew.story()


@pytest.mark.parametrize(("asked", "other"), [("a", "b"), ("b", "a")])
def test_a_stop_of_a_node_that_drains_ends_the_run_on_the_others(room: Room, asked: str, other: str) -> None:
    crew = two_nodes(room, "--shutdown-timeout=600", deaf=asked)
    pid = f"--pid={crew.nodes[asked].pid}"
    assert planaria(room, "drain", pid, "--no-wait").returncode == 0
    wait_until(lambda: any(line["what"] == "asked" for line in crew.log()), "the signal of the drain")
    told = planaria(room, "stop", pid, "--no-wait")
    assert told.returncode == 0, told.stderr
    room.open_gate("over", 100)  # for every worker that is still to come there
    gone, ended = crew.nodes[asked].wait(), crew.nodes[other].wait()
    assert (gone.status, gone.report["outcome"]) == (143, "signal")
    assert (ended.status, ended.report["outcome"]) == (143, "stopped"), crew.story()
    assert "its owner asked for the end of the run (on node " in ended.err
