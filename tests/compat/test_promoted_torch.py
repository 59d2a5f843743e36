"""A torch job whose worker crashes goes on in processes that had imported torch before: same ports, ranks and sums."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from programs import clean_environment
from standing import stands_ready
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

if importlib.util.find_spec("torch") is None:
    pytest.skip("process groups come with torch", allow_module_level=True)

pytestmark = pytest.mark.torch
TIMEOUT_S = 150
WORKER = """
import os, sys
ahead = "torch" in sys.modules
import json, time
from planaria import worker
JOIN
ahead = ahead or "torch._dynamo" in sys.modules
import torch
import torch.distributed as dist

rank, life = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("gloo")
weight = torch.nn.Parameter(torch.full((1,), float(rank + 1)))
optimizer = torch.optim.AdamW([weight])
total = weight.detach().clone()
dist.all_reduce(total)
with open(f"note.{life}.{rank}.part", "w") as file:
    json.dump({"pid": os.getpid(), "ahead": ahead, "total": total.item(), "world": dist.get_world_size()}, file)
os.rename(file.name, f"note.{life}.{rank}")
worker.report_progress(1)
while life == 0 or not os.path.exists("stop"):
    if rank == 1 and life == 0 and os.path.exists("crash"):
        os._exit(3)
    time.sleep(0.02)  # training, until one of the two files is there
dist.destroy_process_group()
"""


def children_of(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def notes(folder: Path, life: int) -> list[dict[str, Any]]:
    found = [folder / f"note.{life}.{rank}" for rank in (0, 1)]
    return [json.loads(path.read_text()) for path in found] if all(path.exists() for path in found) else []


@pytest.mark.parametrize("way", ["preload", "join"])
def test_a_crash_of_a_torch_job_is_recovered_by_promotion(tmp_path: Path, way: str) -> None:
    join = "import torch\nworker.join()" if way == "join" else ""
    (tmp_path / "job.py").write_text(WORKER.replace("JOIN", join))
    flags = ["--nproc-per-node=2", "--max-restarts=2", "--standbys=2", "--report-file=report.json"]
    with subprocess.Popen(
        [sys.executable, "-m", "planaria", "run", *flags, "job.py"],
        cwd=tmp_path,
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as launcher:
        try:
            before = wait_until(lambda: notes(tmp_path, 0), "a first life", TIMEOUT_S, 0.02)
            (agent,) = children_of(launcher.pid)
            ready = wait_until(lambda: _two_ready(agent), "two standbys", TIMEOUT_S, 0.02)
            (tmp_path / "crash").touch()
            after = wait_until(lambda: notes(tmp_path, 1), "a second life", TIMEOUT_S, 0.02)
            (tmp_path / "stop").touch()
            _, said = launcher.communicate(timeout=TIMEOUT_S)
        finally:
            launcher.terminate()
    assert launcher.returncode == 0, said
    assert [note["total"] for note in (*before, *after)] == [3.0] * 4
    assert {note["pid"] for note in after} == ready, said
    assert [note["ahead"] for note in (*before, *after)] == [False] * 2 + [True] * 2, "with what an optimizer imports"
    (record,) = json.loads((tmp_path / "report.json").read_text())["restart_records"]
    assert (record["promoted"], record["cold"]) == ([0, 1], {})
    assert not any(os.path.exists(f"/proc/{pid}") for pid in ready)


def _two_ready(agent: int) -> set[int]:
    found = {pid for pid in children_of(agent) if stands_ready(pid)}
    return found if len(found) == 2 else set()
