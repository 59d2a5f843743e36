"""`planaria run --logs-specs`: a log plan that another package brings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from programs import clean_environment, install

PLAN = """
import os
from planaria.elastic.multiprocessing import LogsDest, LogsSpecs

class Flat(LogsSpecs):
    root_log_dir = property(lambda self: self._root_log_dir)

    def reify(self, envs):
        os.makedirs(self.root_log_dir, exist_ok=True)
        def path(rank, name):
            return f"{self.root_log_dir}/{envs[rank]['ROLE_NAME']}-{envs[rank]['RANK']}-{name}"
        ranks = range(len(envs))
        return LogsDest(
            stdouts={rank: path(rank, "out") for rank in ranks},
            stderrs=dict.fromkeys(ranks, ""),
            tee_stdouts={0: path(0, "out")} if self._tee else {},
            error_files={rank: path(rank, "error") for rank in ranks},
            filtered_stdout=f"{self.root_log_dir}/matched",
        )

class Broken(Flat):
    def reify(self, envs):
        raise RuntimeError("no room")
"""
POINTS = {"flat": "plans:Flat", "broken": "plans:Broken", "absent": "plans:Absent"}
WORKER = "import os\nprint('loss of', os.environ['RANK'])\nopen(os.environ['TORCHELASTIC_ERROR_FILE'] + '.seen', 'w')\n"


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "plans.py").write_text(PLAN)
    install(folder, "plans", {"torchrun.logs_specs": POINTS})
    (folder / "main.py").write_text(WORKER)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "planaria", "run", "--nproc-per-node=2", "--log-dir=logs", *words],
        cwd=folder,
        env=clean_environment(PYTHONPATH=path),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_output_goes_where_the_plan_says(tmp_path: Path) -> None:
    done = run(tmp_path, "--logs-specs=flat", "--tee=1", "--duplicate-stdout-filters=loss", "main.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[default0]:loss of 0\n"
    found = {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert found == {
        "default-0-out": "loss of 0\n",
        "default-1-out": "loss of 1\n",
        "default-0-error.seen": "",
        "default-1-error.seen": "",
        "matched": "[default0]:loss of 0\n",
    }


def test_a_dry_run_does_not_pretend_to_know_the_paths(tmp_path: Path) -> None:
    done = run(tmp_path, "--logs-specs=flat", "--redirects=3", "--dry-run", "main.py")
    assert done.returncode == 0, done.stderr
    assert "where the log specs say" in done.stdout
    assert "attempt_0" not in done.stdout
    assert not (tmp_path / "logs").exists()


def test_what_is_not_there_or_does_not_work_is_one_sentence(tmp_path: Path) -> None:
    missing = run(tmp_path, "--logs-specs=other", "main.py")
    assert (missing.returncode, missing.stderr) == (
        2,
        "planaria: --logs-specs expects the name of an entry point in the group torchrun.logs_specs, got 'other'\n",
    )
    absent = run(tmp_path, "--logs-specs=absent", "main.py")
    assert absent.returncode == 2
    assert absent.stderr.startswith("planaria: --logs-specs 'absent' cannot be loaded: AttributeError: ")
    broken = run(tmp_path, "--logs-specs=broken", "main.py")
    assert broken.returncode == 71
    assert "the log specs Broken failed: RuntimeError: no room" in broken.stderr
