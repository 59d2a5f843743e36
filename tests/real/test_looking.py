"""`planaria status`, `top`, `why` and `logs`: a run that goes on is seen through its door, one that has ended in its folder."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
from typing import TYPE_CHECKING, Any

from crew import Crew
from crew_jobs import FAILS, JOB
from hanging import SLOW_AND_STUCK, SLOW_AND_STUCK_FLAGS
from harness import LAUNCHER, PATIENCE_S, Launcher, kill, wait_until
from probes import planaria, port_of
from programs import clean_environment

if TYPE_CHECKING:
    from crew import World
    from harness import Room

TRAINS = """
from planaria.worker import report_progress
print("hello of life", LIFE, flush=True)
report_progress(3 + LIFE, samples=24)
tell(f"up {RANK} {LIFE}")
wait_at(f"crash{LIFE}")
if RANK == 1 - LIFE:
    raise ValueError("a label \\x1b[31mis wrong")
wait_forever()
"""


def name_of(room: Room) -> str:
    """Return a run id that no other run on this machine has."""
    return f"look-{os.path.basename(room.root)}"


def two(room: Room) -> list[str]:
    return ["--nproc-per-node=2", "--max-restarts=1", "--rdzv-backend=c10d", f"--rdzv-id={name_of(room)}"]


def ask(room: Room, command: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return planaria(room, command, f"--run-id={name_of(room)}", *flags)


def shown(room: Room, command: str, *flags: str) -> str:
    done = ask(room, command, *flags)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "\x1b" not in done.stdout
    return str(done.stdout)


def seen(room: Room, *flags: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shown(room, "status", "--json", *flags))
    return found


def glimpse(room: Room, *flags: str) -> dict[str, Any]:
    """Return what is seen of a run, without a rank where its agent does not answer in time: who waits looks again."""
    done = ask(room, "status", "--json", *flags)
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return {"state": "", "nodes": [], "ranks": [], "restarts": {"list": []}, **found}


def wait_steps(room: Room, step: int) -> None:
    """Wait until both ranks are known to be at a step: only what has come can be told."""
    wait_until(lambda: [rank["step"] for rank in glimpse(room)["ranks"]] == [step, step], f"step {step} of both ranks")


def prepare(room: Room) -> None:
    for life in (0, 1):
        room.make_gate(f"crash{life}")


def crash(room: Room, life: int) -> None:
    room.hear_many([f"up {rank} {life}" for rank in (0, 1)])
    wait_steps(room, 3 + life)
    room.open_gate(f"crash{life}", 2)


def top_on_a_terminal(room: Room) -> str:
    """Type q when the first screen is there; return all that was drawn. The terminal has to be as it was."""
    master, slave = pty.openpty()
    try:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        before = termios.tcgetattr(slave)
        settings: dict[str, Any] = {"stdin": slave, "stdout": slave, "stderr": slave, "cwd": room.root}
        command = [*LAUNCHER[:-1], "top", f"--run-id={name_of(room)}"]
        top = subprocess.Popen(command, env=clean_environment(TMPDIR=room.tmp), **settings)
        drawn = b""
        while b"\x1b[J" not in drawn:
            assert select.select([master], [], [], PATIENCE_S)[0], drawn
            drawn += os.read(master, 65536)
        os.write(master, b"q")
        while b"\x1b[?1049l" not in drawn:
            assert select.select([master], [], [], PATIENCE_S)[0], drawn
            drawn += os.read(master, 65536)
        assert top.wait(PATIENCE_S) == 0
        assert termios.tcgetattr(slave) == before
    finally:
        os.close(master)
        os.close(slave)
    return drawn.decode()


def hang_up_on_top(room: Room) -> None:
    """Close the terminal when the first screen is there: it ends well, though there is nothing to put back in order."""
    master, slave = pty.openpty()
    command = [*LAUNCHER[:-1], "top", f"--run-id={name_of(room)}"]
    streams: dict[str, Any] = {"stdin": slave, "stdout": slave, "stderr": subprocess.PIPE}
    top = subprocess.Popen(command, cwd=room.root, env=clean_environment(TMPDIR=room.tmp), **streams)
    os.close(slave)
    drawn = b""
    while b"\x1b[J" not in drawn:
        assert select.select([master], [], [], PATIENCE_S)[0], drawn
        drawn += os.read(master, 65536)
    os.close(master)
    _, said = top.communicate(timeout=PATIENCE_S)
    assert (top.returncode, said) == (0, b"")


def test_a_run_is_seen_while_it_runs_and_in_its_folder_after_its_end(room: Room) -> None:
    prepare(room)
    launcher = room.start([*two(room), "--run-dir=runs", "--redirects=3", "--health-check-port=0"], TRAINS)
    crash(room, 0)
    room.hear_many(["up 0 1", "up 1 1"])
    wait_steps(room, 4)
    wait_until(
        lambda: [one for one in glimpse(room)["restarts"]["list"] if one["redone"]["resumed"]], "a restart on record"
    )
    with open(room.path("followed"), "wb") as file:
        command = [*LAUNCHER[:-1], "logs", "-f", "--rank=0", f"--run-id={name_of(room)}"]
        followed = subprocess.Popen(command, cwd=room.root, env=clean_environment(TMPDIR=room.tmp), stdout=file)
    try:
        wait_until(lambda: b"hello of life 1" in room.read("followed"), "a line that is followed")
        check_the_run_that_goes_on(room)
        room.open_gate("crash1", 2)
        assert launcher.wait().status == 1
        assert followed.wait(PATIENCE_S) == 0
    finally:
        followed.kill()
        followed.wait()
    out = room.read("followed").decode()
    assert "0 | hello of life 1" in out
    assert "0 ! ValueError: a label \\x1b[31mis wrong" in out
    check_the_run_that_has_ended(room)


def check_the_run_that_goes_on(room: Room) -> None:
    run = seen(room)
    assert (run["state"], run["world_size"], run["restarts"]["used"]) == ("running", 2, 1)
    (restart,) = run["restarts"]["list"]
    assert (restart["first_cause"]["rank"], restart["redone"]) == (1, {"reached": 3, "resumed": 4})
    why = shown(room, "why")
    assert "all workers were started again for round 1" in why
    assert "first cause: rank 1 on " in why
    assert "ValueError: a label \\x1b[31mis wrong (exit status 1)" in why
    assert "the workers had come to step 3 and went on with step 4: 0 steps done again" in why
    assert "phases in ms, on " in why
    assert "effective training time since " in why
    assert shown(room, "top", "--once").startswith("run ")
    logs = shown(room, "logs", "--stream=stdout").splitlines()
    assert [line.partition(":")[2] for line in logs] == ["0 | hello of life 1", "1 | hello of life 1"]
    at = f"--at=127.0.0.1:{port_of(room)}"
    assert shown(room, "logs", "--stream=stdout", at).splitlines() == logs
    assert [node["source"] for node in seen(room, at)["nodes"]] == [at.removeprefix("--at=")]


def check_the_run_that_has_ended(room: Room) -> None:
    gone = ask(room, "status")
    assert (gone.returncode, gone.stdout) == (1, "")
    assert gone.stderr.startswith(f"planaria: no run {name_of(room)} of yours is on this machine; ")
    at = f"--at=127.0.0.1:{port_of(room)}"
    silent = ask(room, "why", at)
    assert (silent.returncode, silent.stdout) == (1, "")
    assert silent.stderr.startswith(f"planaria: the agent at {at.removeprefix('--at=')} does not answer: ")
    assert seen(room, "--run-dir=runs")["state"] == "failed"
    why = shown(room, "why", "--run-dir=runs")
    assert "the run failed: rank 0 failed, and no restart was left" in why
    assert '    raise ValueError("a label' in why
    assert "first cause: rank 1 on " in shown(room, "why", "--run-dir=runs", "--round=1")
    missing = ask(room, "why", "--run-dir=runs", "--round=9")
    assert (missing.returncode, missing.stderr) == (1, "planaria: no restart led to round 9; restarts led to: 1\n")
    assert "1 | hello of life 1" in shown(room, "logs", "--run-dir=runs", "--rank=1")
    (report,) = [
        os.path.join(folder, "report.json") for folder, _, files in os.walk(room.path("runs")) if "report.json" in files
    ]
    with open(report) as file:
        assert json.load(file)["first_cause"]["rank"] == 0


def test_a_run_that_nobody_asked_to_watch_is_seen_with_what_happened_before_anybody_looked(room: Room) -> None:
    """The observer comes when the first one knocks, or a moment after the start: what the driver remembers is told to it."""
    prepare(room)
    target = room.write("worker.py", "from told import *\n" + TRAINS)
    own = clean_environment(TMPDIR=room.tmp, OMP_NUM_THREADS="1")
    process = subprocess.Popen(
        [*LAUNCHER, *two(room), target],
        cwd=room.root,
        env=own,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    launcher = Launcher(room, process)
    room._launchers.append(launcher)
    room.hear_many(["up 0 0", "up 1 0"])
    room.open_gate("crash0", 2)
    room.hear_many(["up 0 1", "up 1 1"])
    wait_until(lambda: glimpse(room)["restarts"]["list"], "a restart on record")
    assert "first cause: rank 1 on " in shown(room, "why")
    drawn = top_on_a_terminal(room)
    assert drawn.startswith("\x1b[?1049h")
    assert "running" in drawn
    hang_up_on_top(room)
    none = ask(room, "logs")
    assert (none.returncode, none.stdout) == (1, "")
    assert none.stderr.startswith("planaria: no worker that was asked for writes to a file; ")
    room.open_gate("crash1", 2)
    assert launcher.wait().status == 1


def test_why_names_the_cause_of_a_failed_run_of_three_nodes(room: Room) -> None:
    crew = Crew(room, "--max-restarts=1", f"--run-dir={room.path('runs')}", nodes="3", job=FAILS, run_id=name_of(room))
    crew.add_all("a", "b", "c")
    assert [crew.nodes[name].wait().status for name in "abc"] == [1, 1, 1], crew.story()
    run = seen(room, "--run-dir=runs")
    assert (run["run_id"], run["state"], run["world_size"], len(run["nodes"])) == (name_of(room), "failed", 3, 3)
    why = shown(room, "why", "--run-dir=runs")
    assert "first cause: rank 1 on " in why
    assert "ValueError: the cause (exit status 1)" in why
    assert "    | ValueError: the cause" in why
    (restart,) = run["restarts"]["list"]
    assert (restart["first_cause"]["rank"], restart["first_cause"]["meaning"]) == (2, "exit status 3")
    assert set(restart["phases"]) == {"detect", "decide", "stop", "rendezvous", "start", "ready"}


class Named:
    """What gives a node a host name of its own."""

    def command(self, name: str) -> list[str]:
        return ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name]

    def is_possible(self) -> bool:
        with contextlib.suppress(OSError):
            return subprocess.run([*self.command("x"), "true"], capture_output=True, check=False).returncode == 0
        return False


def hellos(world: World, host: Named | None) -> set[str]:
    """Return what the workers of a round have said, with what `planaria logs` puts before it."""
    return {
        f"{node if host else os.uname().nodename}:{rank} | hello of {node} in round {world.round}"
        for node, ranks in world.ranks.items()
        for rank in ranks
    }


def test_logs_of_three_nodes_are_one_stream_that_goes_on_when_a_node_is_lost(room: Room) -> None:
    job = JOB.replace("keep_stamping()\n", 'keep_stamping()\nprint("hello of", NODE, "in round", ROUND, flush=True)\n')
    flags = ("--max-restarts=0", "--redirects=3", f"--run-dir={room.path('runs')}")
    crew = Crew(room, *flags, nodes="2:3", job=job, run_id=name_of(room))
    host = Named() if Named().is_possible() else None
    crew.add_first("a", host=host)
    crew.add_all("b", "c", host=host)
    before = hellos(crew.wait_world("a", "b", "c"), host)
    assert set(shown(room, "logs", "--stream=stdout").splitlines()) == before
    with open(room.path("followed"), "wb") as file:
        command = [*LAUNCHER[:-1], "logs", "-f", "--stream=stdout", f"--run-id={name_of(room)}"]
        followed = subprocess.Popen(command, cwd=room.root, env=clean_environment(TMPDIR=room.tmp), stdout=file)

    def lines() -> list[str]:
        return room.read("followed").decode().splitlines()

    try:
        wait_until(lambda: before <= set(lines()), "lines of all three")
        crew.nodes["c"].kill()
        after = hellos(crew.wait_world("a", "b"), host)
        wait_until(lambda: after <= set(lines()), "lines of the two that are left")
        assert set(shown(room, "logs", "--stream=stdout").splitlines()) == after, "who is lost is in no round"
        crew.finish_well("a", "b")
        assert followed.wait(PATIENCE_S) == 0
    finally:
        followed.kill()
        followed.wait()
    said = [line for line in lines() if line in before | after]
    assert sorted(said) == sorted(before | after), "each line once"


def test_a_slow_rank_and_one_that_hangs_are_named_with_the_evidence(room: Room) -> None:
    room.make_gate("begin")
    flags = [*SLOW_AND_STUCK_FLAGS, "--rdzv-backend=c10d", f"--rdzv-id={name_of(room)}", "--run-dir=runs"]
    launcher = room.start(flags, SLOW_AND_STUCK)
    room.hear_many([f"up {rank}" for rank in range(3)])
    room.open_gate("begin", 3)
    run = wait_until(lambda: (found := seen(room))["stragglers"] and found, "a rank that is slow", between_s=0.1)
    slow = run["stragglers"][0]  # a busy machine may slow another one down, but not as much
    assert (slow["rank"], slow["host"]) == (2, os.uname().nodename)
    assert run["ranks"][2]["straggler"] == slow["slower_by"] > 1
    room.write("hang", "")
    wait_until(lambda: b" hangs in phase step" in room.read("err"), "a rank that hangs")
    behind = [False, True, False]
    wait_until(lambda: [rank["behind"] for rank in seen(room)["ranks"]] == behind, "rank 1 behind", between_s=0.1)
    line = 1 + next(n for n, text in enumerate(room.read("worker.py").decode().splitlines()) if "# HERE" in text)
    (evidence,) = glob.glob(f"{room.path('runs')}/*/*/evidence/*")
    for where in ((), ("--run-dir=runs",)):
        told = f" on {os.uname().nodename}) hangs in phase step after step "
        wait_until(lambda where=where, told=told: told in shown(room, "why", *where), "why it hangs", between_s=0.1)
        why = shown(room, "why", *where)
        assert f"worker.py line {line} in stuck" in why
        assert f"  evidence: {evidence}\n" in why
        assert "the policy is to report (--hang-policy)" in why
    launcher.signal(signal.SIGTERM)
    launcher.wait()


def test_a_run_that_was_killed_is_gone_and_its_next_start_is_shown_alone(room: Room) -> None:
    """The workers outlive the agent for a moment at most, and hold nothing of its folder."""
    body = "from planaria.worker import report_progress\nreport_progress(5)\ntell(f'up {RANK}')\nwait_forever()\n"
    flags = [*two(room), "--run-dir=runs", "--redirects=3"]
    launcher = room.start(flags, body)
    room.hear_many(["up 0", "up 1"])
    wait_until(
        lambda: [one["step"] for one in glimpse(room, "--run-dir=runs")["ranks"]] == [5, 5], "progress in the folder"
    )
    assert seen(room, "--run-dir=runs")["state"] == "running"
    kill(launcher.agent())
    launcher.wait()
    room.wait_deserted()
    gone = seen(room, "--run-dir=runs")
    assert (gone["state"], [node["state"] for node in gone["nodes"]]) == ("gone", ["lost"])
    assert [(one["step"], one["rate"]) for one in gone["ranks"]] == [(5, None), (5, None)]
    assert ask(room, "logs", "-f", "--run-dir=runs").returncode == 0  # it does not wait for more
    again = room.start(flags, body)
    room.hear_many(["up 0", "up 1"])

    def is_anew(*flags: str) -> bool:
        found = glimpse(room, *flags)
        names = {node["node"] for node in found["nodes"]} - {gone["nodes"][0]["node"]}
        return (found["state"], len(found["nodes"]), len(names), len(found["ranks"])) == ("running", 1, 1, 2)

    for flag in ([], ["--run-dir=runs"]):
        wait_until(lambda flag=flag: is_anew(*flag), "the next start is shown alone")
    again.signal(signal.SIGTERM)
    again.wait()
