"""`planaria run` with handlers that were written for torchrun: torch's classes, torch's stores, torch's exceptions."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from ports import free_port
from programs import clean_environment, install

if importlib.util.find_spec("torch") is None:
    pytest.skip("the handlers are torch's", allow_module_level=True)

pytestmark = pytest.mark.torch
TIMEOUT_S = 200

HANDLERS = """
from datetime import timedelta
from torch.distributed.elastic.rendezvous import (
    RendezvousGracefulExitError, RendezvousHandler, RendezvousParameters, RendezvousTimeoutError
)
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

class Wrapped(RendezvousHandler):
    def __init__(self, params):
        backend, store = create_backend(params)
        self._inner = create_handler(store, backend, params)
        self._name = params.backend
    def get_backend(self): return self._name
    def __getattr__(self, name): return getattr(self._inner, name)
    def next_rendezvous(self): return self._inner.next_rendezvous()
    def is_closed(self): return self._inner.is_closed()
    def set_closed(self): self._inner.set_closed()
    def num_nodes_waiting(self): return self._inner.num_nodes_waiting()
    def get_run_id(self): return self._inner.get_run_id()
    def shutdown(self): return self._inner.shutdown()
    @property
    def use_agent_store(self): return False

class Late(Wrapped):
    def next_rendezvous(self): raise RendezvousTimeoutError("nobody came")

class Unneeded(Wrapped):
    def next_rendezvous(self): raise RendezvousGracefulExitError("go home")

def theirs(): return Wrapped
def late(): return Late
def unneeded(): return Unneeded
"""


def start(folder: Path, backend: str, *flags: str) -> subprocess.Popen[str]:
    site = folder / "site"
    points = {name: f"torch_handlers:{name}" for name in ("theirs", "late", "unneeded")}
    install(site, "torch-handlers", {"torchrun.handlers": points})
    (site / "torch_handlers.py").write_text(HANDLERS)
    script = "import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])\n"
    (folder / "hello.py").write_text(script)
    words = [f"--rdzv-backend={backend}", "--rdzv-id=job", *flags, "hello.py"]
    return subprocess.Popen(
        [sys.executable, "-m", "planaria", "run", *words],
        cwd=folder,
        env=clean_environment(PYTHONPATH=str(site), OMP_NUM_THREADS="1"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_nodes_meet_through_torchs_own_rendezvous(tmp_path: Path) -> None:
    flags = ("--nnodes=2", f"--rdzv-endpoint=localhost:{free_port()}")
    nodes = [start(tmp_path, "theirs", *flags) for _ in range(2)]
    try:
        told = [node.communicate(timeout=TIMEOUT_S) for node in nodes]
    finally:
        for node in nodes:
            node.kill()
            node.communicate()
    assert [node.returncode for node in nodes] == [0, 0], told
    assert sorted(out for out, _ in told) == ["rank 0 of 2\n", "rank 1 of 2\n"]


@pytest.mark.parametrize(
    ("backend", "status", "lines"),
    [("late", 124, ["planaria: cannot go on: RendezvousTimeoutError: nobody came"]), ("unneeded", 0, [])],
)
def test_torchs_exceptions_mean_what_ours_of_that_name_do(
    tmp_path: Path, backend: str, status: int, lines: list[str]
) -> None:
    node = start(tmp_path, backend, f"--rdzv-endpoint=localhost:{free_port()}")
    try:
        _, err = node.communicate(timeout=TIMEOUT_S)
    finally:
        node.kill()
        node.communicate()
    assert node.returncode == status, err
    assert [line for line in err.splitlines() if line.startswith("planaria: ")] == lines
