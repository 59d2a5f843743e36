"""`planaria run --standbys`: a restart promotes, says so, and nothing that stood by outlives its job."""

from __future__ import annotations

import os
import random
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from crew import Crew
from harness import children_of, is_alive, kill, wait_gone, wait_until
from programs import install
from standing import stands_ready

if TYPE_CHECKING:
    from harness import End, Launcher, Room

FLAGS = ("--nproc-per-node=2", "--max-restarts=3", "--standbys=auto")
# Both workers say who they are; the first life waits for its crash, the second for its end.
SCRIPT = """
import json
from planaria import worker
worker.report_progress(1)
tell(f'pid.{LIFE}.{RANK} {os.getpid()}')
if LIFE == 0:
    wait_at('crash')
    os._exit(3)
wait_at('end')
"""
# The same with a part that a standby has run before it is needed.
JOINING = (
    """
import os
from planaria import worker
built = os.getpid()
worker.join()
from told import *
assert built == os.getpid()
"""
    + SCRIPT
)


class Job:
    """A job of two workers with somebody standing by for each."""

    def __init__(self, room: Room, script: str = SCRIPT, flags: tuple[str, ...] = FLAGS, **settings: Any) -> None:
        self.room = room
        room.make_gate("crash")
        room.make_gate("end")
        self.launcher: Launcher = (
            room.start_command([*flags, room.write("job.py", script)], **settings)
            if script == JOINING
            else room.start(flags, script, **settings)
        )
        self.agent = self.launcher.agent()
        self.workers = self.pids(0)

    def pids(self, life: int) -> list[int]:
        return [self.room.hear_value(f"pid.{life}.{rank}") for rank in (0, 1)]

    def standing(self) -> list[int]:
        return [pid for pid in children_of(self.agent) if pid not in self.workers]

    def wait_ready(self, count: int = 2) -> list[int]:
        def ready() -> list[int]:
            found = [pid for pid in self.standing() if stands_ready(pid)]
            return found if len(found) == count else []

        found: list[int] = wait_until(ready, f"{count} standbys")
        return found

    def finish(self) -> End:
        self.room.open_gate("end", 2)
        end = self.launcher.wait()
        assert end.status == 0, end.err
        return end


@pytest.mark.parametrize("script", [SCRIPT, JOINING], ids=["preload", "join"])
def test_a_crash_is_recovered_by_those_who_stood_by(room: Room, script: str) -> None:
    job = Job(room, script)
    ready = job.wait_ready()
    room.open_gate("crash")
    assert sorted(job.pids(1)) == sorted(ready)
    end = job.finish()
    assert "planaria: promoted 2 standbys\n" in end.err
    (record,) = end.report["restart_records"]
    assert (record["promoted"], record["cold"], record["signed"]) == ([0, 1], {}, 2)


def test_without_the_flag_nobody_stands_by_and_the_record_says_nothing(room: Room) -> None:
    job = Job(room, flags=FLAGS[:2])
    room.open_gate("crash")
    fresh = job.pids(1)
    assert sorted(children_of(job.agent)) == sorted(fresh)
    end = job.finish()
    (record,) = end.report["restart_records"]
    assert (record["promoted"], record["cold"]) == ([], {})
    assert "standby" not in end.err


def test_one_who_dies_is_replaced_and_told_of(room: Room) -> None:
    job = Job(room)
    before = job.wait_ready()
    kill(before[0])
    wait_gone(before[:1])
    after = job.wait_ready()
    assert before[0] not in after
    room.open_gate("crash")
    assert sorted(job.pids(1)) == sorted(after)
    assert "planaria: a standby of local rank " in job.finish().err


def test_a_script_that_has_changed_starts_cold_and_the_reason_is_told(room: Room) -> None:
    job = Job(room, SCRIPT.replace("os._exit(3)", "os.utime(__file__); os._exit(3)"))
    ready = job.wait_ready()
    room.open_gate("crash")
    fresh = job.pids(1)
    assert not set(fresh) & set(ready)
    end = job.finish()
    why = f"{os.path.realpath(room.path('worker.py'))} has changed"
    assert f"planaria: local ranks 0, 1 start cold: {why}\n" in end.err
    (record,) = end.report["restart_records"]
    assert (record["promoted"], record["cold"]) == ([], {"0": why, "1": why})


JOINS = """
from planaria import worker
worker.join()
worker.report_progress(1)
from told import *
tell(f'pid {os.getpid()}')
wait_at('crash')
"""
# It knows nothing of ranks: whoever runs it, a standby too, would do all of its work.
NEVER_JOINS = """
import os, time
from planaria import worker
with open('ran', 'a') as file:
    file.write(f'{os.getpid()}\\n')
worker.report_progress(1)
while not os.path.exists('stop'):
    time.sleep(0.02)  # training, until the file is there
"""


def test_a_program_that_joins_no_more_is_run_by_its_worker_alone(room: Room) -> None:
    room.make_gate("crash")
    script = room.write("job.py", JOINS)
    launcher = room.start_command(["--nproc-per-node=1", "--max-restarts=3", "--standbys=auto", script])
    agent, known = launcher.agent(), [room.hear_value("pid")]

    def wait_standby() -> int:
        def standing() -> list[int]:
            return [pid for pid in children_of(agent) if pid not in known and stands_ready(pid)]

        (pid,) = wait_until(standing, "a standby")
        return int(pid)

    known.append(wait_standby())
    room.write("job.py", NEVER_JOINS)
    kill(known[0])
    known += map(
        int, wait_until(lambda: os.path.exists(room.path("ran")) and room.read("ran").split(), "a second life")
    )
    wait_standby()
    room.write("stop", "")
    end = launcher.wait()
    assert end.status == 0, end.err
    assert len(room.read("ran").split()) == 1, "a standby has run the program too"


# A log plan of another package may give every life another variable.
PLAN = """
from planaria.elastic.multiprocessing import LogsDest, LogsSpecs

class Changing(LogsSpecs):
    root_log_dir = property(lambda self: self._root_log_dir)

    def reify(self, envs):
        for env in envs.values():
            env["LOG_OF_LIFE"] = env["TORCHELASTIC_RESTART_COUNT"]
        none = dict.fromkeys(envs, "")
        return LogsDest(stdouts=none, stderrs=none, error_files=dict.fromkeys(envs, "/dev/null"))
"""


def test_an_environment_that_has_changed_starts_cold_and_only_the_name_is_told(room: Room) -> None:
    room.write("plans.py", PLAN)
    install(Path(room.root), "plans", {"torchrun.logs_specs": {"changing": "plans:Changing"}})
    path = os.pathsep.join([room.root, *filter(None, [os.environ.get("PYTHONPATH")])])
    job = Job(room, SCRIPT, (*FLAGS, "--logs-specs=changing"), env={"PYTHONPATH": path})
    ready = job.wait_ready()
    room.open_gate("crash")
    assert not set(job.pids(1)) & set(ready)
    end = job.finish()
    why = "the environment differs in LOG_OF_LIFE"
    assert f"planaria: local ranks 0, 1 start cold: {why}\n" in end.err
    (record,) = end.report["restart_records"]
    assert (record["promoted"], record["cold"]) == ([], {"0": why, "1": why})


def test_fewer_standbys_than_workers_are_promoted_and_the_rest_starts_cold(room: Room) -> None:
    job = Job(room, flags=(*FLAGS[:2], "--standbys=1"))
    ready = job.wait_ready(1)
    room.open_gate("crash")
    assert job.pids(1)[0] == ready[0]
    end = job.finish()
    why = "there is no standby: only 1 was asked for"
    assert f"planaria: promoted 1 standby; local rank 1 starts cold: {why}\n" in end.err
    (record,) = end.report["restart_records"]
    assert (record["promoted"], record["cold"]) == ([0], {"1": why})


def test_a_crash_before_anybody_could_stand_by_says_so(room: Room) -> None:
    room.make_gate("end")
    launcher = room.start(FLAGS, "if LIFE == 0: os._exit(3)\ntell(f'life {os.getpid()}')\nwait_at('end')\n")
    assert room.hear_value("life") != room.hear_value("life")
    room.open_gate("end", 2)
    end = launcher.wait()
    assert end.status == 0, end.err
    why = "there is no standby: the life before was too short to learn what it loads"
    assert f"planaria: local ranks 0, 1 start cold: {why}\n" in end.err
    assert end.report["restart_records"][0]["cold"] == {"0": why, "1": why}


def test_what_a_life_left_behind_is_ended_beside_those_who_stand_by(room: Room) -> None:
    script = SCRIPT.replace("tell(", "if LIFE == 0: tell(f'left {sleeper(detached=True, deaf=True)}')\ntell(", 1)
    job = Job(room, script)
    left = [room.hear_value("left") for _ in (0, 1)]
    wait_until(lambda: len([pid for pid in job.standing() if stands_ready(pid)]) == 2, "two standbys")
    room.open_gate("crash")
    job.pids(1)
    wait_gone(left)
    assert "planaria: promoted 2 standbys\n" in job.finish().err


def test_the_last_life_has_nobody_standing_by(room: Room) -> None:
    job = Job(room, flags=("--nproc-per-node=2", "--max-restarts=1", "--standbys=2"))
    ready = job.wait_ready()
    room.open_gate("crash")
    job.pids(1)
    assert sorted(children_of(job.agent)) == sorted(ready)
    job.finish()


def test_those_of_every_node_take_their_places_in_the_next_round(room: Room) -> None:
    crew = Crew(room, "--max-restarts=2", "--standbys=1", nodes="2")
    crew.add_all("a", "b")
    crew.wait_world("a", "b")
    ready = {name: wait_until(lambda name=name: _ready_on(crew, name), f"a standby on {name}") for name in "ab"}
    kill(crew.nodes["a"].workers()[0])
    crew.wait_world("a", "b")
    assert {name: crew.pids(name)[-1] for name in "ab"} == ready
    ends = crew.finish_well("a", "b")
    assert {name: end.report["restart_records"][0]["promoted"] for name, end in ends.items()} == {"a": [0], "b": [0]}
    assert all("planaria: promoted 1 standby\n" in end.err for end in ends.values())


def _ready_on(crew: Crew, name: str) -> int:
    return next((pid for pid in children_of(crew.nodes[name].agent()) if stands_ready(pid)), 0)


@pytest.mark.parametrize("seed", [1, 2])
def test_workers_and_standbys_killed_at_any_moment_cost_a_restart_each_at_most(room: Room, seed: int) -> None:
    """Who is killed in the moment of its promotion dies as a worker: then one blow takes two lives."""
    chance = random.Random(seed)
    script = """
from planaria import worker
worker.report_progress(1)
tell(f'life {LIFE} {os.getpid()}')
wait_at('end')
"""
    room.make_gate("end")
    launcher = room.start(("--nproc-per-node=2", "--max-restarts=20", "--standbys=auto"), script)
    agent, life = launcher.agent(), 0
    spoken: dict[int, list[int]] = {}
    for _ in range(8):
        life, workers = _newest_life(room, spoken, life)
        threading.Event().wait(chance.choice((0.0, 0.01, 0.1, 0.4)))
        standing = [pid for pid in children_of(agent) if pid not in workers]
        for pid in (*standing[: chance.randrange(2)], chance.choice(workers)):
            kill(pid)
        life += 1
    _newest_life(room, spoken, life)
    room.open_gate("end", 2)
    end = launcher.wait()
    assert end.status == 0, end.err
    for record in end.report["restart_records"]:
        assert sorted([*record["promoted"], *map(int, record["cold"])]) == [0, 1]


def _newest_life(room: Room, spoken: dict[int, list[int]], least: int) -> tuple[int, list[int]]:
    """Wait until both workers of a life, this one or a later one, have spoken."""

    def is_whole() -> list[int]:
        for line in room.heard():
            _, life, pid = line.split()
            spoken.setdefault(int(life), []).append(int(pid))
            room.hear(line)
        return [life for life, pids in spoken.items() if len(pids) == 2 and life >= least]

    life = max(wait_until(is_whole, f"life {least}"))
    return life, spoken[life]


def _kill_launcher(job: Job) -> None:
    kill(job.launcher.pid)


def _kill_agent(job: Job) -> None:
    kill(job.agent)


def _drain(job: Job) -> None:
    job.launcher.signal(signal.SIGTERM)


@pytest.mark.parametrize("end", [_kill_launcher, _kill_agent, _drain])
def test_nobody_stands_by_for_a_job_that_has_ended(room: Room, end: object) -> None:
    job = Job(room)
    ready = job.wait_ready()
    end(job)  # type: ignore[operator]
    wait_gone([*ready, *job.workers])
    job.launcher.wait()
    room.wait_deserted()


def test_a_job_that_is_to_end_needs_nobody_standing_by_while_its_workers_take_their_time(room: Room) -> None:
    job = Job(room, f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SCRIPT}")
    ready = job.wait_ready()
    job.launcher.signal(signal.SIGTERM)
    wait_gone(ready)
    assert all(map(is_alive, job.workers))
    room.open_gate("crash", 2)
    assert job.launcher.wait().status == 128 + signal.SIGTERM


def test_one_that_is_still_loading_ends_with_its_job(room: Room) -> None:
    os.mkdir(room.path("site-packages"))
    slow = "import signal\nif b'\\0RANK=' not in open('/proc/self/environ', 'rb').read(): signal.pause()\n"
    room.write("site-packages/slow.py", slow)
    job = Job(room, f"import slow\n{SCRIPT}", env={"PYTHONPATH": room.path("site-packages")})
    standing = wait_until(job.standing, "a standby")
    job.launcher.signal(signal.SIGTERM)
    assert job.launcher.wait().status == 128 + signal.SIGTERM
    wait_gone(standing)
