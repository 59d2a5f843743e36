"""torch's own timers, unmodified, in workers under our agent; and torch's own client with our server."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import patient_launcher
import pytest
from programs import clean_environment

if importlib.util.find_spec("torch") is None:
    pytest.skip("the timers to be compatible with come with torch", allow_module_level=True)

pytestmark = pytest.mark.torch
TIMEOUT_S = 110

EXPIRES = """
import os, signal, time
import torch.distributed.elastic.timer as timer
timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
life = os.environ["TORCHELASTIC_RESTART_COUNT"]
for step in range(50):
    with timer.expires(after=60, scope="outer"), timer.expires(after=60):
        pass
def stuck():
    while True:
        signal.pause()
hangs = life == "0" and os.environ["RANK"] == "1"
while hangs and not os.path.exists("finished"):
    time.sleep(0.01)  # rank 0 tells by a file that it has said what it has to say
with timer.expires(after=1 if hangs else 60, scope="all_reduce"):
    if hangs:
        stuck()
os.write(1, f"finished {life} {os.getppid()}\\n".encode())  # at once: both ranks write to one pipe
if life == "0":
    open("finished", "w").close()
    stuck()
"""


def environment(**changes: str) -> dict[str, str]:
    return clean_environment("PYTHON", OMP_NUM_THREADS="1", **changes)


def test_torch_s_own_expires_restarts_the_group_and_the_agent_lives(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(EXPIRES)
    report = tmp_path / "report.json"
    flags = ("--nproc-per-node=2", "--max-restarts=1", f"--report-file={report}")
    done = subprocess.run(
        [sys.executable, patient_launcher.__file__, "run", *flags, "main.py"],
        cwd=tmp_path,
        env=environment(TORCHELASTIC_ENABLE_FILE_TIMER="1"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [line.split() for line in done.stdout.splitlines()]
    assert sorted(life for _, life, _ in told) == ["0", "1", "1"]
    assert len({agent for _, _, agent in told}) == 1
    (first, other) = json.loads(report.read_text())["lives"][0]["failures"]
    assert (first["rank"], first["kind"], first["status"], other["stopped_for"]) == (1, "watchdog", -9, 1)
    assert re.fullmatch(r"watchdog: scope 'all_reduce' ran [\d.]+ s, limit [\d.]+ s", first["message"])
    assert " in stuck" in first["traceback"]


def test_torch_s_client_and_our_server_understand_each_other(tmp_path: Path) -> None:
    from planaria.elastic.timer import FileTimerServer

    expired = threading.Event()
    server = FileTimerServer(
        str(tmp_path / "pipe"),
        "run",
        max_interval=0.1,
        log_event=lambda name, _: expired.set() if "kill" in name else None,
    )
    server.start()
    script = (
        "import sys\nimport torch.distributed.elastic.timer as timer\n"
        "timer.configure(timer.FileTimerClient(sys.argv[1]))\n"
        "with timer.expires(after=100):\n    pass\nwith timer.expires(after=0.1):\n    sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "pipe")], stdin=subprocess.PIPE) as client:
        assert client.wait(TIMEOUT_S) == -9
    assert expired.wait(TIMEOUT_S)
    server.stop()


def test_a_line_is_the_one_that_torch_writes() -> None:
    from torch.distributed.elastic import timer as theirs

    from planaria.elastic import timer as ours

    assert ours.FileTimerRequest(7, "a", 2.5, 9).to_json() == theirs.FileTimerRequest(7, "a", 2.5, 9).to_json()
