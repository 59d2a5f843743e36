"""`planaria drain` and `planaria stop`: how the owner of a run ends it, here or everywhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from crew import Crew
from probes import WAIT, planaria

if TYPE_CHECKING:
    from harness import Room


def test_drain_and_stop_find_the_run_by_its_folder(room: Room) -> None:
    for command in ("drain", "stop"):
        launcher = room.start([], WAIT)
        room.hear("up 0")
        told = planaria(room, command)
        assert (told.returncode, launcher.wait().status) == (0, 143), told.stderr
        assert told.stdout.endswith(" has ended on this node\n")
    none = planaria(room, "stop", "--run-id=nobody")
    assert none.returncode == 2
    assert none.stderr.startswith("planaria: planaria stop found no run of yours with run id nobody in ")
    assert len(none.stderr.splitlines()) == 1


def test_a_stop_that_drains_lets_workers_that_listen_end_by_themselves(room: Room) -> None:
    script = """
import time
from planaria import worker
signal.signal(signal.SIGTERM, lambda *_: tell("signal"))
worker.report_progress(1)
tell("up 0")
while not worker.drain_notice():
    time.sleep(0.01)  # as a training step would: a notice is looked for between two steps
tell("drained")
"""
    launcher = room.start([], script)
    room.hear("up 0")
    assert planaria(room, "stop", "--drain", "--grace=30").returncode == 0
    end = launcher.wait()
    room.hear("drained")
    assert (end.status, end.report["outcome"], room.heard()) == (143, "stopped", [])


@pytest.mark.parametrize("asker", ["a", "b"])
def test_a_stop_on_one_node_ends_the_run_on_all(room: Room, asker: str) -> None:
    crew = Crew(room, "--max-restarts=3", nodes="1:2")
    crew.add_all("a", "b")
    crew.wait_world("a", "b")
    told = planaria(room, "stop", f"--pid={crew.nodes[asker].pid}")
    assert told.returncode == 0, told.stderr
    ends = [crew.nodes[name].wait() for name in ("a", "b")]
    assert [end.status for end in ends] == [143, 143], crew.story()
    assert [end.report["outcome"] for end in ends] == ["stopped", "stopped"]
    assert ends[0].report["explanation"] == ends[1].report["explanation"]
    crew.check_no_newer_world()
    crew.check_one_world()


def test_a_drain_takes_one_node_out_and_the_others_go_on(room: Room) -> None:
    crew = Crew(room, "--max-restarts=0", nodes="1:2")
    crew.add_all("a", "b")
    crew.wait_world("a", "b")
    several = planaria(room, "drain")
    assert several.returncode == 2
    assert "found 2 agents: choose one by " in several.stderr
    told = planaria(room, "drain", f"--pid={crew.nodes['b'].pid}", "--json")
    assert (told.returncode, crew.nodes["b"].wait().status) == (0, 143), told.stderr
    assert json.loads(told.stdout)["ended"] is True
    crew.wait_world("a")
    crew.finish_well("a")


STORES = """
from notes import *
import time
from planaria.contract.commit import Stamp
from planaria.worker.link import LINK

if LIFE == 0 and ROUND == 0:
    for generation, is_done in ((5, True), (6, False)):  # as a ShardedState does, whose sixth commit is being written
        LINK.store(0, Stamp(1, 0, generation, 10 * generation, WORLD, RANK), is_done=is_done)
note("met")
keep_stamping()
time.sleep(600)
"""


def test_a_node_that_waits_for_others_has_lost_nothing_by_its_drain(room: Room) -> None:
    """What its last life had begun to write went with that life. What it has on disk is there."""
    crew = Crew(room, "--resize-grace=0", nodes="2", job=STORES)
    crew.add_all("a", "b")
    crew.wait_world("a", "b")
    told = planaria(room, "status", "--json")
    assert json.loads(told.stdout)["newest_commit"]["disk"]["step"] == 50, told.stderr
    gone, left = crew.nodes["b"], crew.nodes["a"]
    assert planaria(room, "drain", f"--pid={gone.pid}").returncode == 0
    assert gone.wait().status == 143, "it ran, and had begun a commit"
    left.wait_said("waiting for")
    assert planaria(room, "drain", f"--pid={left.pid}").returncode == 0
    assert left.wait().status == 75, left.err()
