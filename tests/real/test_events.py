"""Events and restart records of real jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import exposition
import pytest
from crew import Crew
from harness import kill, wait_until
from programs import install

if TYPE_CHECKING:
    from harness import Room

PHASES = ("detect", "decide", "stop", "rendezvous", "start", "ready")
CRASH_ONCE = """
import time
if LIFE == 0 and RANK == 1:
    tell("one failed")
    raise RuntimeError("once")
if LIFE == 0:
    wait_forever()
"""


def events(room: Room, name: str = "events.jsonl") -> list[dict[str, Any]]:
    whole, _, _ = room.read(name).decode().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def named(found: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event["metadata"] for event in found if event["name"] == f"planaria.{name}"]


def check_restart(restart: dict[str, Any]) -> None:
    parts = [restart[f"{phase}_s"] for phase in PHASES]
    assert min(parts) >= 0, restart
    assert round(sum(parts), 6) == restart["total_s"], restart


def test_a_crash_is_one_restart_whose_phases_are_its_time(room: Room) -> None:
    before_ms, before = time.time() * 1000, time.monotonic()
    flags = ("--nproc-per-node=2", "--max-restarts=3", f"--event-log-handler=jsonl:{room.path('events.jsonl')}")
    end = room.run(flags, CRASH_ONCE)
    after_ms, wall_s = time.time() * 1000, time.monotonic() - before
    assert end.status == 0, end.err
    found = events(room)
    assert [event["name"].removeprefix("planaria.") for event in found if "worker" not in event["name"]] == [
        "run.started",
        "round.started",
        "round.started",
        "restart",
        "run.ended",
    ]
    assert all(before_ms - 1 <= event["timestamp"] <= after_ms + 1 for event in found)
    (restart,) = named(found, "restart")
    check_restart(restart)
    assert 0 < restart["total_s"] < wall_s
    assert restart["detect_s"] > 0, "the worker wrote down when it raised, and was seen to end after that"
    assert restart["stop_s"] > 0
    assert restart["ready_s"] > 0, "a Python interpreter needs some time to come to its first line"
    assert restart["rendezvous_s"] == 0
    assert (restart["kind"], restart["reason"], restart["charged"], restart["signed"]) == (
        "failed",
        "rank 1 failed",
        True,
        2,
    )
    starts = named(found, "worker.started")
    assert [(start["round"], start["rank"]) for start in starts] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    ends = {(one["round"], one["rank"]): one for one in named(found, "worker.exited")}
    assert {key: one["result"] for key, one in ends.items()} == {
        (0, 0): "stopped",
        (0, 1): "failed",
        (1, 0): "ok",
        (1, 1): "ok",
    }
    assert ends[0, 1]["message"] == "RuntimeError: once"
    assert {(one["rank"], one["round"]): one["pid"] for one in starts} == {
        (rank, number): one["pid"] for (number, rank), one in ends.items()
    }
    (record,) = end.report["restart_records"]
    assert record == {"timestamp": record["timestamp"], **{key: restart[key] for key in record if key != "timestamp"}}


def test_a_program_that_is_no_python_gives_no_sign_and_its_restart_is_told_all_the_same(room: Room) -> None:
    script = room.write("once.sh", "#!/bin/sh\n[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3\n", 0o755)
    end = room.start_command(["--max-restarts=1", "--always-restart", "--no-python", script]).wait()
    assert end.status == 0, end.err
    (record,) = end.report["restart_records"]
    check_restart(record)
    assert (record["signed"], record["ready_s"]) == (0, 0.0)


def test_workers_that_fail_at_once_leave_a_record_of_every_restart(room: Room) -> None:
    end = room.run(("--nproc-per-node=2", "--max-restarts=3", "--always-restart"), "import sys; sys.exit(3)")
    assert end.status == 1
    assert [record["round"] for record in end.report["restart_records"]] == [1, 2, 3]
    for record in end.report["restart_records"]:
        check_restart(record)


def test_events_can_go_to_the_console_and_to_loggers_and_to_prometheus(room: Room) -> None:
    path = room.path("planaria.prom")
    flags = ("--max-restarts=1", f"--event-log-handler=console,logging,prometheus:{path}")
    end = room.run(flags, "import sys; sys.exit(0 if LIFE else 3)", env={"LOGLEVEL": "WARNING"})
    assert end.status == 0, end.err
    lines = end.err.splitlines()
    shown = [json.loads(line.removeprefix("planaria: event ")) for line in lines if line.startswith("planaria: event ")]
    assert [event["name"] for event in shown][:2] == ["planaria.run.started", "planaria.round.started"]
    logged = [line for line in lines if "planaria.events" in line]
    assert [line.split()[3] for line in logged] == ["WARNING", "WARNING"], "a failed worker and a restart"
    families = exposition.read(room.read("planaria.prom").decode())
    assert families["planaria_restarts_total"].samples["planaria_restarts_total", (("reason", "failed"),)] == 1
    assert families["planaria_restart_seconds"].samples["planaria_restart_seconds_count", ()] == 1
    events_seen = families["planaria_events_total"].samples
    assert events_seen["planaria_events_total", (("name", "planaria.run.ended"),)] == 1
    assert not [name for name in os.listdir(room.root) if name.endswith(".tmp")]


def test_a_scrape_sees_the_numbers_of_the_life_that_runs(room: Room) -> None:
    room.make_gate("end")
    script = "import sys\nif not LIFE: sys.exit(3)\ntell('again')\nwait_at('end')"
    launcher = room.start(("--max-restarts=2", "--health-check-port=0"), script)
    room.hear("again")

    def address() -> str:
        return room.read("err").decode().partition("health check at ")[2].partition("\n")[0]

    def scrape() -> dict[str, exposition.Family]:
        with urllib.request.urlopen(f"{wait_until(address, 'an address')}metrics", timeout=30) as reply:
            assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            return exposition.read(reply.read().decode())

    families = wait_until(lambda: (found := scrape()) and "planaria_restart_seconds" in found and found, "a restart")
    assert families["planaria_workers_running"].samples == {("planaria_workers_running", ()): 1}
    assert families["planaria_round"].samples == {("planaria_round", ()): 1}
    assert families["planaria_restarts_left"].samples == {("planaria_restarts_left", ()): 1}
    phases = families["planaria_restart_phase_seconds"].samples
    counts = [phases["planaria_restart_phase_seconds_count", (("phase", phase),)] for phase in PHASES]
    assert counts == [1] * 6
    room.open_gate("end")
    assert launcher.wait().status == 0


def test_a_full_disk_costs_events_and_one_line_and_nothing_else(room: Room) -> None:
    end = room.run(("--event-log-handler=jsonl:/dev/full",), "print('worked')")
    assert end.status == 0
    assert end.err.count("cannot write an event to /dev/full, going on without it: No space left on device") == 1
    assert end.out == b"worked\n"


HANDLER = """
import json, os
class Handler:
    def __init__(self, argument): self.file = open(argument, "a")
    def handle(self, event): self.file.write(event["name"] + "\\n")
    def close(self): self.file.close()
def broken(argument): raise LookupError("no such place")
"""
POINTS = {"mine": "mine_handlers:Handler", "broken": "mine_handlers:broken"}


@pytest.fixture
def installed(room: Room) -> dict[str, str]:
    """An installed package with two event handlers, and the environment in which it is found."""
    install(Path(room.path("site")), "mine", {"planaria.event_handlers": POINTS})
    room.write("site/mine_handlers.py", HANDLER)
    paths = [room.path("site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths)}


def test_another_packages_handler_gets_the_events_of_a_run(room: Room, installed: dict[str, str]) -> None:
    end = room.run((f"--event-log-handler=mine:{room.path('names')}",), "pass", env=installed)
    assert end.status == 0, end.err
    names = room.read("names").decode().split()
    assert names == [
        "planaria.run.started",
        "planaria.round.started",
        "planaria.worker.started",
        "planaria.worker.exited",
        "planaria.run.ended",
    ]


def test_another_packages_handler_that_cannot_be_made_ends_the_launcher_before_any_worker(
    room: Room, installed: dict[str, str]
) -> None:
    end = room.run(("--event-log-handler=broken",), "tell('started')", env=installed)
    assert end.status == 2
    assert (
        end.err
        == "planaria: --event-log-handler: the event handler 'broken' cannot be made: LookupError('no such place')\n"
    )
    assert room.heard() == []


def test_a_lost_node_is_one_restart_for_the_one_that_is_left(room: Room) -> None:
    room.scratch_folders = list  # type: ignore[method-assign]  # a node that is killed whole cannot remove its own
    crew = Crew(room, "--max-restarts=0", nodes="1:2", conf="last_call_timeout=60")  # however late one of them starts
    crew.add("a", f"--event-log-handler=jsonl:{room.path('events.a')}")
    crew.add("b", f"--event-log-handler=jsonl:{room.path('events.b')}")
    crew.wait_world("a", "b")
    crew.nodes["b"].kill()
    crew.wait_world("a")
    wait_until(lambda: named(events(room, "events.a"), "restart"), "a restart record")
    crew.finish_well("a")
    (restart,) = named(events(room, "events.a"), "restart")
    check_restart(restart)
    assert (restart["kind"], restart["charged"]) == ("lost", False)
    assert restart["rendezvous_s"] > 0
    assert crew.nodes["a"].wait().report["restart_records"][0]["total_s"] == restart["total_s"]
    assert named(events(room, "events.b"), "restart") == []
    rounds = named(events(room, "events.a"), "round.started")
    assert [(one["nodes"], one["world_size"]) for one in rounds] == [(2, 2), (1, 1)]


def test_a_worker_that_is_killed_restarts_every_node_and_each_tells_its_own_part(room: Room) -> None:
    crew = Crew(room, "--max-restarts=1", nodes="2")
    for name in "ab":
        crew.add(name, f"--event-log-handler=jsonl:{room.path(f'events.{name}')}")
    crew.wait_world("a", "b")
    kill(crew.nodes["b"].workers()[0])
    crew.wait_world("a", "b")
    for name in "ab":
        wait_until(lambda name=name: named(events(room, f"events.{name}"), "restart"), f"a restart record of {name}")
    crew.finish_well("a", "b")
    for name in "ab":
        (restart,) = named(events(room, f"events.{name}"), "restart")
        check_restart(restart)
        assert (restart["kind"], restart["charged"], restart["signed"]) == ("failed", True, 1)


EMBEDDED = """
import os, sys
from planaria.launcher.api import LaunchConfig, elastic_launch

def work():
    if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise RuntimeError("once")
    return int(os.environ["RANK"])

if __name__ == "__main__":
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=2, run_id="embedded", rdzv_backend="c10d",
        rdzv_endpoint="localhost:0", max_restarts=2, start_method=sys.argv[2], event_log_handler=sys.argv[1],
    )
    assert elastic_launch(config, work)() == {0: 0, 1: 1}
"""


@pytest.mark.parametrize(("method", "signed"), [("spawn", 2), ("fork", 0)])
def test_an_embedded_agent_records_its_restarts_beside_the_events_of_torch(
    room: Room, method: str, signed: int
) -> None:
    command = [sys.executable, room.write("embed.py", EMBEDDED), f"jsonl:{room.path('events.jsonl')}", method]
    environment = {**os.environ, "TMPDIR": room.tmp}
    done = subprocess.run(command, cwd=room.root, env=environment, capture_output=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    found = events(room)
    (restart,) = named(found, "restart")
    check_restart(restart)
    assert (restart["kind"], restart["signed"]) == ("failed", signed)
    assert [event["metadata"]["state"] for event in found if event["name"] != "planaria.restart"].count("START") == 4
