"""Who stands by, as `/v1/status` and `/metrics` tell it, and what they have mapped of their ranks' commits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness import kill, wait_until
from probes import curl, door, needs_curl, status

if TYPE_CHECKING:
    from harness import Launcher, Room

pytestmark = needs_curl
FLAGS = ("--nproc-per-node=2", "--max-restarts=2")
# Each life commits twice, into both slots, and says what it had mapped before and where it stands.
KEEPS = """
import os
from planaria import worker
from planaria.worker import ElasticState, agent_vault
JOIN
from told import *
ahead = len(agent_vault._AHEAD)
state = ElasticState(step=0, text="z" * 100_000)
state.restore()
for _ in range(2):
    state.step += 1
    state.commit(wait="node")
for name, value in (("pid", os.getpid()), ("ahead", ahead), ("step", state.step), ("left", len(agent_vault._AHEAD))):
    tell(f"{name}.{LIFE}.{RANK} {value}")
worker.report_progress(state.step)
wait_at("end")
"""


def launch(room: Room, script: str, *flags: str) -> Launcher:
    room.make_gate("end")
    return room.start_command([*FLAGS, *flags, room.write("job.py", script)])


def standbys(room: Room) -> dict[str, Any]:
    found: dict[str, Any] = status(door(room))["standbys"]
    return found


def wait_ready(room: Room, count: int) -> list[int]:
    """Wait until so many are ready; return their pids."""
    found: list[int] = wait_until(lambda: ready_ones(room, count), f"{count} standbys")
    return found


def ready_ones(room: Room, count: int = 2) -> list[int]:
    """Return the pids of those who are ready, if they are so many. One that has loaded too little is replaced yet."""
    found = [one["pid"] for one in standbys(room)["processes"] if one["state"] == "ready"]
    return found if len(found) == count else []


def has_mapped_both(pid: int) -> bool:
    """Tell whether both slots of its rank's commits are in a process's memory; not so when it is gone."""
    try:
        return Path(f"/proc/{pid}/maps").read_text().count("planaria-snapshot") == 2
    except (FileNotFoundError, ProcessLookupError):
        return False


def finish(room: Room, launcher: Launcher) -> str:
    room.open_gate("end", 2)
    end = launcher.wait()
    assert end.status == 0, end.err
    return str(end.err)


def said(room: Room, life: int) -> list[dict[str, int]]:
    names = ("pid", "ahead", "step", "left")
    return [{name: room.hear_value(f"{name}.{life}.{rank}") for name in names} for rank in (0, 1)]


def pids(room: Room, life: int) -> list[int]:
    return [room.hear_value(f"pid.{life}.{rank}") for rank in (0, 1)]


@pytest.mark.parametrize("way", ["preload", "join"])
def test_those_who_are_promoted_have_mapped_the_memory_of_their_commits(room: Room, way: str) -> None:
    launcher = launch(room, KEEPS.replace("JOIN", "worker.join()" if way == "join" else ""), "--standbys=auto")
    first = said(room, 0)
    assert [(one["ahead"], one["step"], one["left"]) for one in first] == [(0, 2, 0)] * 2
    ready = wait_until(
        lambda: (found := ready_ones(room)) and all(map(has_mapped_both, found)) and found, "two maps each"
    )
    kill(first[1]["pid"])
    second = said(room, 1)
    assert [(one["ahead"], one["step"], one["left"]) for one in second] == [(2, 4, 0)] * 2
    assert [one["pid"] for one in second] == ready
    assert "planaria: promoted 2 standbys\n" in finish(room, launcher)


WAITS = """
from told import *
from planaria import worker
tell(f"pid.{LIFE}.{RANK} {os.getpid()}")
worker.report_progress(1)
wait_at("end")
"""


def test_the_status_and_the_metrics_tell_who_stands_by(room: Room) -> None:
    launcher = launch(room, WAITS, "--standbys=auto")
    first = pids(room, 0)
    ready = wait_ready(room, 2)
    found = standbys(room)
    assert found == {
        "wanted": 2,
        "ready": 2,
        "starting": 0,
        "why_fewer": None,
        "processes": [{"local_rank": rank, "pid": pid, "state": "ready"} for rank, pid in enumerate(ready)],
    }
    assert all(os.path.exists(f"/proc/{pid}") for pid in ready)
    lines = curl(door(room), "metrics")[1].splitlines()
    assert [f"planaria_standbys_{name}" in "\n".join(lines) for name in ("wanted", "ready", "starting")] == [True] * 3
    assert "planaria_standbys_ready 2" in lines
    kill(first[0])
    assert pids(room, 1) == ready
    assert not set(wait_ready(room, 2)) & set(ready)
    finish(room, launcher)


def test_a_program_that_reads_its_rank_before_join_has_standbys_that_only_load_modules(room: Room) -> None:
    """And it is told why nobody stands by when there is nothing to stand by for."""
    launcher = launch(
        room, WAITS.replace("worker.report", "worker.join()\nworker.report"), "--standbys=1", "--max-restarts=1"
    )
    first = pids(room, 0)
    # One that was made before the worker had joined loads modules, and is ready, before the program is run ahead.
    wait_until(lambda: b"they only load what it loads" in room.read("err"), "a standby has run the program")
    (ready,) = wait_ready(room, 1)
    kill(first[0])
    assert ready in pids(room, 1)
    found = standbys(room)
    assert (found["wanted"], found["ready"], found["starting"], found["processes"]) == (1, 0, 0, [])
    assert found["why_fewer"] == "there will be no other life"
    end = finish(room, launcher)
    assert "RANK was read from the environment before planaria.worker.join()" in end
    assert "standbys do not run the program any more, they only load what it loads" in end


def test_where_nobody_is_to_stand_by_nothing_is_told_of_it(room: Room) -> None:
    launcher = launch(room, WAITS)
    pids(room, 0)
    assert standbys(room) is None
    assert "planaria_standbys" not in curl(door(room), "metrics")[1]
    finish(room, launcher)
