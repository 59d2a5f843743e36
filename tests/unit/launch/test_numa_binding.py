from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest

from planaria.errors import UsageError
from planaria.launch import numa_binding
from planaria.launch.numa import Topology
from planaria.launch.numa_binding import (
    AffinityMode,
    NumaOptions,
    _maybe_wrap_command_args_with_numa_binding,
    _maybe_wrap_with_numa_binding,
)

NODE = NumaOptions(affinity_mode=AffinityMode.NODE)
CPU = min(os.sched_getaffinity(0))


@pytest.fixture
def _one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with one GPU, near the first CPU that we may use."""
    topology = Topology(gpu_nodes=(0,), node_cpus={0: frozenset({CPU})})
    monkeypatch.setattr(numa_binding, "read_topology", lambda *_asked: topology)


@pytest.mark.usefixtures("_one_gpu")
def test_a_program_runs_on_the_cpus_of_its_gpu() -> None:
    program = (sys.executable, "-c", "import os, sys; print(os.sched_getaffinity(0), sys.argv[1:])", "a b", "")
    command = _maybe_wrap_command_args_with_numa_binding(program, gpu_index=0, numa_options=NODE)
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout == f"{{{CPU}}} ['a b', '']\n"


def where(*words: str) -> tuple[set[int], tuple[str, ...]]:
    return os.sched_getaffinity(0), words


@pytest.mark.usefixtures("_one_gpu")
def test_a_function_runs_on_the_cpus_of_its_gpu_also_after_pickling() -> None:
    bound = pickle.loads(pickle.dumps(_maybe_wrap_with_numa_binding(where, gpu_index=0, numa_options=NODE)))
    before = os.sched_getaffinity(0)
    try:
        assert bound("a", "b") == ({CPU}, ("a", "b"))
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.usefixtures("_one_gpu")
def test_a_worker_without_a_gpu_is_refused_or_starts_unbound() -> None:
    with pytest.raises(UsageError, match="2 workers, but 1 visible GPUs"):
        _maybe_wrap_command_args_with_numa_binding(("x",), gpu_index=1, numa_options=NODE)
    lax = NumaOptions(AffinityMode.NODE, should_fall_back_if_binding_fails=True)
    assert _maybe_wrap_command_args_with_numa_binding(("x",), gpu_index=1, numa_options=lax) == ("x",)
    assert _maybe_wrap_with_numa_binding(where, gpu_index=1, numa_options=lax) is where


def test_without_options_nothing_is_bound() -> None:
    assert _maybe_wrap_command_args_with_numa_binding(("x",), gpu_index=0, numa_options=None) == ("x",)
    assert _maybe_wrap_with_numa_binding(where, gpu_index=0, numa_options=None) is where
