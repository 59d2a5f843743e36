"""Real process groups from `env://`: they form at the first try in every life, and on a port that nobody else has.

`PLANARIA_TEST_CRASHES` says how many worker crashes the long test survives: 30 by default, 300 in a nightly run; importing
torch twice costs 2-3 s a life on two cores.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from programs import clean_environment

from planaria.agent.model import MOST_LIVES

if TYPE_CHECKING:
    from pathlib import Path

if importlib.util.find_spec("torch") is None:
    pytest.skip("process groups come with torch", allow_module_level=True)

pytestmark = pytest.mark.torch
CRASHES = int(os.environ.get("PLANARIA_TEST_CRASHES", "30"))
TIMEOUT_S = 100 + 15 * CRASHES

WORKER = """
import json, os, signal, sys
from datetime import timedelta

rank, life = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])

def note(**what):
    place = {"port": os.environ["MASTER_PORT"], "round": os.environ["PLANARIA_ROUND"]}
    line = json.dumps({"rank": rank, "life": life, **place, **what})
    fd = os.open("notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, line.encode() + b"\\n")
    os.close(fd)

def all_reduce():
    import torch, torch.distributed
    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=90))
    total = torch.full((1,), float(rank + 1))
    torch.distributed.all_reduce(total)
    note(total=total.item())
    torch.distributed.barrier()  # nobody ends this life before all have noted it
"""
CRASHING = """
all_reduce()
if life < int(sys.argv[1]):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()
import torch.distributed
torch.distributed.destroy_process_group()
"""
STEALING = """
import socket
if os.environ["PLANARIA_ROUND"] == "0":
    if rank == 1:
        thief = socket.socket(socket.AF_INET6)
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("::", int(os.environ["MASTER_PORT"])))
        thief.listen()
        open("stolen", "w").close()
        signal.pause()
    open("stolen").close()
all_reduce()
import torch.distributed
torch.distributed.destroy_process_group()
"""


def run(folder: Path, script: str, flags: tuple[str, ...], *args: str) -> subprocess.CompletedProcess[str]:
    (folder / "main.py").write_text(WORKER + script)
    common = ("--nproc-per-node=2", f"--report-file={folder / 'report.json'}")
    return subprocess.run(
        [sys.executable, "-m", "planaria", "run", *common, *flags, "main.py", *args],
        cwd=folder,
        env=clean_environment("PYTHON", OMP_NUM_THREADS="1"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def notes(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "notes").read_text().splitlines()]


@pytest.mark.timeout(TIMEOUT_S + 20)
def test_a_process_group_forms_at_the_first_try_after_every_crash(tmp_path: Path) -> None:
    done = run(tmp_path, CRASHING, (f"--max-restarts={CRASHES}",), str(CRASHES))
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    kept = min(CRASHES + 1, MOST_LIVES)  # a report has the newest alone; at night there are more
    assert (report["outcome"], report["restarts"], len(report["lives"])) == ("done", CRASHES, kept)
    causes = [life["failures"][0] for life in report["lives"][:-1]]
    assert [(cause["rank"], cause["status"], cause["killer"]) for cause in causes] == [(1, -9, "other")] * (kept - 1)
    formed = sorted((note["life"], note["rank"], note["total"]) for note in notes(tmp_path))
    assert formed == [(life, rank, 3.0) for life in range(CRASHES + 1) for rank in range(2)]
    ports = {(note["life"], note["port"]) for note in notes(tmp_path)}
    assert len(ports) == CRASHES + 1  # all ranks of a life agree
    in_order = [port for _, port in sorted(ports)]
    assert all(before != after for before, after in pairwise(in_order))


@pytest.mark.parametrize(
    "flags", [(), ("--no-bootstrap", "--tee=2", "--log-dir=logs")], ids=["bootstrap", "no bootstrap"]
)
def test_a_stolen_master_port_is_replaced_at_no_cost(tmp_path: Path, flags: tuple[str, ...]) -> None:
    os.mkfifo(tmp_path / "stolen")
    done = run(tmp_path, STEALING, ("--max-restarts=0", *flags))
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["restarts"], len(report["lives"])) == (0, 2)
    assert report["lives"][0]["failures"][0]["rank"] == 0
    assert report["lives"][1]["reason"] == "the master port was taken by another program"
    seen = notes(tmp_path)
    assert sorted((note["rank"], note["life"], note["round"]) for note in seen) == [(0, 0, "1"), (1, 0, "1")]
    assert "so this costs no restart" in done.stderr
