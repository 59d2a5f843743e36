"""Code written for torch's `start_processes`, run with torch and, with only the import root changed, without it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is what is compared with"),
]

PROGRAM = """
import os, sys, signal, tempfile
from ROOT.elastic.multiprocessing import DefaultLogsSpecs, PContext, RunProcsResult, Std, start_processes, to_map
from ROOT.elastic.multiprocessing.api import MultiprocessContext, SubprocessContext
from ROOT.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

def trainer(a, b, c):
    print("training", a, b, c, os.environ["LOCAL_RANK"])
    return a + b + c

def fails(rank):
    if rank == 1:
        raise ValueError("bad data")
    signal.pause()

def tell(result, root):
    for paths in (result.stdouts, result.stderrs):
        for rank, path in sorted(paths.items()):
            parts = path.replace(root, "").split(os.sep)
            print(rank, [part for part in parts[2:]], open(path).read() if path and os.path.isfile(path) else None)

if __name__ == "__main__":
    root = tempfile.mkdtemp(dir=".")
    specs = DefaultLogsSpecs(log_dir=root, redirects=Std.ALL, tee={0: Std.ERR})
    ctx = start_processes(
        name="trainer",
        entrypoint=trainer,
        args={0: (1, 2, 3), 1: (4, 5, 6)},
        envs={0: {"LOCAL_RANK": "0"}, 1: {"LOCAL_RANK": "1"}},
        logs_specs=specs,
        start_method=METHOD,
    )
    print(type(ctx).__name__, isinstance(ctx, PContext), sorted(ctx.pids()))
    result = ctx.wait()
    print(sorted(result.return_values.items()), result.failures, result.is_failed())
    tell(result, root)

    gate = os.path.join(root, "gate")
    os.mkfifo(gate)  # who reads it hears the end of who writes: the first has ended well when the second fails
    ctx = start_processes(
        name="echo",
        entrypoint="sh",
        args={0: ("-c", f"exec 3> {gate}; echo hello"), 1: ("-c", f"cat {gate}; echo world; exit 5")},
        envs={0: {}, 1: {}},
        logs_specs=DefaultLogsSpecs(log_dir=root, redirects={1: Std.OUT}),
    )
    result = ctx.wait(period=0.2)
    print(type(ctx).__name__, result.return_values, sorted(result.failures))
    failure = result.failures[1]
    print(failure.local_rank, failure.exitcode, failure.error_file, failure.message)
    tell(result, root)

    ctx = start_processes("f", fails, {0: (0,), 1: (1,)}, {0: {}, 1: {}}, DefaultLogsSpecs(root), start_method=METHOD)
    failure = ctx.wait(timeout=60, period=0.1).failures[1]
    print(failure.exitcode, failure.message["message"], "in fails" in failure.message["extraInfo"]["py_callstack"])
    print("ValueError: bad data" in str(ChildFailedError("f", {1: failure})))
    for bad in ({1: ()}, {0: (), 2: ()}):
        try:
            start_processes("f", fails, bad, {0: {}}, DefaultLogsSpecs(root))
        except RuntimeError as problem:
            print(problem)
    try:
        start_processes("f", "no-such-program", {0: ()}, {0: {}}, DefaultLogsSpecs(root))
    except FileNotFoundError as problem:
        print(problem)
    print(to_map({1: Std.OUT}, 2), Std.from_str("0:3,1:0"), sorted(DefaultLogsSpecs(root).reify({0: {}, 1: {}}).error_files))
"""


def printed(folder: Path, root: str, method: str) -> str:
    (folder / "program.py").write_text(PROGRAM.replace("ROOT", root).replace("METHOD", repr(method)))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "program.py"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_program_for_torch_prints_the_same_with_ours(tmp_path: Path, method: str) -> None:
    assert printed(tmp_path, "planaria", method) == printed(tmp_path, "torch.distributed", method)
