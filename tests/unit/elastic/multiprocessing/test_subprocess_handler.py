from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from planaria.elastic.multiprocessing.subprocess_handler import SubprocessHandler, get_subprocess_handler

# Python 3.12 warns of fork beside threads; these belong to pytest-xdist and hold no lock that a child here would want.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def started(words: str, stdout: str = "") -> SubprocessHandler:
    return get_subprocess_handler("sh", ("-c", words), {"OWN": "7"}, stdout, "", 0)


def test_a_program_writes_to_its_file_and_has_its_variables(tmp_path: Path) -> None:
    handler = started("echo $OWN $LOCAL; exit 4", str(tmp_path / "out"))
    assert handler.proc.wait(40) == 4
    assert handler.proc.returncode == 4
    assert (tmp_path / "out").read_text() == "7\n"
    handler.running.close()


def test_close_signals_the_whole_group() -> None:
    handler = started("trap 'exit 5' TERM; sleep 600 & wait")
    with pytest.raises(subprocess.TimeoutExpired):
        handler.proc.wait(0.05)
    assert handler.proc.poll() is None
    handler.close()
    assert handler.proc.wait(40) in (5, -signal.SIGTERM)  # the trap may not be set yet
    handler.running.close()


def test_one_signal_reaches_the_program_alone() -> None:
    handler = started("sleep 600")
    handler.proc.kill()
    assert handler.proc.wait() == -signal.SIGKILL
    handler.proc.terminate()  # harmless when it is over
    handler.running.close()
