"""What a worker may rely on under torchrun holds under planaria: same variables, torch's own `@record`, macros, ways to start.

One run under the real torchrun is made for the whole file; everything else is compared with it or asserted by itself.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import clean_environment

if importlib.util.find_spec("torch") is None:
    pytest.skip("the torchrun to compare with comes with torch", allow_module_level=True)

pytestmark = pytest.mark.torch
TIMEOUT_S = 110
TORCHRUN = ("torch.distributed.run",)
PLANARIA = ("planaria", "run")

DUMP = """
import json, os, sys
with open(f"{os.environ['DUMP_DIR']}/{os.environ['RANK']}.json", "w") as file:
    json.dump({"environ": dict(os.environ), "argv": sys.argv[1:]}, file)
"""
COMMON = ("--nproc-per-node=2", "--max-restarts=2", "--role=trainer", "--tee=3")
SCRIPT_ARGS = ("--rank=${local_rank}", "${local_rank}${local_rank}", "$HOME", "plain", "")

DIFFERENT = {
    "DUMP_DIR": "the test's own",
    "MASTER_PORT": "a free port, chosen anew",
    "MASTER_ADDR": "torchrun names the host or localhost; one node's workers meet on 127.0.0.1 whatever DNS says",
    "TORCHELASTIC_RUN_ID": "random for a standalone run",
    "TORCHELASTIC_ERROR_FILE": "lies in the run's own folder",
    "TORCHELASTIC_USE_AGENT_STORE": "False: rank 0 hosts a fresh store in each life, so no stale keys (incumbent.md C1)",
}
OURS = {"PLANARIA_CONTROL", "PLANARIA_ROUND", "PLANARIA_RESTART_REASON"}


def environment(**changes: str) -> dict[str, str]:
    return clean_environment("PYTHON", **{"INHERITED": "from the launcher", **changes})


def run(
    launcher: tuple[str, ...], flags: tuple[str, ...], folder: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *launcher, *flags],
        cwd=folder,
        env=env or environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def dump(launcher: tuple[str, ...], folder: Path) -> list[dict[str, Any]]:
    """Run two workers that write down their environment and arguments; return these by rank."""
    (folder / "dump.py").write_text(DUMP)
    flags = ("--standalone", *COMMON, f"--log-dir={folder / 'logs'}", "dump.py", *SCRIPT_ARGS)
    done = run(launcher, flags, folder, environment(DUMP_DIR=str(folder)))
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return dump(TORCHRUN, tmp_path_factory.mktemp("torchrun"))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return dump(PLANARIA, tmp_path_factory.mktemp("planaria"))


def test_every_variable_torchrun_sets_is_set_and_nothing_else_but_ours(
    theirs: list[dict[str, Any]], ours: list[dict[str, Any]]
) -> None:
    for their, our in zip(theirs, ours, strict=True):
        assert set(our["environ"]) - set(their["environ"]) == OURS
        assert set(their["environ"]) - set(our["environ"]) == set()


def test_their_values_are_the_same_where_they_can_be(theirs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> None:
    for their, our in zip(theirs, ours, strict=True):
        different = {name for name in their["environ"] if our["environ"][name] != their["environ"][name]}
        assert different == set(DIFFERENT)
        assert our["environ"]["TORCHELASTIC_USE_AGENT_STORE"] == "False"
        assert our["environ"]["MASTER_ADDR"] == "127.0.0.1"
        assert 0 < int(our["environ"]["MASTER_PORT"]) < 65536


def test_error_files_lie_where_torchrun_puts_them(theirs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> None:
    for rank, (their, our) in enumerate(zip(theirs, ours, strict=True)):
        ends = [one["environ"]["TORCHELASTIC_ERROR_FILE"].split("/")[-3:] for one in (their, our)]
        assert ends == [["attempt_0", str(rank), "error.json"]] * 2


def test_macros_in_arguments_are_replaced_alike(theirs: list[dict[str, Any]], ours: list[dict[str, Any]]) -> None:
    for rank in range(2):
        assert ours[rank]["argv"] == theirs[rank]["argv"]
        assert ours[rank]["argv"] == [f"--rank={rank}", f"{rank}{rank}", "$HOME", "plain", ""]


def test_without_logs_there_is_no_error_file(tmp_path: Path) -> None:
    (tmp_path / "dump.py").write_text(DUMP)
    done = run(PLANARIA, ("--log-dir=/dev/null", "dump.py"), tmp_path, environment(DUMP_DIR=str(tmp_path)))
    assert done.returncode == 0
    assert json.loads((tmp_path / "0.json").read_text())["environ"]["TORCHELASTIC_ERROR_FILE"] == ""


def test_what_the_user_has_set_is_not_overridden(tmp_path: Path) -> None:
    (tmp_path / "dump.py").write_text(DUMP)
    env = environment(DUMP_DIR=str(tmp_path), OMP_NUM_THREADS="3", TORCH_NCCL_ASYNC_ERROR_HANDLING="0", RANK="9")
    done = run(PLANARIA, ("--nproc-per-node=2", "dump.py"), tmp_path, env)
    assert (done.returncode, done.stderr) == (0, "")
    seen = json.loads((tmp_path / "1.json").read_text())["environ"]
    assert (seen["OMP_NUM_THREADS"], seen["TORCH_NCCL_ASYNC_ERROR_HANDLING"], seen["RANK"]) == ("3", "0", "1")


@pytest.mark.parametrize(("visible", "expected"), [("4,7", ["4", "7"]), ("GPU-a, GPU-b", ["GPU-a", "GPU-b"])])
def test_a_virtual_local_rank_is_zero_with_one_device_each(tmp_path: Path, visible: str, expected: list[str]) -> None:
    (tmp_path / "dump.py").write_text(DUMP)
    env = environment(DUMP_DIR=str(tmp_path), CUDA_VISIBLE_DEVICES=visible)
    done = run(PLANARIA, ("--nproc-per-node=2", "--virtual-local-rank", "dump.py", "${local_rank}"), tmp_path, env)
    assert done.returncode == 0, done.stderr
    seen = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert [one["environ"]["LOCAL_RANK"] for one in seen] == ["0", "0"]
    assert [one["environ"]["RANK"] for one in seen] == ["0", "1"]
    assert [one["environ"]["CUDA_VISIBLE_DEVICES"] for one in seen] == expected
    assert [one["argv"] for one in seen] == [["0"], ["1"]]


RECORDED = """
import os, sys
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    import torch.distributed
    assert torch.distributed.is_torchelastic_launched()
    if os.environ["RANK"] == "1":
        raise RuntimeError("rank 1 has had enough")
    import signal
    while True:
        signal.pause()

main()
"""


@pytest.mark.parametrize("flags", [(), ("--no-bootstrap",), ("--tee=3",)], ids=["bootstrap", "no bootstrap", "tee"])
def test_an_error_that_torch_recorded_is_told_with_its_cause(tmp_path: Path, flags: tuple[str, ...]) -> None:
    (tmp_path / "main.py").write_text(RECORDED)
    common = ("--nproc-per-node=2", f"--report-file={tmp_path / 'report.json'}", f"--log-dir={tmp_path / 'logs'}")
    done = run(PLANARIA, (*common, *flags, "main.py"), tmp_path)
    assert done.returncode == 1
    report = json.loads((tmp_path / "report.json").read_text())
    cause = report["first_cause"]
    assert (cause["rank"], cause["local_rank"], cause["status"]) == (1, 1, 1)
    assert cause["message"] == "RuntimeError: rank 1 has had enough"
    assert 'main.py", line 10, in main' in cause["traceback"]
    told = json.loads(Path(cause["error_file"]).read_text())
    assert told["message"]["message"] == "RuntimeError: rank 1 has had enough"
    assert int(told["message"]["extraInfo"]["timestamp"]) > 0
    other = report["lives"][0]["failures"][1]
    assert (other["rank"], other["status"], other["stopped_for"]) == (0, -15, 1)
    assert "job failed: rank 1 (local rank 1, pid " in done.stderr
    assert "RuntimeError: rank 1 has had enough" in done.stderr.partition("job failed: ")[2]


def test_the_launcher_s_own_error_file_is_written_as_torchrun_writes_it(tmp_path: Path) -> None:
    """The shape a launcher of launchers (TorchX, Kubeflow) reads: torch's own reader understands it."""
    (tmp_path / "main.py").write_text("raise RuntimeError('no')\n")
    env = environment(TORCHELASTIC_ERROR_FILE=str(tmp_path / "own.json"))
    assert run(PLANARIA, ("main.py",), tmp_path, env).returncode == 1
    told = json.loads((tmp_path / "own.json").read_text())["message"]
    assert told["message"] == "RuntimeError: no"
    assert sorted(told["extraInfo"]) == ["py_callstack", "timestamp"]
    assert "RuntimeError: no" in told["extraInfo"]["py_callstack"]


WAYS_OF_STARTING = {
    "-m": ("-m", "package.main", "${local_rank}"),
    "--no-python": ("--no-python", sys.executable, "package/main.py", "${local_rank}"),
    "--run-path": ("--run-path", "package/main.py", "${local_rank}"),
    "--no-bootstrap": ("--no-bootstrap", "package/main.py", "${local_rank}"),
    "--no-bootstrap -m": ("--no-bootstrap", "-m", "package.main", "${local_rank}"),
    "--no-bootstrap --run-path": ("--no-bootstrap", "--run-path", "package/main.py", "${local_rank}"),
}


@pytest.mark.parametrize("way", WAYS_OF_STARTING)
def test_torch_runs_however_the_program_is_started(tmp_path: Path, way: str) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "main.py").write_text(
        "import os, sys\nimport torch, torch.distributed\n"
        "assert __name__ == '__main__' and torch.distributed.is_torchelastic_launched()\n"
        "print(sys.argv[1:], os.environ['LOCAL_RANK'], torch.ones(2).sum().item())\n"
    )
    done = run(PLANARIA, WAYS_OF_STARTING[way], tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['0'] 0 2.0\n", "")
