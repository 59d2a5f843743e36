"""Real agents and real curl: every endpoint in every state, probes of a stuck agent, and orders of its owner."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from crew import Crew
from harness import PATIENCE_S, wait_until
from ports import free_port

if TYPE_CHECKING:
    from harness import Launcher, Room

CURL = shutil.which("curl")
needs_curl = pytest.mark.skipif(CURL is None, reason="there is no curl on this machine")
SILENT = (0, "")
WAIT = 'tell(f"up {RANK}")\nwait_forever()\n'
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAIT
READS = ("livez", "readyz", "metrics", "v1/status")
TOKEN = "s3cret-of-the-run"


def curl(
    where: int | str, path: str, *flags: str, host: str = "127.0.0.1", patience_s: float = PATIENCE_S
) -> tuple[int, str]:
    """Ask with curl, at a port or through a UNIX socket; (0, "") when nobody answers in time."""
    assert CURL is not None
    door = ["--unix-socket", where] if isinstance(where, str) else []
    url = f"http://localhost/{path}" if isinstance(where, str) else f"http://{host}:{where}/{path}"
    argv = [CURL, "-s", "-m", str(patience_s), "-w", "\n%{http_code}", *door, *flags, url]
    env = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=PATIENCE_S * 2, check=False)
    if done.returncode:
        return SILENT
    body, _, code = done.stdout.rpartition("\n")
    return int(code), body


def status(where: int | str) -> dict[str, Any]:
    code, body = curl(where, "v1/status")
    assert code == 200, body
    found: dict[str, Any] = json.loads(body)
    assert found["schema"] == 1
    return found


def port_of(room: Room, name: str = "err") -> int:
    """Return the free port that the agent said it answers at."""
    pattern = re.compile(rb"health check at http://[^/]*:(\d+)/")
    return int(wait_until(lambda: pattern.search(room.read(name)), "the line about the health check")[1])


def wait_state(where: int | str, state: str) -> None:
    wait_until(lambda: status(where)["state"] == state, f"state {state}")


def planaria(room: Room, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    dropped = ("PET_", "PLANARIA_", "TORCH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return subprocess.run(
        [sys.executable, "-m", "planaria", *words],
        env={**kept, "TMPDIR": room.tmp, **(env or {})},
        cwd=room.root,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 2,
        check=False,
    )


def door(room: Room) -> str:
    (name,) = room.scratch_folders()
    return os.path.join(room.tmp, name, "http")


def start(room: Room, script: str = WAIT, *flags: str, workers: int = 1, **settings: Any) -> tuple[Launcher, int]:
    launcher = room.start(["--health-check-port=0", f"--nproc-per-node={workers}", *flags], script, **settings)
    room.hear_many([f"up {rank}" for rank in range(workers)])
    return launcher, port_of(room)


# Every endpoint in every state.


@needs_curl
def test_an_agent_that_runs_answers_everywhere(room: Room) -> None:
    launcher, port = start(room, WAIT, "--max-restarts=2", workers=2)
    for where in (port, door(room)):
        assert curl(where, "livez") == (200, "the loop turns\n")
        assert curl(where, "")[0] == 200
        assert curl(where, "readyz") == (200, "in a completed round\n")
        assert "\nplanaria_workers_running 2\n" in curl(where, "metrics")[1]
        assert curl(where, "nothing")[0] == 404
        assert curl(where, "livez", "-X", "DELETE")[0] == 405
        code, head = curl(where, "livez", "-I")
        assert code == 200
        assert "Content-Length: 15" in head
    found = status(port)
    assert found["job"]["launcher_pid"] == launcher.pid
    assert found["job"]["agent_pid"] == launcher.agent()
    assert (found["state"], found["ready"], found["restarts"]) == ("running", True, {"used": 0, "allowed": 2})
    assert [(one["rank"], one["state"]) for one in found["workers"]] == [(0, "running"), (1, "running")]
    assert all(os.path.exists(f"/proc/{one['pid']}") for one in found["workers"])
    launcher.signal(signal.SIGTERM)
    assert launcher.wait().status == 143
    assert curl(port, "livez") == SILENT


@needs_curl
def test_one_who_waits_for_others_is_alive_and_not_ready(room: Room) -> None:
    where = f"--rdzv-endpoint=127.0.0.1:{free_port()}"
    flags = ["--nnodes=2", "--rdzv-backend=c10d", where, "--rdzv-id=w", "--health-check-port=0"]
    launcher = room.start(flags, WAIT)
    port = port_of(room)
    wait_until(lambda: "1 of 2 nodes are here" in curl(port, "readyz")[1], "a reason for not being ready")
    assert curl(port, "readyz")[0] == 503
    assert curl(port, "livez")[0] == curl(port, "metrics")[0] == 200
    found = status(port)
    assert (found["state"], found["round"], found["workers"]) == ("waiting", None, [])
    assert found["members"]["waiting_for"].startswith("1 of 2 nodes are here")
    assert planaria(room, "stop").returncode == 0, "a run that waits for nodes can be ended, too"
    assert launcher.wait().status == 143


@needs_curl
def test_one_that_stops_its_workers_after_a_failure_is_alive_and_not_ready(room: Room) -> None:
    room.make_gate("crash")
    script = f"if RANK == 1:\n    tell('up 1'); wait_at('crash'); raise SystemExit(3)\n{DEAF}"
    launcher, port = start(room, script, "--shutdown-timeout=600", workers=2)
    room.open_gate("crash")
    wait_state(port, "stopping")
    assert curl(port, "readyz") == (503, "the workers are being stopped\n")
    assert curl(port, "livez")[0] == curl(port, "metrics")[0] == 200
    assert [one["state"] for one in status(port)["workers"]] == ["running", "ended"]
    os.kill(status(port)["workers"][0]["pid"], signal.SIGKILL)
    assert launcher.wait().status == 1


@needs_curl
def test_one_that_has_restarted_says_why_and_is_ready_again(room: Room) -> None:
    script = f"if LIFE == 0:\n    raise SystemExit(3)\n{WAIT}"
    launcher, port = start(room, script, "--max-restarts=1", "--always-restart")
    wait_state(port, "running")
    assert curl(port, "readyz")[0] == 200
    found = status(port)
    assert (found["restarts"]["used"], found["last_reason"], found["round"]["number"]) == (1, "rank 0 failed", 1)
    launcher.signal(signal.SIGTERM)
    assert launcher.wait().status == 143


@needs_curl
def test_one_that_drains_is_alive_and_not_ready_and_hears_a_second_order_calmly(room: Room) -> None:
    launcher, port = start(room, DEAF, "--shutdown-timeout=600", env={"PLANARIA_TOKEN": TOKEN})
    launcher.signal(signal.SIGTERM)
    wait_state(port, "draining")
    assert curl(port, "readyz") == (503, "this node is draining\n")
    assert curl(port, "livez")[0] == curl(port, "metrics")[0] == 200
    for order in ("drain", "stop"):
        code, body = curl(port, f"v1/{order}", "-X", "POST", "-H", f"Authorization: Bearer {TOKEN}")
        assert (code, json.loads(body)["state"]) == (202, "draining")
    assert planaria(room, "drain", "--timeout=0.5").returncode == 1
    os.kill(status(port)["workers"][0]["pid"], signal.SIGKILL)
    assert launcher.wait().status == 143


@needs_curl
def test_progress_of_each_rank_is_told(room: Room) -> None:
    script = "from planaria import worker\nworker.report_progress(41 + RANK)\n" + WAIT
    launcher, port = start(room, script, workers=2)
    wait_until(lambda: None not in status(port)["progress"].values(), "progress of both ranks")
    assert {rank: one["step"] for rank, one in status(port)["progress"].items()} == {"0": 41, "1": 42}
    launcher.signal(signal.SIGTERM)
    launcher.wait()


# Alive or stuck.


@needs_curl
def test_an_agent_that_is_stopped_gives_no_answer_and_a_good_one_when_it_goes_on(room: Room) -> None:
    launcher, port = start(room)
    os.kill(launcher.agent(), signal.SIGSTOP)
    assert curl(port, "livez", patience_s=1) == SILENT
    os.kill(launcher.agent(), signal.SIGCONT)
    assert curl(port, "livez") == (200, "the loop turns\n")
    assert curl(port, "readyz")[0] == 200
    launcher.signal(signal.SIGTERM)
    launcher.wait()


# A launcher whose agent's loop stands still for as long as a file exists.
STALLING = """\
import os, sys, threading, time
from planaria.base.loop import Loop
honest = Loop.run_once
stall = os.path.join(os.environ["TMPDIR"], "stall")
def run_once(self, timeout_s=None):
    honest(self, timeout_s)
    while threading.current_thread() is threading.main_thread() and os.path.exists(stall):
        time.sleep(0.01)
Loop.run_once = run_once
from planaria.launch.main import run
sys.exit(run(sys.argv[sys.argv.index("run") + 1:]))
"""


@needs_curl
def test_liveness_fails_when_and_only_when_the_loop_is_stuck(room: Room) -> None:
    wrapper = room.write("stalling.py", STALLING)
    launcher, port = start(room, WAIT, "--health-check-timeout=1.5", before=[sys.executable, wrapper])
    assert curl(port, "livez") == (200, "the loop turns\n")
    room.write("tmp/stall", "")
    begun = time.monotonic()
    curl(port, "livez")  # it wakes the loop, which gets stuck then, or is already
    _, why = wait_until(lambda: curl(port, "livez") if curl(port, "livez")[0] == 503 else None, "a failed probe")
    assert time.monotonic() >= begun + 1.5, "a loop that is busy for a moment is not stuck"
    assert why.startswith("the agent's loop has not answered for ")
    assert curl(port, "readyz")[0] == curl(port, "v1/status")[0] == curl(port, "metrics")[0] == 503
    os.unlink(room.path("tmp/stall"))
    wait_until(lambda: curl(port, "livez")[0] == 200, "a good probe")
    assert curl(port, "readyz")[0] == 200
    assert launcher.process.poll() is None, "what was asked while it was stuck did nothing"
    launcher.signal(signal.SIGTERM)
    launcher.wait()


@needs_curl
def test_an_order_that_a_stuck_loop_did_not_hear_is_not_carried_out_later(room: Room) -> None:
    wrapper = room.write("stalling.py", STALLING)
    launcher, port = start(room, before=[sys.executable, wrapper], env={"PLANARIA_TOKEN": TOKEN})
    room.write("tmp/stall", "")
    curl(port, "livez")
    code, _ = curl(port, "v1/drain", "-X", "POST", "-H", f"Authorization: Bearer {TOKEN}")
    assert code == 503
    os.unlink(room.path("tmp/stall"))
    wait_until(lambda: curl(port, "livez")[1] == "the loop turns\n", "a loop that turns")
    assert status(port)["state"] == "running"
    launcher.signal(signal.SIGTERM)
    launcher.wait()


# Strangers.


@needs_curl
def test_orders_need_the_token_and_no_browser(room: Room) -> None:
    launcher, port = start(room, env={"PLANARIA_TOKEN": TOKEN})
    right = ("-H", f"Authorization: Bearer {TOKEN}")
    for order in ("v1/drain", "v1/stop"):
        assert curl(port, order, "-X", "POST")[0] == 401
        assert curl(port, order, "-X", "POST", "-H", "Authorization: Bearer wrong")[0] == 403
        assert curl(port, order, "-X", "POST", *right, "-H", "Origin: http://evil.example")[0] == 403
        assert curl(port, order, "-X", "POST", *right, "-H", "Host: evil.example")[0] == 403
        assert curl(port, order, *right)[0] == 405
    assert curl(port, "v1/stop", "-X", "POST", *right, "-d", '{"grace_s": -1}')[0] == 400
    assert curl(port, "v1/stop", "-X", "POST", *right, "-d", "x" * 5000)[0] == 413
    assert status(port)["state"] == "running"
    assert curl(port, "v1/drain", "-X", "POST", *right)[0] == 202
    end = launcher.wait()
    assert (end.status, end.report["outcome"]) == (143, "signal")
    assert TOKEN not in end.err


@needs_curl
def test_without_a_token_only_the_owners_door_takes_orders(room: Room) -> None:
    launcher, port = start(room)
    code, why = curl(port, "v1/stop", "-X", "POST", "-H", "Authorization: Bearer ")
    assert code == 403
    assert "PLANARIA_TOKEN" in why
    assert os.stat(os.path.dirname(door(room))).st_mode & 0o777 == 0o700
    assert curl(door(room), "v1/stop", "-X", "POST")[0] == 202
    end = launcher.wait()
    assert (end.status, end.report["outcome"]) == (143, "stopped")
    assert "planaria: stopped: its owner asked for the end of the run" in end.err


@needs_curl
def test_beyond_loopback_only_probes_and_metrics_answer_without_the_token(room: Room) -> None:
    address = own_address()
    launcher, port = start(room, WAIT, "--health-check-host=0.0.0.0", env={"PLANARIA_TOKEN": TOKEN})
    for path in ("livez", "readyz", "metrics"):
        assert curl(port, path, host=address)[0] == 200
    assert curl(port, "v1/status", host=address)[0] == 401
    assert curl(port, "v1/status", "-H", f"Authorization: Bearer {TOKEN}", host=address)[0] == 200
    assert curl(port, "v1/status")[0] == 200, "from this machine"
    told = planaria(room, "drain", f"--host={address}", f"--port={port}", env={"PLANARIA_TOKEN": TOKEN, "TMPDIR": "/"})
    assert (told.returncode, launcher.wait().status) == (0, 143), told.stderr


def own_address() -> str:
    """Return an address of this machine that is not loopback. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has loopback only")
        found = str(probe.getsockname()[0])
    if found.startswith("127."):
        pytest.skip("this machine has loopback only")
    return found


@needs_curl
def test_slow_silent_and_rude_clients_hold_up_nobody(room: Room) -> None:
    launcher, port = start(room)
    crowd = [socket.create_connection(("127.0.0.1", port), 20) for _ in range(150)]
    for number, one in enumerate(crowd):
        one.sendall([b"", b"GET /livez HT", b"GET / HTTP/1.1\r\nX: " + b"a" * 9000, b"\x16\x03\x01\0"][number % 4])
    for _ in range(5):
        assert curl(port, "livez")[0] == 200
        assert curl(port, "readyz")[0] == 200
    assert len(os.listdir(f"/proc/{launcher.agent()}/fd")) < 120
    for one in crowd:
        one.close()
    launcher.signal(signal.SIGTERM)
    assert launcher.wait().status == 143


def test_a_port_in_use_is_one_line_and_the_job_goes_on(room: Room) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        end = room.run([], "", env={"TORCHELASTIC_HEALTH_CHECK_PORT": str(port)})
    said = [line for line in end.err.splitlines() if "health" in line]
    assert end.status == 0
    assert said == [
        f"planaria: no health check at 127.0.0.1:{port}: Address already in use; the job goes on without it"
    ]


@needs_curl
def test_torchs_variable_starts_it_and_the_flag_wins(room: Room) -> None:
    port = free_port()
    launcher = room.start([], WAIT, env={"TORCHELASTIC_HEALTH_CHECK_PORT": str(port)})
    room.hear("up 0")
    assert curl(port, "readyz")[0] == 200
    assert planaria(room, "drain", env={"TORCHELASTIC_HEALTH_CHECK_PORT": str(port)}).returncode == 0
    assert launcher.wait().status == 143


# The owner's commands.


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
    time.sleep(0.01)
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
    assert len(crew.worlds()) == 1
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
