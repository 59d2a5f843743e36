"""Whatever kills launcher or agent, at whatever moment, nothing of the job survives."""

from __future__ import annotations

import os
import random
import select
import shutil
import signal
from typing import TYPE_CHECKING

import pytest
from harness import children_of, is_alive, kill, wait_gone, wait_until
from stopping import stop

if TYPE_CHECKING:
    from harness import Launcher, Room

TWO = ("--nproc-per-node=2",)
# A tree of ten: each worker has a plain child, a daemon that nothing of us can be seen in, and a session with a child.
TREE = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pids = [os.getpid(), sleeper(detached=False), sleeper(detached=True, deaf=True), sleeper(detached=True, stdout=True)]
for pid in pids: tell(f'pid {pid}')
wait_forever()
"""


def _start_tree(room: Room, *flags: str) -> tuple[Launcher, list[int]]:
    launcher = room.start([*TWO, *flags], TREE, start_new_session=True)
    return launcher, [room.hear_value("pid") for _ in range(8)]


def _kill_launcher(launcher: Launcher) -> None:
    launcher.signal(signal.SIGKILL)


def _kill_agent(launcher: Launcher) -> None:
    kill(launcher.agent())


def _kill_group(launcher: Launcher) -> None:
    os.killpg(launcher.pid, signal.SIGKILL)


def _kill_launcher_of_a_stopped_agent(launcher: Launcher) -> None:
    stop(launcher.agent())
    launcher.signal(signal.SIGKILL)


def _kill_agent_of_a_stopped_launcher(launcher: Launcher) -> None:
    stop(launcher.pid)
    kill(launcher.agent())
    launcher.signal(signal.SIGCONT)


BLOWS = (
    _kill_launcher,
    _kill_agent,
    _kill_group,
    _kill_launcher_of_a_stopped_agent,
    _kill_agent_of_a_stopped_launcher,
)


@pytest.mark.parametrize("flags", [(), ("-t", "3")], ids=["plain", "tee"])
@pytest.mark.parametrize("blow", BLOWS, ids=lambda blow: blow.__name__)
def test_no_process_survives(room: Room, blow: object, flags: tuple[str, ...]) -> None:
    launcher, pids = _start_tree(room, *flags)
    assert all(map(is_alive, pids))
    blow(launcher)
    end = launcher.wait()
    assert end.status == 128 + signal.SIGKILL
    room.assert_deserted(timeout_s=30)
    wait_gone(pids)


def test_the_death_of_the_agent_is_reported_and_everything_is_gone_before_the_launcher_is(room: Room) -> None:
    launcher, pids = _start_tree(room)
    agent = launcher.agent()
    kill(agent)
    end = launcher.wait()
    assert not any(map(is_alive, pids))
    assert f"the agent (pid {agent}) was ended by SIGKILL" in end.err


def test_workers_die_even_if_launcher_and_agent_are_killed_in_the_same_instant(room: Room) -> None:
    script = """
tell(f'escaped {sleeper(detached=True, deaf=True)}')
tell(f'pid {os.getpid()}')
wait_forever()
"""
    launcher = room.start(TWO, script)
    workers = [room.hear_value("pid") for _ in range(2)]
    escaped = [room.hear_value("escaped") for _ in range(2)]
    agent = launcher.agent()
    stop(launcher.pid, agent)
    for pid in (agent, launcher.pid):  # neither can act any more
        kill(pid)
    launcher.wait()
    wait_gone([agent, *workers])
    for pid in escaped:  # only a cgroup or a pid namespace could have ended these
        kill(pid)
    wait_gone(escaped)
    for name in room.scratch_folders():
        shutil.rmtree(os.path.join(room.tmp, name))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("blow", [_kill_launcher, _kill_agent], ids=["launcher", "agent"])
def test_nothing_survives_a_kill_while_workers_are_being_started(room: Room, blow: object, seed: int) -> None:
    rng = random.Random(seed)
    launcher = room.start(["--nproc-per-node=16", "-t", "3"], "sleeper(detached=True, deaf=True)\nwait_forever()")
    if blow is _kill_agent:
        launcher.agent()
    pidfd = os.pidfd_open(launcher.pid)
    try:
        select.select([pidfd], [], [], rng.uniform(0.03, 0.2) if blow is _kill_launcher else rng.uniform(0, 0.1))
    finally:
        os.close(pidfd)
    blow(launcher)
    assert launcher.wait().status == 128 + signal.SIGKILL
    room.assert_deserted(timeout_s=30)


def test_nothing_survives_a_kill_while_workers_are_being_stopped_for_a_restart(room: Room) -> None:
    script = """
if RANK == 0:
    wait_at('deaf')
    os._exit(1)
signal.signal(signal.SIGTERM, lambda *_: tell('stopping'))
sleeper(detached=True, deaf=True)
tell('deaf')
wait_forever()
"""
    room.make_gate("deaf")
    launcher = room.start([*TWO, "--max-restarts=3"], script)
    room.hear("deaf")
    room.open_gate("deaf")
    room.hear("stopping")
    launcher.signal(signal.SIGKILL)
    launcher.wait()
    room.assert_deserted(timeout_s=30)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_survives_a_kill_in_the_midst_of_restarts(room: Room, seed: int) -> None:
    flags = ["--nproc-per-node=4", "--max-restarts=1000", "--always-restart", "-r", "3"]
    script = (
        "sleeper(detached=True, deaf=True)\nif RANK == 3:\n    tell(f'life {LIFE}')\n    os._exit(1)\nwait_forever()"
    )
    launcher = room.start(flags, script)
    room.hear(f"life {random.Random(seed).randrange(1, 4)}")
    launcher.signal(signal.SIGKILL)
    launcher.wait()
    room.assert_deserted(timeout_s=30)


@pytest.mark.parametrize("blow", [_kill_launcher, _kill_agent, _kill_launcher_of_a_stopped_agent])
def test_a_worker_that_daemonises_all_the_time_is_outrun(room: Room, blow: object) -> None:
    script = """
import time
for number in range(10000):
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True: signal.pause()
    os.wait()
    if number == 40: tell('busy')
    time.sleep(0.003)  # faster than anybody looks at /proc, slow enough not to fill the machine
"""
    launcher = room.start((), script)
    room.hear("busy")
    blow(launcher)
    launcher.wait()
    room.assert_deserted(timeout_s=30)


def test_what_a_killed_worker_leaves_is_gone_before_the_next_life_starts(room: Room) -> None:
    script = """
if LIFE == 0:
    for child in (sleeper(detached=False), sleeper(detached=True, deaf=True)): tell(f'child {child}')
    tell(f'pid {os.getpid()}')
    wait_forever()
tell('second life')
wait_at('end')
"""
    room.make_gate("end")
    launcher = room.start(["--max-restarts=1"], script)
    children = [room.hear_value("child"), room.hear_value("child")]
    kill(room.hear_value("pid"))
    room.hear("second life")
    assert not any(map(is_alive, children))
    room.open_gate("end")
    assert launcher.wait().status == 0


def test_what_workers_leave_after_success_is_gone(room: Room) -> None:
    end = room.run(TWO, "sleeper(detached=False, deaf=True); sleeper(detached=True, deaf=True)")
    assert end.status == 0


def test_a_background_job_lives_as_long_as_any_worker_of_its_life(room: Room) -> None:
    script = """
if RANK == 0:
    tell(f'child {sleeper(detached=True)}')
    sys.exit(0)
wait_at('end')
"""
    room.make_gate("end")
    launcher = room.start(TWO, script)
    child = room.hear_value("child")
    agent = launcher.agent()
    wait_until(lambda: child in children_of(agent), "a child adopted by the agent")
    wait_until(lambda: len(children_of(agent)) == 2, "rank 0 reaped")
    assert is_alive(child)
    room.open_gate("end")
    assert launcher.wait().status == 0
    assert not is_alive(child)


def test_orphans_are_reaped_while_the_job_runs(room: Room) -> None:
    script = """
for _ in range(100):
    if os.fork() == 0:
        if os.fork(): os._exit(0)
        os._exit(0)
    os.wait()
tell('done')
wait_at('end')
"""
    room.make_gate("end")
    launcher = room.start(TWO, script)
    room.hear("done", count=2)
    agent = launcher.agent()
    wait_until(lambda: len(children_of(agent)) == 2, "nobody but the two workers below the agent")
    room.open_gate("end", 2)
    assert launcher.wait().status == 0
