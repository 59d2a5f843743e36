"""`planaria run` with a rendezvous handler of another package: the example's, broken ones, and some that misbehave."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness import PATIENCE_S, kill, wait_until
from ports import free_port
from probes import curl, needs_curl
from programs import install, install_example

if TYPE_CHECKING:
    from harness import End, Launcher, Room

PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
WAIT = """
signal.signal(signal.SIGTERM, lambda *_: (tell("asked"), os._exit(0)))
tell(f"pid {sleeper(detached=True, deaf=True)}")
tell(f"up {RANK}")
wait_forever()
"""
# Handlers whose authors made mistakes; what each does stands in its name.
THEIRS = """
import signal
from folder_plugin.rendezvous import FolderRendezvous

class Deaf(FolderRendezvous):
    def get_backend(self): return "deaf"
    def next_rendezvous(self):
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
        open(self._params.endpoint + ".deaf", "w").close()
        while True: signal.pause()  # no signal comes: all are blocked

class Raises(FolderRendezvous):
    def get_backend(self): return "raises"
    def next_rendezvous(self): raise KeyError("no such node")

def deaf(): return Deaf
def raises(): return Raises
def picky(): return picky_creator
def picky_creator(params): raise ValueError("the endpoint must be blue")
def down(): return down_creator
def down_creator(params): raise ConnectionRefusedError(111, "nobody there")
"""


def flags(room: Room, *more: str, backend: str = "folder") -> list[str]:
    return [f"--rdzv-backend={backend}", f"--rdzv-endpoint={room.path('meet')}", "--rdzv-id=job", *more]


def surroundings(room: Room, **variables: str) -> dict[str, str]:
    """Return variables with which the example, and the handlers above, are installed."""
    site = Path(room.path("site"))
    if not site.exists():
        install_example(site)
        names = ("deaf", "raises", "picky", "down")
        points = {name: f"theirs:{name}" for name in names}
        points |= {"broken": "not_there:creator", "c10d": "theirs:raises"}
        install(site, "theirs", {"torchrun.handlers": points})
        (site / "theirs.py").write_text(THEIRS)
    return {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", **variables}


def run(room: Room, argv: list[str], script: str, *args: str, **variables: str) -> End:
    return room.run(argv, script, *args, env=surroundings(room, **variables))


def start(room: Room, *more: str, script: str = WAIT, backend: str = "folder") -> Launcher:
    return room.start(flags(room, *more, backend=backend), script, env=surroundings(room), **PIPES)


def said(end: End) -> list[str]:
    """Return what planaria itself said, without the notice about the report file that every room asks for."""
    found = [line.removeprefix("planaria: ") for line in end.err.splitlines() if line.startswith("planaria: ")]
    return [line for line in found if not line.startswith("--report-file has no effect")]


def test_one_node_meets_through_the_handler_and_its_workers_have_torchruns_environment(room: Room) -> None:
    script = """
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK", "ROLE_NAME", "TORCHELASTIC_RUN_ID", "MASTER_PORT", "MINE")
    tell(" ".join(os.environ[name] for name in names if name != "MASTER_PORT") + f" {int(os.environ['MASTER_PORT']) > 0}")
    assert "PLANARIA_TOKEN" not in os.environ
    os.write(1, f"out of {RANK} {sys.argv[1:]}\\n".encode())  # in one piece: two workers write here
    """
    argv = flags(room, "--nproc-per-node=2", "--role=trainer", "--no-bootstrap")
    end = run(room, argv, _plain(script), "--x", MINE="mine", PLANARIA_TOKEN="secret")
    assert end.status == 0, end.err
    room.hear_many(f"{rank} {rank} 2 0 trainer job mine True" for rank in (0, 1))
    assert sorted(end.out.splitlines()) == [b"out of 0 ['--x']", b"out of 1 ['--x']"]
    notices = [line for line in end.err.splitlines() if "no effect" in line]
    assert notices == ["planaria: --report-file, --no-bootstrap have no effect with the rendezvous handler 'folder'"]
    assert os.path.exists(room.path("meet/job/closed"))


def test_two_nodes_meet_and_one_worker_that_crashes_makes_both_start_again(room: Room) -> None:
    script = _plain("""
    tell(f"rank {RANK} of {os.environ['WORLD_SIZE']}, life {LIFE}")
    if RANK == 1 and not os.path.exists("failed"):
        open("failed", "w").close()
        sys.exit(3)
    if RANK == 1:
        open("again", "w").close()
    while not os.path.exists("again"):  # so that nobody is done while another has to start again
        time.sleep(0.01)  # a file is the condition, and nothing in a plain worker can be woken by one
    """)
    room.write("worker.py", "from told import *\nimport time\n" + script)
    argv = [*flags(room, "--nnodes=2", "--max-restarts=1"), room.path("worker.py")]
    nodes = [room.start_command(argv, env=surroundings(room), **PIPES) for _ in range(2)]
    ends = [node.wait() for node in nodes]
    assert [end.status for end in ends] == [0, 0], ends
    lines = room.heard()  # who did not fail may have been stopped before it said a word, and pays for no restart
    assert len(lines) in (3, 4), lines
    assert all(" of 2, " in line for line in lines)
    assert [line[-6:] for line in lines].count("life 1") == 1
    room.assert_deserted()


def test_a_failure_for_good_is_told_with_its_traceback_and_handed_on(room: Room) -> None:
    script = _plain("""
    from planaria.elastic.multiprocessing.errors import record
    @record
    def main():
        tell(f"life {LIFE}")
        if RANK == 1: raise RuntimeError("out of luck")
        wait_forever()
    main()
    """)
    own = room.path("own.json")
    end = run(room, flags(room, "--nproc-per-node=2", "--max-restarts=1"), script, TORCHELASTIC_ERROR_FILE=own)
    assert end.status == 1
    room.hear("life 1")
    assert said(end)[-1] == "job failed:"
    assert "worker.py FAILED" in end.err
    assert "rank      : 1 (local_rank: 1)" in end.err
    assert "RuntimeError: out of luck" in end.err
    assert room.tmp not in end.err  # the error files are gone, and nobody is sent to look for them
    assert "out of luck" in json.loads(room.read("own.json"))["message"]["message"]


def test_the_workers_own_status_can_be_the_launchers(room: Room) -> None:
    assert run(room, flags(room, "--exit-code=worker"), "sys.exit(7)").status == 7


def test_sigterm_is_the_workers_too_and_the_status_says_it(room: Room) -> None:
    launcher = start(room, "--nproc-per-node=2")
    room.hear_many(["up 0", "up 1"])
    launcher.signal(signal.SIGTERM)
    end = launcher.wait()
    room.hear("asked", 2)
    assert (end.status, said(end)[-1]) == (128 + signal.SIGTERM, "stopped by SIGTERM")
    room.assert_deserted()


@pytest.mark.parametrize(("victim", "status"), [("launcher", 137), ("agent", 137)])
def test_whoever_of_the_two_is_killed_nothing_is_left(room: Room, victim: str, status: int) -> None:
    launcher = start(room, "--nproc-per-node=2")
    room.hear_many(["up 0", "up 1"])
    kill(launcher.pid if victim == "launcher" else launcher.agent())
    assert launcher.wait().status == status
    room.wait_deserted()


def test_a_killed_launcher_takes_an_agent_with_it_that_still_waits_for_others(room: Room) -> None:
    launcher = start(room, "--nnodes=2")
    wait_until(lambda: os.path.exists(room.path("meet/job/round-0/members")), "an agent that waits")
    kill(launcher.pid)
    launcher.wait()
    room.wait_deserted()


@pytest.mark.parametrize(("sent", "status"), [((signal.SIGTERM,), 143), ((signal.SIGINT, signal.SIGINT), 130)])
def test_a_handler_that_hears_no_signal_is_not_waited_for_for_ever(
    room: Room, sent: tuple[int, ...], status: int
) -> None:
    launcher = start(room, "--shutdown-timeout=0", backend="deaf")
    wait_until(lambda: os.path.exists(room.path("meet.deaf")), "a deaf handler")
    for count, number in enumerate(sent, 1):
        launcher.signal(number)
        if count < len(sent):  # two of a kind that wait together are one to the kernel
            wait_until(lambda: _pending(launcher.pid, number) == 0, "a signal that was taken")  # noqa: B023  asked at once
    assert launcher.wait().status == status
    room.assert_deserted()


def _pending(pid: int, number: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return sum(int(lines[name], 16) >> (number - 1) & 1 for name in ("SigPnd", "ShdPnd"))


def test_a_round_that_does_not_come_about_in_time_has_a_status_of_its_own(room: Room) -> None:
    end = run(room, flags(room, "--nnodes=2", "--rdzv-conf=timeout=0.1"), "pass")
    assert (end.status, said(end)) == (124, ["cannot go on: RendezvousTimeoutError: only 1 of 2 nodes came"])


@pytest.mark.parametrize(
    ("backend", "status", "sentence"),
    [
        ("broken", 2, "cannot be loaded: ModuleNotFoundError: No module named 'not_there'"),
        ("picky", 2, "--rdzv-backend picky: the endpoint must be blue"),
        ("down", 1, "--rdzv-backend down: ConnectionRefusedError: [Errno 111] nobody there"),
        ("raises", 1, "cannot go on: KeyError: 'no such node'"),
    ],
)
def test_what_a_handler_raises_is_one_sentence(room: Room, backend: str, status: int, sentence: str) -> None:
    end = run(room, flags(room, backend=backend), "pass")
    assert end.status == status, end.err
    (line,) = said(end)
    assert line.endswith(sentence)
    has_traceback = "Traceback" in end.err
    assert has_traceback == (backend == "raises")  # a mistake of its author's, who wants to see where


def test_a_name_that_nobody_offers_is_refused_with_both_groups(room: Room) -> None:
    end = run(room, flags(room, backend="zeus"), "pass")
    (line,) = said(end)
    assert end.status == 2
    assert line.endswith("or an installed plugin (planaria.stores or torchrun.handlers), got 'zeus'")


def test_a_handler_with_a_name_of_ours_is_not_used(room: Room) -> None:
    end = run(room, ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"], "tell(f'up {RANK}')")
    assert end.status == 0, end.err
    room.hear("up 0")


def test_logs_go_where_the_flags_say_and_otherwise_where_a_line_says(room: Room) -> None:
    end = run(room, flags(room, "--tee=1", "--redirects=2"), "print('seen'); print('kept', file=sys.stderr)")
    assert (end.status, end.out) == (0, b"[default0]:seen\n"), end.err
    (line,) = said(end)
    folder = Path(line.removeprefix("the workers' logs are in "))
    (kept,) = folder.glob("*/attempt_0/0/stderr.log")
    assert kept.read_text() == "kept\n"


@needs_curl
def test_the_health_check_of_an_agent_that_asks_answers_whether_it_lives(room: Room) -> None:
    port = free_port()
    launcher = start(room, f"--health-check-port={port}")
    room.hear("up 0")
    assert curl(port, "livez") == (200, "alive\n")
    assert curl(port, "readyz")[0] == 404
    launcher.signal(signal.SIGTERM)
    assert launcher.wait(PATIENCE_S).status == 143


def test_a_free_port_of_the_health_check_is_said_as_by_every_agent(room: Room) -> None:
    end = run(room, flags(room, "--health-check-port=0"), "pass")
    (line,) = said(end)
    assert re.fullmatch(r"health check at http://127\.0\.0\.1:[1-9]\d*/", line), end.err


def _plain(text: str) -> str:
    """Return a script without the indentation that it has in here."""
    lines = text.strip("\n").splitlines()
    depth = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[depth:] for line in lines) + "\n"
