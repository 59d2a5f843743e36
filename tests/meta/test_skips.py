"""What cannot run here is skipped, or fails where PLANARIA_TEST_ALL=1 says that everything has to run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
TESTS = {
    "test_module.py": "import pytest\npytest.importorskip('no_such_library')\ndef test_a(): pass\n",
    "test_some.py": """\
import pytest

@pytest.fixture
def engine():
    pytest.skip("no engine")

def test_fixture(engine): pass

@pytest.mark.skipif(True, reason="no etcd")
def test_mark(): pass

@pytest.mark.xfail(reason="known")
def test_known(): assert False

def test_sound(): pass
""",
}


def ended(folder: Path, asked: str) -> tuple[int, str]:
    for name, text in TESTS.items():
        (folder / name).write_text(text)
    words = ["-p", "no_skips", "-p", "no:cacheprovider", "-q", "-ra", "--continue-on-collection-errors", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT), "PLANARIA_TEST_ALL": asked}
    argv = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(folder), *words]
    found = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False)
    return found.returncode, found.stdout


@pytest.mark.parametrize(
    ("asked", "status", "counts"),
    [("", 0, "1 passed, 3 skipped, 1 xfailed"), ("1", 1, "1 passed, 1 xfailed, 3 errors")],
)
def test_skips_are_failures_with_their_reason_where_everything_has_to_run(
    tmp_path: Path, asked: str, status: int, counts: str
) -> None:
    code, out = ended(tmp_path, asked)
    assert (code, counts in out) == (status, True), out
    reasons = re.findall(r"PLANARIA_TEST_ALL=1 lets nothing be skipped: (?:Skipped: )?(.*)", out)
    wanted = ["could not import 'no_such_library'", "no engine", "no etcd"] if asked else []
    assert all(any(one.startswith(reason) for one in reasons) for reason in wanted), out
