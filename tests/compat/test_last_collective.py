"""A rank that ends right after its last collective."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
LIVES = 25  # one of about three would be aborted if Gloo's thread were the last to hold the message

# Children of one process that has imported torch. Each keeps the interpreter's lock while Gloo's thread is done with the
# message, and then ends: the thread would be waiting for that lock just when the interpreter goes away.
PROGRAM = f"""
import ctypes, os, sys
import torch
import torch.distributed as dist
from planaria.worker import exchange
from planaria.worker.agreement import Agreement, NOTHING

statuses = []
for _ in range({LIVES}):
    child = os.fork()
    if not child:
        break
    statuses.append(os.waitpid(child, 0)[1])
else:
    print(statuses)
    sys.exit()
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
group = dist.distributed_c10d._get_default_group()  # as a model that is wrapped holds on to it
exchange.group = lambda: exchange.Group(0, 2, "cpu")  # the others do not matter here
sys.setswitchinterval(1000)
Agreement().ask(NOTHING)
ctypes.PyDLL(None).usleep(50_000)
"""


def test_a_process_that_ends_while_gloos_thread_lets_go_of_the_last_message_is_not_aborted() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=200, check=False)
    assert (ended.returncode, ended.stdout.strip()) == (0, str([0] * LIVES)), ended.stderr
