"""A rank that ends right after its last collective."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "real"))

from harness import Room

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
LIVES = 20  # one of about three is aborted where nobody waits for Gloo's threads

# Children of a worker that has imported torch. Each keeps the interpreter's lock while Gloo's threads are done with
# their messages, and then ends: they wait for that lock just when the interpreter goes away.
SCRIPT = f"""
import ctypes
import torch
import torch.distributed as dist

statuses = []
for _ in range({LIVES}):
    child = os.fork()
    if not child:
        break
    statuses.append(os.waitpid(child, 0)[1])
else:
    tell(f"ended {{statuses}}")
    sys.exit()
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
groups = [None, *(dist.new_group([0], backend="gloo") for _ in range(6))]
held = dist.distributed_c10d._get_default_group()  # as a model that is wrapped does
sys.setswitchinterval(1000)
for group in groups:
    dist.all_reduce(torch.zeros(1), group=group)
ctypes.PyDLL(None).usleep(50_000)  # with the lock, until the threads want it: they tell nobody, and some of all lives suffice
"""


@pytest.fixture
def room() -> Iterator[Room]:
    found = Room()
    try:
        yield found
    finally:
        found.close()


@pytest.mark.parametrize(("flag", "first"), [("--max-restarts=0", ""), ("--no-bootstrap", "import planaria.worker\n")])
def test_a_process_that_ends_while_gloos_threads_let_go_of_its_last_messages_is_not_aborted(
    room: Room, flag: str, first: str
) -> None:
    end = room.start(("--nproc-per-node=1", flag), first + SCRIPT).wait(200)
    assert end.status == 0, end.err
    assert room.heard() == [f"ended {[0] * LIVES}"], end.err
