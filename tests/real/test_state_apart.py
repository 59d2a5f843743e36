"""Ranks that do not do the same: what is restored is of one moment all the same, and nobody waits for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from planaria.archive.shelf import Shelf

if TYPE_CHECKING:
    from pathlib import Path

    from harness import Room

pytestmark = pytest.mark.timeout(110)
TWO = ("--nproc-per-node=2", "--always-restart")
MEETINGS = ("a", "b", "c", "d", "e", "f")
BEGIN = """
from planaria.errors import StateRefused
from planaria.worker import ElasticState

def meet(name):  # with the other rank
    fd = os.open(ROOM + f"/gate.{name}{1 - RANK}", os.O_WRONLY)
    os.write(fd, b"x")
    os.close(fd)
    wait_at(f"{name}{RANK}")

def die():  # both, when both are here
    meet("f")
    os.kill(os.getpid(), signal.SIGKILL)

state = ElasticState(step=0, note="fresh", extra=None)
state.restore()
if LIFE:
    tell(f"restored {RANK}: step {state.step}, {state.note}")
    sys.exit(0)
"""


@pytest.fixture
def gates(room: Room) -> None:
    for name in MEETINGS:
        for rank in (0, 1):
            room.make_gate(f"{name}{rank}")


def restored(heard: list[str]) -> list[str]:
    return sorted(line for line in heard if line.startswith("restored "))


@pytest.mark.usefixtures("gates")
def test_a_commit_that_one_rank_was_refused_does_not_shift_those_that_follow(room: Room) -> None:
    script = (
        BEGIN
        + """
for step, meeting in enumerate("abcde", 1):
    state.step, state.note = step, f"made at {step}"
    state.extra = object() if (RANK, step) == (1, 2) else None
    try:
        state.commit()
    except StateRefused:
        tell(f"refused {RANK} {step}")
    meet(meeting)
tell(f"settled {RANK} {state.settle(20.0)}")
die()
"""
    )
    end = room.run((*TWO, "--max-restarts=1"), script)
    assert end.status == 0, end.err
    heard = room.heard()
    assert "refused 1 2" in heard
    assert {"settled 0 True", "settled 1 True"} <= {*heard}
    assert restored(heard) == ["restored 0: step 5, made at 5", "restored 1: step 5, made at 5"]


@pytest.mark.usefixtures("gates")
def test_a_rank_that_is_refused_every_commit_holds_up_nobody(room: Room) -> None:
    """The others would have no memory left after two commits: each of theirs might still have become complete."""
    script = (
        BEGIN
        + """
state.step = 1
state.commit(wait="node")
for step in range(2, 12):
    state.step, state.extra = step, object() if RANK == 1 else None
    try:
        reached = state.commit(wait="node" if step % 3 == 0 else None).reached
    except StateRefused:
        reached = None
    assert reached is None
tell(f"through {RANK}")
die()
"""
    )
    end = room.run((*TWO, "--max-restarts=1"), script)
    assert end.status == 0, end.err
    heard = room.heard()
    assert {"through 0", "through 1"} <= {*heard}
    assert restored(heard) == ["restored 0: step 1, fresh", "restored 1: step 1, fresh"]


@pytest.mark.usefixtures("gates")
def test_what_one_rank_had_sealed_when_all_went_back_is_not_completed_by_what_others_make_then(room: Room) -> None:
    script = (
        BEGIN
        + """
for state.step in (1, 2):
    state.note = f"good at {state.step}"
    assert state.commit(wait="node").reached == "node"
meet("a")
if RANK == 0:
    state.step, state.note = 3, "bad, and taken back"
    state.commit()
    state.settle(0.0)
meet("b")
state.restore()
tell(f"back {RANK} {state.note}")
meet("c")
state.step, state.note = 3, "good at 3"
tell(f"reached {RANK} {state.commit(wait='node', timeout_s=60.0).reached}")
die()
"""
    )
    end = room.run((*TWO, "--max-restarts=1"), script)
    assert end.status == 0, end.err
    heard = room.heard()
    assert {"back 0 good at 2", "back 1 good at 2", "reached 0 node", "reached 1 node"} <= {*heard}
    found = sorted(line for line in heard if line.startswith("restored "))
    assert found == ["restored 0: step 3, good at 3", "restored 1: step 3, good at 3"]


@pytest.mark.usefixtures("gates")
def test_ranks_that_count_their_own_steps_are_told_so_and_nothing_is_said_to_be_on_disk(
    room: Room, tmp_path: Path
) -> None:
    script = (
        BEGIN
        + """
state.step = 8 - RANK
for wait in ("disk", None):
    try:
        tell(f"reached {RANK} {state.commit(wait=wait, timeout_s=60.0).reached}")
        if wait is None:
            state.settle(60.0)
    except StateRefused as problem:
        tell(f"refused {RANK} {problem}")
meet("b")
state.step = 20
tell(f"then {RANK} {state.commit(wait='disk', timeout_s=60.0).reached}")
"""
    )
    end = room.run((*TWO, f"--snapshot-dir={tmp_path}"), script)
    assert end.status == 0, end.err
    heard = room.heard()
    for rank in (0, 1):
        refusals = [line for line in heard if line.startswith(f"refused {rank} ")]
        assert len(refusals) == 2, heard
        assert all("it must be the same on all ranks" in line for line in refusals)
        assert f"then {rank} disk" in heard
    assert not [line for line in heard if "reached" in line and "disk" in line]
    assert end.err.count("a commit does not count: step is ") == 1
    found = Shelf(str(tmp_path)).newest()
    assert found is not None
    assert found.manifest.step == 20
    assert found.passed_over == []
