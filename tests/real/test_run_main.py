"""`planaria.run.main` launches jobs from the caller's own process, as `torch.distributed.run.main` does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from programs import clean_environment

TIMEOUT_S = 100
TRAIN = """
import os, sys
from planaria.elastic.multiprocessing.errors import record

@record
def main():
    words = ["rank", os.environ["RANK"], "life", os.environ["TORCHELASTIC_RESTART_COUNT"], *sys.argv[1:]]
    os.write(1, (" ".join(words) + "\\n").encode())  # at once: both ranks write to one pipe, and print writes word by word
    if os.environ["RANK"] == sys.argv[1]:
        raise RuntimeError("rank 1 has had enough")

main()
"""


def call(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(TRAIN)
    (folder / "caller.py").write_text(program)
    own = {"TMPDIR": str(folder), "TORCHELASTIC_ERROR_FILE": str(folder / "own.json"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "caller.py"],
        cwd=folder,
        env=clean_environment(**own),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_a_program_and_a_path_run_on_every_worker_and_the_caller_goes_on(tmp_path: Path) -> None:
    done = call(
        tmp_path,
        "import planaria.run\n"
        "if __name__ == '__main__':\n"
        "    planaria.run.main(['--nproc-per-node=2', 'train.py', 'none', '${local_rank}'])\n"
        "    print('between', flush=True)\n"
        "    planaria.run.main(['--nproc-per-node=2', '--run-path', 'train.py', 'none', 'path'])\n"
        "    print('after', flush=True)\n",
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.removesuffix("after\n").split("between\n")
    assert sorted(first.splitlines()) == ["rank 0 life 0 none 0", "rank 1 life 0 none 1"]
    assert sorted(second.splitlines()) == ["rank 0 life 0 none path", "rank 1 life 0 none path"]
    assert not (tmp_path / "own.json").exists()


def test_a_failure_is_raised_after_the_restarts_and_its_error_file_is_handed_on(tmp_path: Path) -> None:
    done = call(
        tmp_path,
        "import planaria.run\n"
        "from planaria.elastic.multiprocessing.errors import ChildFailedError\n"
        "try:\n"
        "    planaria.run.main(['--nproc-per-node=2', '--max-restarts=1', 'train.py', '1'])\n"
        "except ChildFailedError as error:\n"
        "    rank, failure = error.get_first_failure()\n"
        "    print('caught', rank, failure.exitcode, failure.message['message'])\n"
        "    assert 'train.py FAILED' in str(error)\n",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("caught 1 1 RuntimeError: rank 1 has had enough\n")
    assert "rank 1 life 1 1" in done.stdout
    told = json.loads((tmp_path / "own.json").read_text())["message"]
    assert (told["message"], told["errorCode"]) == ("RuntimeError: rank 1 has had enough", 1)


def test_a_wrong_command_line_exits_with_2(tmp_path: Path) -> None:
    done = call(tmp_path, "import planaria.run\nplanaria.run.main(['--nproc-per-node'])\n")
    assert done.returncode == 2
    assert "expected one argument" in done.stderr
