"""`--preflight`: a node that fails its checks joins nobody until it passes them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest
from crew import Crew
from harness import LAUNCHER
from probes import planaria
from waiting import wait_until

if TYPE_CHECKING:
    from harness import Room

FULL = 'mount -t tmpfs -o size=100m tmpfs "$1" && head -c 95000000 /dev/zero >"$1/fill" && shift && exec "$@"'
NO_SUCH = {"GLOO_SOCKET_IFNAME": "nosuch0"}


def test_a_node_alone_that_fails_ends_with_71_and_one_that_passes_runs(room: Room) -> None:
    end = room.run(["--preflight=network"], "tell('ran')\n", env=NO_SUCH)
    assert end.status == 71
    assert "job failed: this node failed its checks: network.chosen: GLOO_SOCKET_IFNAME=nosuch0" in end.err
    assert room.heard() == []
    end = room.run(["--preflight=environment,system"], "tell('ran')\n", env={"OMP_NUM_THREADS": "many"})
    assert (end.status, room.heard()) == (0, ["ran"])
    assert "preflight: environment.threads: OMP_NUM_THREADS=many" in end.err


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="a full disk is a private mount, which is root's to make")
def test_a_node_with_a_full_disk_is_set_aside_and_joins_once_there_is_room(room: Room) -> None:
    folder = room.path("data")
    os.mkdir(folder)
    crew = Crew(room, "--max-restarts=0", nodes="1:2")
    crew.add_first("a")
    crew.wait_world("a")
    events = f"--event-log-handler=jsonl:{room.path('events')}"
    checks = ("--preflight=disk", "--preflight-cooldown=1", f"--snapshot-dir={folder}")
    private = ("unshare", "--mount", "sh", "-c", FULL, "sh", folder, *LAUNCHER)
    b = crew.add("b", *checks, events, launcher=private)
    b.wait_said("this node is set aside for 1 s and joins nobody: disk.space: --snapshot-dir")
    asked = planaria(room, "health", "--ready", "--json")
    assert asked.returncode == 1
    assert "set aside, to be checked again: disk.space" in asked.stdout
    assert len(crew.worlds()) == 1
    os.unlink(f"/proc/{b.pid}/root{folder}/fill")
    crew.wait_world("a", "b")
    crew.end_well("a", "b")
    told = [json.loads(line) for line in room.read("events").splitlines()]
    found = [event["metadata"]["findings"] for event in told if event["name"] == "planaria.preflight"]
    assert [one["check"] for one in found[0] if not one["ok"]] == ["disk.space"]
    assert all(one["ok"] for one in found[-1])


def test_a_node_that_is_set_aside_ends_when_its_owner_says_so(room: Room) -> None:
    crew = Crew(room, "--max-restarts=0", nodes="1:2")
    node = crew.add("a", "--preflight=network", "--preflight-cooldown=600", env=NO_SUCH)
    node.wait_said("this node is set aside for 600 s")
    told = planaria(room, "drain", f"--pid={node.pid}")
    assert told.returncode == 0, told.stderr + node.err()
    assert node.wait().status == 143
    wait_until(lambda: not room.leftovers(), "no process left")
