"""Real agents and real curl: every endpoint in every state, probes of a stuck agent, and strangers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from harness import wait_until
from ports import free_port
from probes import (
    DEAF,
    LATE,
    ORDERS,
    SECRET,
    SILENT,
    TOKEN,
    WAIT,
    ask_everywhere,
    curl,
    door,
    needs_curl,
    planaria,
    port_of,
    start,
    status,
    wait_state,
)
from stopping import stop

if TYPE_CHECKING:
    from harness import Room

# Every endpoint in every state.


@needs_curl
def test_an_agent_that_runs_answers_everywhere(room: Room) -> None:
    launcher, port = start(room, WAIT, "--max-restarts=2", workers=2, env=SECRET)
    ask_everywhere(port, "running", ready=True)
    for where in (port, door(room)):
        assert curl(where, "livez") == (200, "the loop turns\n")
        assert curl(where, "")[0] == 200
        assert curl(where, "readyz") == (200, "in a completed round\n")
        assert "\nplanaria_workers_running 2\n" in curl(where, "metrics")[1]
        assert curl(where, "nothing")[0] == 404
        assert curl(where, "livez", "-X", "DELETE")[0] == 405
        wait_until(lambda where=where: has_head_of_15_bytes(where), "a head for what a loop that turns says")
    found = status(port)
    assert found["job"]["launcher_pid"] == launcher.pid
    assert found["job"]["agent_pid"] == launcher.agent()
    assert (found["state"], found["ready"], found["restarts"]) == ("running", True, {"used": 0, "allowed": 2})
    assert [(one["rank"], one["state"]) for one in found["workers"]] == [(0, "running"), (1, "running")]
    assert all(os.path.exists(f"/proc/{one['pid']}") for one in found["workers"])
    launcher.signal(signal.SIGTERM)
    assert launcher.wait().status == 143
    assert curl(port, "livez") == SILENT


def has_head_of_15_bytes(where: int | str) -> bool:
    code, head = curl(where, "livez", "-I")
    return code == 200 and "Content-Length: 15" in head


@needs_curl
def test_one_who_waits_for_others_is_alive_and_not_ready(room: Room) -> None:
    where = f"--rdzv-endpoint=127.0.0.1:{free_port()}"
    flags = ["--nnodes=2", "--rdzv-backend=c10d", where, "--rdzv-id=w", "--health-check-port=0"]
    launcher = room.start(flags, WAIT, env=SECRET)
    port = port_of(room)
    wait_until(lambda: "1 of 2 nodes are here" in curl(port, "readyz")[1], "a reason for not being ready")
    ask_everywhere(port, "waiting")
    found = status(port)
    assert (found["state"], found["round"], found["workers"]) == ("waiting", None, [])
    assert found["members"]["waiting_for"].startswith("1 of 2 nodes are here")
    assert planaria(room, "stop").returncode == 0, "a run that waits for nodes can be ended, too"
    assert launcher.wait().status == 143


@needs_curl
def test_one_that_stops_its_workers_after_a_failure_is_alive_and_not_ready(room: Room) -> None:
    room.make_gate("crash")
    script = f"if RANK == 1:\n    tell('up 1'); wait_at('crash'); raise SystemExit(3)\n{DEAF}"
    launcher, port = start(room, script, "--shutdown-timeout=600", workers=2, env=SECRET)
    room.open_gate("crash")
    wait_state(port, "stopping")
    ask_everywhere(port, "stopping")
    assert curl(port, "readyz") == (503, "the workers are being stopped\n")
    assert [one["state"] for one in status(port)["workers"]] == ["running", "ended"]
    os.kill(status(port)["workers"][0]["pid"], signal.SIGKILL)
    assert launcher.wait().status == 1


# A launcher whose agent waits for long whether the other ranks make the same mistake: it is a second at most.
SETTLING = """\
import sys
from planaria.agent import machine
machine.settle_s = lambda age_s: 600.0
from planaria.launch.main import run
sys.exit(run(sys.argv[sys.argv.index("run") + 1:]))
"""


@needs_curl
def test_one_that_waits_whether_all_ranks_fail_alike_is_alive_and_not_ready(room: Room) -> None:
    room.make_gate("crash")
    wrapper = room.write("settling.py", SETTLING)
    script = f"if RANK == 1:\n    tell('up 1'); wait_at('crash'); import there_is_no_such_module\n{WAIT}"
    before = [sys.executable, wrapper]
    launcher, port = start(room, script, "--max-restarts=1", workers=2, before=before, env=SECRET)
    room.open_gate("crash")
    wait_state(port, "settling")
    ask_everywhere(port, "settling")
    launcher.signal(signal.SIGTERM)
    assert launcher.wait().status == 143


@needs_curl
def test_one_that_tells_its_workers_of_a_change_is_alive_and_not_ready(room: Room) -> None:
    where = f"--rdzv-endpoint=127.0.0.1:{free_port()}"
    meeting = ["--nnodes=1:2", "--rdzv-backend=c10d", where, "--rdzv-id=r", "--rdzv-conf=last_call_timeout=0"]
    listening = "from planaria import worker\nworker.resize_notice()\n" + WAIT
    first, port = start(room, listening, "--resize-grace=600", *meeting, env=SECRET)
    silence = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    other = room.start([*meeting, "--resize-grace=600"], listening, env=SECRET, **silence)
    wait_state(port, "resizing")
    ask_everywhere(port, "resizing")
    for launcher in (other, first):
        launcher.signal(signal.SIGTERM)
        assert launcher.wait().status == 143


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
    launcher, port = start(room, DEAF, "--shutdown-timeout=600", env=SECRET)
    launcher.signal(signal.SIGTERM)
    wait_state(port, "draining")
    ask_everywhere(port, "draining")
    assert curl(port, "readyz") == (503, "this node is draining\n")
    for order in ORDERS:
        code, body = curl(port, order, "-X", "POST", "-H", f"Authorization: Bearer {TOKEN}")
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
    stop(launcher.agent())
    assert curl(port, "livez", patience_s=1) == SILENT
    os.kill(launcher.agent(), signal.SIGCONT)
    assert curl(port, "livez") == (200, "the loop turns\n")
    assert curl(port, "readyz")[0] == 200
    launcher.signal(signal.SIGTERM)
    launcher.wait()


# A launcher whose agent's loop stands still where there is a FIFO, until somebody opens its other end.
STALLING = """\
import contextlib, os, sys, threading
from planaria.base.loop import Loop
honest = Loop.run_once
stall = os.path.join(os.environ["TMPDIR"], "stall")
def run_once(self, timeout_s=None):
    honest(self, timeout_s)
    if threading.current_thread() is threading.main_thread():
        with contextlib.suppress(FileNotFoundError):
            os.close(os.open(stall, os.O_RDONLY))
Loop.run_once = run_once
from planaria.launch.main import run
sys.exit(run(sys.argv[sys.argv.index("run") + 1:]))
"""


def let_go(room: Room) -> None:
    os.rename(room.path("tmp/stall"), room.path("passed"))  # first, or the loop would stand still there again
    os.close(os.open(room.path("passed"), os.O_RDWR))


@needs_curl
def test_liveness_fails_when_and_only_when_the_loop_is_stuck(room: Room) -> None:
    wrapper = room.write("stalling.py", STALLING)
    launcher, port = start(room, WAIT, "--health-check-timeout=1.5", before=[sys.executable, wrapper], env=SECRET)
    assert curl(port, "livez") == (200, "the loop turns\n")
    os.mkfifo(room.path("tmp/stall"))
    begun = time.monotonic()
    curl(port, "livez", stuck=True)  # it wakes the loop, which gets stuck then, or is already
    why = wait_until(lambda: (found := curl(port, "livez", stuck=True))[0] == 503 and found[1], "a failed probe")
    assert time.monotonic() >= begun + 1.5, "a loop that is busy for a moment is not stuck"
    assert why.startswith(LATE)
    ask_everywhere(port, "", stuck=True)
    let_go(room)
    wait_until(lambda: curl(port, "livez")[0] == 200, "a good probe")
    assert curl(port, "readyz")[0] == 200
    assert launcher.process.poll() is None, "what was asked while it was stuck did nothing"
    launcher.signal(signal.SIGTERM)
    launcher.wait()


@needs_curl
def test_an_order_that_a_stuck_loop_did_not_hear_is_not_carried_out_later(room: Room) -> None:
    wrapper = room.write("stalling.py", STALLING)
    launcher, port = start(room, before=[sys.executable, wrapper], env=SECRET)
    os.mkfifo(room.path("tmp/stall"))
    wait_until(lambda: curl(port, "livez", stuck=True)[1].startswith(LATE), "a loop that is stuck")
    code, _ = curl(port, "v1/drain", "-X", "POST", "-H", f"Authorization: Bearer {TOKEN}", stuck=True)
    assert code == 503
    let_go(room)
    wait_until(lambda: curl(port, "livez")[1] == "the loop turns\n", "a loop that turns")
    assert status(port)["state"] == "running"
    launcher.signal(signal.SIGTERM)
    launcher.wait()


# Strangers.


@needs_curl
def test_orders_need_the_token_and_no_browser(room: Room) -> None:
    launcher, port = start(room, env=SECRET)
    right = ("-H", f"Authorization: Bearer {TOKEN}")
    for order in ORDERS:
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
    launcher, port = start(room, WAIT, "--health-check-host=0.0.0.0", env=SECRET)
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
def test_torchs_variable_starts_it(room: Room) -> None:
    port = free_port()
    launcher = room.start([], WAIT, env={"TORCHELASTIC_HEALTH_CHECK_PORT": str(port)})
    room.hear("up 0")
    assert curl(port, "readyz")[0] == 200
    assert planaria(room, "drain", env={"TORCHELASTIC_HEALTH_CHECK_PORT": str(port)}).returncode == 0
    assert launcher.wait().status == 143


@needs_curl
def test_the_flag_wins_over_torchs_variable(room: Room) -> None:
    named = free_port()
    launcher, port = start(room, env={"TORCHELASTIC_HEALTH_CHECK_PORT": str(named)})
    assert port != named
    assert (curl(port, "readyz")[0], curl(named, "readyz")) == (200, SILENT)
    launcher.signal(signal.SIGTERM)
    assert launcher.wait().status == 143
