"""What is around a worker: its interpreter, its descriptors, and modules that shadow those of the launcher."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from ways import WAYS, environment, launched, plainly, start, under_bootstrap


@pytest.mark.parametrize("kind", ["script", "module"])
def test_another_interpreter_by_variable_runs_the_workers(tmp_path: Path, kind: str) -> None:
    (tmp_path / "my python").symlink_to(sys.executable)
    (tmp_path / "main.py").write_text("import sys\nprint(sys.executable, sys.orig_argv)\n")
    env = environment(PYTHON_EXEC=str(tmp_path / "my python"))
    whole = launched(kind, "main" if kind == "module" else "main.py", ["x"], tmp_path, env)
    flags = ["-m", "main"] if kind == "module" else ["main.py"]
    plain = start([str(tmp_path / "my python"), "-u", *flags, "x"], tmp_path, env)
    assert (whole.stdout, whole.stderr, whole.returncode) == (plain.stdout, plain.stderr, 0)


def test_a_worker_may_close_every_descriptor_it_does_not_know(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import os\nos.closerange(3, 4096)\n1 / 0\n")
    plain = plainly("script", "main.py", [], tmp_path, environment())
    ours = under_bootstrap("script", "main.py", [], tmp_path, environment())
    assert (ours.returncode, ours.stderr) == (plain.returncode, plain.stderr)


def test_programs_a_worker_starts_do_not_inherit_the_black_box(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import os\nos.execvp('ls', ['ls', '/proc/self/fd'])\n")
    plain, ours, whole = (WAYS[way]("script", "main.py", [], tmp_path, environment()) for way in WAYS)
    assert ours.stdout == plain.stdout == whole.stdout


def test_a_worker_without_room_for_many_descriptors_has_its_black_box(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("1 / 0\n")
    words = f"ulimit -n 64; exec {sys.executable} -m planaria run --report-file=report.json main.py"
    done = start(["sh", "-c", words], tmp_path, environment())
    assert done.returncode == 1
    assert json.loads((tmp_path / "report.json").read_text())["first_cause"]["type"] == "ZeroDivisionError"


REPOSITORY = Path(__file__).parents[2]
SHADOWS = (
    "json",
    "traceback",
    "signal",
    "select",
    "time",
    "enum",
    "re",
    "typing",
    "heapq",
    "ctypes",
    "warnings",
    "types",
)
NEEDED_BY_DASH_M = {"types", "warnings", "collections", "functools", "contextlib"}
"""Python's own `-m` imports these with the current directory in front, before there is any code of ours."""


@pytest.mark.parametrize(
    "command",
    [
        [str(REPOSITORY / "bin" / "planaria"), "run"],
        ["-m", "planaria", "run"],
        ["-m", "planaria.run"],
    ],
    ids=["the planaria command", "python -m planaria", "python -m planaria.run"],
)
def test_modules_with_standard_names_in_the_current_directory_do_not_reach_the_launcher(
    tmp_path: Path, command: list[str]
) -> None:
    for name in SHADOWS:
        if command[0] != "-m" or name not in NEEDED_BY_DASH_M:
            (tmp_path / f"{name}.py").write_text("OURS = True\n")
    (tmp_path / "main.py").write_text("raise ConnectionError('no')\n")
    argv = [sys.executable, *command, "--max-restarts=1", "--report-file=report.json", "main.py"]
    done = start(argv, tmp_path, environment())
    assert done.returncode == 1, done.stderr
    found = json.loads((tmp_path / "report.json").read_text())
    assert [life["failures"][0]["message"] for life in found["lives"]] == ["ConnectionError: no"] * 2
