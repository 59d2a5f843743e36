"""The programs in docs/elastic.md do what the page says, in a process that cannot import torch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from programs import clean_environment, hide_torch

PAGE = (Path(__file__).parents[2] / "docs" / "elastic.md").read_text()
TIMEOUT_S = 100


def blocks(heading: str) -> list[str]:
    """Return the Python programs below a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "main.py").write_text(program)
    return subprocess.run(
        [sys.executable, "main.py"],
        cwd=folder,
        env=clean_environment(PYTHONPATH=hide_torch(folder / "no_torch"), TMPDIR=str(folder)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def test_the_program_about_embedding_runs_a_function_on_four_workers_through_a_crash(tmp_path: Path) -> None:
    (program,) = blocks("Embedding")
    promised = re.search(r"^prints `(.*?)`", PAGE, re.MULTILINE)
    assert promised is not None
    done = run(tmp_path, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{promised[1]}\n"


def test_the_program_about_events_writes_a_line(tmp_path: Path) -> None:
    (program,) = blocks("Events")
    done = run(tmp_path, program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert '"name": "epoch done"' in (tmp_path / "events.jsonl").read_text()


def test_the_program_about_metrics_prints_its_values(tmp_path: Path) -> None:
    (program,) = blocks("Metrics")
    done = run(tmp_path, f"{program}\nload()\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.partition(": ")[2].partition("=")[0] for line in done.stdout.splitlines()] == [
        "batches",
        "__main__.load.success",
        "__main__.load.duration.ms",
    ]


def test_the_program_about_errors_records_one(tmp_path: Path) -> None:
    (program,) = blocks("Errors of workers")
    ending = "    raise RuntimeError('no')\n\nimport os\nos.environ['TORCHELASTIC_ERROR_FILE'] = 'e.json'\nmain()\n"
    done = run(tmp_path, program.replace("def main(): ...\n", f"def main():\n{ending}"))
    assert done.returncode == 1
    assert "RuntimeError: no" in (tmp_path / "e.json").read_text()
