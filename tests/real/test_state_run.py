"""Training under `planaria run` whose workers, agent or disk die: it goes on from the newest commit, bit by bit."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from harness import Room, kill
from probes import door, needs_curl, planaria, status

from planaria.archive.shelf import Shelf

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("numpy") is None, reason="the arrays are NumPy's"),
    pytest.mark.timeout(110),
]
STEPS = 12
TRAIN = """
import hashlib, numpy as np
from planaria import worker
from planaria.worker import ElasticState, arrays
from planaria.worker.data import ElasticSampler
from planaria.contract import snapshot as snapshots
from planaria.worker.agent_vault import AgentVault

STEPS = int(sys.argv[1])
WAIT = sys.argv[2] if sys.argv[2] != "none" else None
DEATHS = sys.argv[3].split(",") if len(sys.argv) > 3 else []   # of each life: rank:step:point

def deadly(owner, name):
    function = getattr(owner, name)
    def wrapped(*args):
        die("before " + name)
        found = function(*args)
        die("after " + name)
        return found
    setattr(owner, name, wrapped)

def die(point):
    if LIFE < len(DEATHS) and DEATHS[LIFE]:
        rank, step, where = DEATHS[LIFE].split(":")
        if rank in ("all", str(RANK)) and int(step) == state.step and where == point:
            os.kill(os.getpid(), signal.SIGKILL)

for owner, names in ((arrays, ["_copy_numpy"]), (snapshots, ["seal", "_header"]), (AgentVault, ["sealed", "open"])):
    for name in names:
        deadly(owner, name)

SIZE = 200_000 if "large" in sys.argv else 60_000  # from 1 MB on, a thread seals
np.random.seed(100 + RANK)
sampler = ElasticSampler(STEPS * 6, 3, seed=5)
state = ElasticState(sampler=sampler, weights=np.zeros(SIZE), order=[], step=0)
found = state.restore()
tell(f"restored {RANK} {LIFE} {state.step}")
for batch in sampler.count():
    state.weights[:] = state.weights * 0.9 + np.random.rand(SIZE) * sum(batch)
    state.order.extend(batch)
    state.step += 1
    die("step")
    reached = state.commit(wait=WAIT).reached
    if WAIT:
        tell(f"reached {RANK} {state.step} {reached}")
    if os.path.exists(ROOM + f"/pause.{state.step}"):
        wait_at("pause")
with open(ROOM + f"/end.{RANK}.{sys.argv[-1]}", "w") as file:
    file.write(hashlib.sha256(state.weights.tobytes()).hexdigest() + repr(state.order) + repr(np.random.rand()))
"""
TWO = ("--nproc-per-node=2", "--always-restart")


OWN_MOUNTS = ("unshare", "-rm")


def can_mount() -> bool:
    """Tell whether there are mount namespaces for everybody here."""
    command = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "none", "/mnt"]
    return bool(shutil.which("unshare")) and not subprocess.run(command, capture_output=True, check=False).returncode


def ends(room: Room, name: str) -> list[bytes]:
    return [room.read(f"end.{rank}.{name}") for rank in range(2)]


@pytest.fixture(scope="module")
def undisturbed() -> list[bytes]:
    room = Room()
    try:
        assert room.run(TWO, TRAIN, str(STEPS), "none", "", "plain").status == 0
        return ends(room, "plain")
    finally:
        room.close()


def restored(room: Room) -> dict[int, list[int]]:
    """Return the steps that the ranks of each life began from."""
    found: dict[int, list[int]] = {}
    for line in room.heard():
        if line.startswith("restored "):
            _, _rank, life, step = line.split()
            found.setdefault(int(life), []).append(int(step))
    return found


@pytest.mark.parametrize("size", ["small", "large"])
def test_whoever_dies_at_whatever_point_of_a_commit_the_end_is_the_same(room: Room, size: str) -> None:
    assert room.run(TWO, TRAIN, str(STEPS), "none", "", size, "plain").status == 0
    room.hear_many(["restored 0 0 0", "restored 1 0 0"])
    deaths = [
        "1:2:step",
        "0:3:before _copy_numpy",
        "1:4:after _copy_numpy",
        "0:5:before seal",
        "1:6:before _header",
        "0:7:after seal",
        "1:8:before sealed",
        "0:9:after sealed",
        "all:10:step",
        "all:11:after sealed",
        "1:12:after open",
    ]
    end = room.run((*TWO, f"--max-restarts={len(deaths)}"), TRAIN, str(STEPS), "node", ",".join(deaths), size, "killed")
    assert end.status == 0, end.err
    assert ends(room, "killed") == ends(room, "plain")
    began = restored(room)
    assert sorted(began) == [*range(len(deaths) + 1)]
    assert all(len(set(steps)) == 1 for steps in began.values()), "both ranks go on from the same step"
    for life, death in enumerate(deaths):
        step = int(death.split(":")[1])
        assert began[life + 1][0] in (step - 1, step), f"{death} cost more than the step that it came in"


@pytest.mark.parametrize("victims", [(0,), (1,), (0, 1)])
def test_workers_that_somebody_kills_lose_nothing_that_was_complete(
    room: Room, undisturbed: list[bytes], victims: tuple[int, ...]
) -> None:
    room.make_gate("pause")
    room.write("pause.5", "")
    script = TRAIN.replace("np.random.seed(", 'tell(f"pid{RANK} {os.getpid()}")\nnp.random.seed(')
    launcher = room.start((*TWO, "--max-restarts=1"), script, str(STEPS), "node", "", "x")
    pids = [room.hear_value(f"pid{rank}") for rank in (0, 1)]
    room.hear_many(["reached 0 5 node", "reached 1 5 node"])
    for rank in victims:
        kill(pids[rank])
    end = launcher.wait()
    assert end.status == 0, end.err
    assert restored(room)[1] == [5, 5]
    assert ends(room, "x") == undisturbed


def test_the_death_of_the_agent_costs_what_the_disk_has_not(
    room: Room, undisturbed: list[bytes], tmp_path: Path
) -> None:
    room.make_gate("pause")
    room.write("pause.5", "")
    flags = (*TWO, f"--snapshot-dir={tmp_path / 'commits'}")
    launcher = room.start(flags, TRAIN, str(STEPS), "disk", "", "first")
    room.hear_many(["reached 0 5 disk", "reached 1 5 disk"])
    kill(launcher.agent())
    launcher.wait()
    os.unlink(room.path("pause.5"))
    room.heard()
    end = room.run(flags, TRAIN, str(STEPS), "none", "", "second")
    assert end.status == 0, end.err
    assert ends(room, "second") == undisturbed
    assert restored(room)[0][-2:] == [5, 5]


def test_the_newest_commit_is_on_disk_when_the_job_is_done(room: Room, tmp_path: Path) -> None:
    end = room.run((*TWO, f"--snapshot-dir={tmp_path}"), TRAIN, str(STEPS), "none", "", "x")
    assert end.status == 0, end.err
    found = Shelf(str(tmp_path)).newest()
    assert found is not None
    assert found.manifest.step == STEPS
    assert len([*Shelf(str(tmp_path)).commits()]) <= 2


@pytest.mark.parametrize(("how", "status"), [("drain", 75), ("signal", 143)])
def test_a_drain_flushes_the_newest_commit(room: Room, tmp_path: Path, how: str, status: int) -> None:
    room.make_gate("pause")
    room.write("pause.5", "")
    # A grace that nobody has the time for: what is waited for until it is over would be seen.
    flags = (*TWO, f"--snapshot-dir={tmp_path}", "--shutdown-timeout=3600")
    launcher = room.start(flags, TRAIN, str(STEPS), "node", "", "x")
    room.hear_many(["reached 0 5 node", "reached 1 5 node"])
    if how == "drain":
        assert planaria(room, "drain", f"--pid={launcher.pid}", "--no-wait").returncode == 0
    else:
        launcher.signal(signal.SIGTERM)
    end = launcher.wait()
    assert end.status == status, end.err
    found = Shelf(str(tmp_path)).newest()
    assert found is not None
    assert found.manifest.step == 5


def test_a_disk_that_cannot_be_written_costs_a_line_and_no_training(room: Room, undisturbed: list[bytes]) -> None:
    """The folder becomes a file after it was checked: read-only says nothing to root."""
    script = TRAIN.replace("np.random.seed(", "RANK == 0 and open(ROOM + '/commits', 'w').close()\nnp.random.seed(")
    end = room.run((*TWO, f"--snapshot-dir={room.path('commits')}"), script, str(STEPS), "none", "", "x")
    assert end.status == 0, end.err
    assert end.err.count("to disk:") == 1, end.err
    assert ends(room, "x") == undisturbed


@pytest.mark.skipif(not can_mount(), reason="a small file system needs a mount namespace")
@pytest.mark.parametrize(("options", "why"), [("size=200k", "No space left"), ("ro", "Read-only file system")])
def test_a_full_or_read_only_disk_costs_a_line_and_no_training(
    room: Room, undisturbed: list[bytes], options: str, why: str
) -> None:
    directory = room.path("disk")
    os.mkdir(directory)
    mount = f'mount -t tmpfs -o {options} none "$0" && exec "$@"'
    flags = (*TWO, f"--snapshot-dir={directory}")
    before = [*OWN_MOUNTS, "sh", "-c", mount, directory]
    if options == "ro":  # it becomes so while the job runs: at its start it would be refused
        before[-2] = mount.replace("-o ro", "")
    script = TRAIN.replace("np.random.seed(", REMOUNT + "np.random.seed(") if options == "ro" else TRAIN
    end = room.start(flags, script, str(STEPS), "disk", "", "x", before=before).wait()
    assert end.status == 0, end.err
    assert end.err.count("to disk:") == 1, end.err
    assert why in end.err
    assert "has not reached disk, only node" in end.err
    assert ends(room, "x") == undisturbed


FILLS = """
from planaria.worker import ElasticState

other = os.path.join(ROOM, "disk", "other")
if RANK == 0:
    with open(other, "wb") as file:
        file.write(bytes(1_000_000))
state = ElasticState(blob=bytes(1_000_000), step=0)
state.restore()
reached = []
for state.step in range(1, 31):
    if state.step == 20 and RANK == 0:
        os.unlink(other)
    reached.append(state.commit(wait="disk").reached)
tell(f"reached {RANK} {reached[0]} {'disk' in reached[1:18]} {reached[-1]}")
"""


@pytest.mark.skipif(not can_mount(), reason="a small file system needs a mount namespace")
def test_a_disk_that_is_full_for_a_while_has_the_newest_commit_when_there_is_room_again(room: Room) -> None:
    """There is room for two commits of 2 MB, and no more: what failed must not keep it full."""
    directory = room.path("disk")
    os.mkdir(directory)
    mount = 'mount -t tmpfs -o size=4600k none "$0" && exec "$@"'
    flags = (*TWO, f"--snapshot-dir={directory}", "--snapshot-keep=1")
    look = f"ls -d {directory}/commit-* | wc -l >&2"
    before = [*OWN_MOUNTS, "sh", "-c", f"{mount.replace('exec ', '')}; status=$?; {look}; exit $status", directory]
    end = room.start(flags, FILLS, before=before).wait()
    assert end.status == 0, end.err
    heard = sorted(line for line in room.heard() if line.startswith("reached "))
    assert heard == [f"reached {rank} disk False disk" for rank in (0, 1)], end.err
    assert end.err.count("No space left") == 1, end.err
    assert "are written to" in end.err
    assert end.err.splitlines()[-1] == "1", "what failed is gone"


REMOUNT = "RANK == 0 and os.system(f'mount -o remount,ro {ROOM}/disk')\n"
SMALL = """
from planaria.worker import ElasticState

state = ElasticState(blob=b"x" * 2_000_000, step=0)
state.restore()
assert state.step == LIFE, (state.step, LIFE)
state.step += 1
state.commit(wait="node")
agent = os.getppid()
kept = [name for fd in os.listdir(f"/proc/{agent}/fd") if "snapshot" in (name := os.readlink(f"/proc/{agent}/fd/{fd}"))]
tell(f"kept {LIFE} {len(kept)} {len(os.listdir(f'/proc/{agent}/fd'))}")
if LIFE < int(sys.argv[1]):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_fifty_restarts_leave_no_memory_behind(room: Room) -> None:
    end = room.start(("--max-restarts=50", "--always-restart"), SMALL, "50").wait(100)
    assert end.status == 0, end.err
    lines = [line.split() for line in room.heard() if line.startswith("kept ")]
    assert len(lines) == 51
    assert {int(line[2]) for line in lines[2:]} == {2}
    counts = [int(line[3]) for line in lines]
    # One life may see two more than another: a connection that is not taken yet, another that is not closed yet.
    assert min(counts[-10:]) <= max(counts[:10]), f"the agent's descriptors grow: {counts}"


def test_what_does_not_fit_into_memory_is_refused_with_the_numbers(room: Room) -> None:
    script = """
from planaria.base.memory import free_bytes
from planaria.errors import StateRefused
from planaria.worker import ElasticState

state = ElasticState(step=0)
state.commit(wait="node")
try:
    state._vault.open(free_bytes())
except StateRefused as problem:
    tell(f"refused {problem}")
state.step = 7
tell(f"then {state.commit(wait='node').reached}")
"""
    end = room.run((), script)
    assert end.status == 0, end.err
    refused, then = room.heard()
    assert "does not fit: it takes" in refused
    assert "are free" in refused
    assert then == "then node"


@needs_curl
def test_status_tells_the_newest_commit_of_each_tier(room: Room, tmp_path: Path) -> None:
    room.make_gate("pause")
    room.write("pause.3", "")
    launcher = room.start((*TWO, f"--snapshot-dir={tmp_path}"), TRAIN, "4", "disk", "", "x")
    room.hear_many(["reached 0 3 disk", "reached 1 3 disk"])
    found = status(door(room))["newest_commit"]
    assert {tier: commit and commit["step"] for tier, commit in found.items()} == {"node": 3, "buddy": None, "disk": 3}
    room.open_gate("pause", 2)
    assert launcher.wait().status == 0
