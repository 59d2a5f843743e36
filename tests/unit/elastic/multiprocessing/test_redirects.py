from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from planaria.elastic.multiprocessing.redirects import redirect

PROGRAM = """
import ctypes, os, sys
from planaria.elastic.multiprocessing.redirects import redirect_stderr, redirect_stdout
libc = ctypes.CDLL(None)
print("before")
libc.printf(b"C before\\n")
with redirect_stdout("out.log"), redirect_stderr("err.log"):
    print("python")
    libc.printf(b"C\\n")
    os.system("echo shell; echo shell >&2")
    print("python", file=sys.stderr)
print("after")
libc.printf(b"C after\\n")
libc.fflush(None)
"""


def test_python_c_and_programs_are_redirected_and_come_back(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert sorted(done.stdout.splitlines()) == ["C after", "C before", "after", "before"]
    assert done.stderr == ""
    assert sorted((tmp_path / "out.log").read_text().split()) == ["C", "python", "shell"]
    assert sorted((tmp_path / "err.log").read_text().split()) == ["python", "shell"]


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_process_without_stderr_is_redirected_for_c_and_programs_and_has_none_afterwards(
    tmp_path: Path, closed: str
) -> None:
    program = """
import os
from planaria.elastic.multiprocessing.redirects import redirect_stderr
with redirect_stderr("err.log"):
    os.write(2, b"from the descriptor\\n")
    os.system("echo shell >&2")
try:
    os.fstat(2)
except OSError:
    open("closed", "w").close()
"""
    words = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", program]
    assert subprocess.run(words, cwd=tmp_path, env=os.environ, check=False, timeout=60).returncode == 0
    assert (tmp_path / "err.log").read_text() == "from the descriptor\nshell\n"
    assert (tmp_path / "closed").exists()


def test_there_are_two_streams() -> None:
    with pytest.raises(ValueError, match="unknown standard stream <stdin>"), redirect("stdin", "x"):
        pass
