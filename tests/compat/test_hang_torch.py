"""A rank that misses a collective of torch: it is named, and the evidence has the collective that the other one is in."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hanging import NO_TOOL, Jobs, assert_caught

if TYPE_CHECKING:
    from collections.abc import Iterator

if importlib.util.find_spec("torch") is None:
    pytest.skip("process groups come with torch", allow_module_level=True)

pytestmark = pytest.mark.torch
SCRIPT = """
import queue
import torch
import torch.distributed as dist
from meeting import RANK, work
from planaria import worker

dist.init_process_group("gloo")
def stuck():
    queue.Queue().get()  # HERE
def waits():
    dist.all_reduce(torch.ones(4))
for step in range(12):
    work()
    if step == 8 and RANK == 1:
        stuck()
    waits()
    worker.report_progress(step)
"""

BACKWARD = """
import os, queue
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from meeting import RANK, work
from planaria import worker

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
def stuck():
    queue.Queue().get()  # HERE
for step in range(12):
    work()
    if step == 8 and RANK == 1 - int(os.environ["TORCHELASTIC_RESTART_COUNT"]):
        stuck()
    model(torch.ones(2, 4)).sum().backward()
    worker.report_progress(step)
"""


@pytest.fixture
def root() -> Iterator[Path]:
    """Yield a folder with a short name: the path of a socket has to fit, or the job's is among those of everybody."""
    with tempfile.TemporaryDirectory(prefix="hang-") as found:
        yield Path(found)


def test_the_rank_that_misses_a_collective_is_named_and_so_is_the_collective(root: Path) -> None:
    jobs = Jobs(str(root), ranks=2)
    tools = jobs.tool(NO_TOOL)
    try:
        jobs.start("recorded", SCRIPT, env={"TORCH_FR_BUFFER_SIZE": "200", **tools})
        jobs.start("backward", BACKWARD, "--max-restarts=1", env=tools)
        end, backward = jobs.wait().values()
    finally:
        jobs.close()
    assert_caught(end, SCRIPT)
    assert "rank 0 waits in gloo:all_reduce number 9 at " in end.err
    assert " in waits" in end.err
    by_rank = {one["rank"]: one for one in end.summary()["ranks"]}
    assert by_rank[0]["collective"] == "gloo:all_reduce number 9"
    assert by_rank[1]["collective"] == ""
    assert sum(by_rank[0]["collectives_begun"].values()) == 1 + sum(by_rank[1]["collectives_begun"].values())
    assert "gloo:all_reduce" in end.file("rank0.collectives.json")

    # Without a recorder, and with peers that wait in a backward pass; the first life hangs at rank 1, the second at rank 0.
    assert [hang["ranks"] for hang in backward.hangs] == [[1], [0]], backward.err
    assert [hang["waiting"] for hang in backward.hangs] == [[0], [1]], backward.err
    assert backward.report["first_cause"]["rank"] == 0, backward.err
