"""torch's own timers, unmodified, in workers under our agent; and torch's own client with our server."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("the timers to be compatible with come with torch", allow_module_level=True)

pytestmark = pytest.mark.torch
TIMEOUT_S = 110

EXPIRES = """
import os, signal
import torch.distributed.elastic.timer as timer
timer.configure(timer.FileTimerClient(os.environ["TORCHELASTIC_TIMER_FILE"]))
life = os.environ["TORCHELASTIC_RESTART_COUNT"]
for step in range(50):
    with timer.expires(after=60, scope="outer"), timer.expires(after=60):
        pass
def stuck():
    while True:
        signal.pause()
with timer.expires(after=1, scope="all_reduce"):
    if life == "0" and os.environ["RANK"] == "1":
        stuck()
print("finished", life, os.getppid(), flush=True)
if life == "0":
    stuck()
"""


def environment(**changes: str) -> dict[str, str]:
    dropped = ("PYTHON", "PET_", "TORCH", "PLANARIA_", "OMP_", "MASTER_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "OMP_NUM_THREADS": "1", **changes}


def test_torch_s_own_expires_restarts_the_group_and_the_agent_lives(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(EXPIRES)
    report = tmp_path / "report.json"
    flags = ("--nproc-per-node=2", "--max-restarts=1", f"--report-file={report}")
    done = subprocess.run(
        [sys.executable, "-m", "planaria", "run", *flags, "main.py"],
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


def test_names_signatures_and_messages_are_those_of_torch() -> None:
    from torch.distributed.elastic import timer as theirs
    from torch.distributed.elastic.timer import api, debug_info_logging, file_based_local_timer, local_timer

    from planaria.elastic import timer as ours

    for module in (api, debug_info_logging, file_based_local_timer, local_timer):
        counterpart = importlib.import_module(module.__name__.replace("torch.distributed", "planaria"))
        assert sorted(counterpart.__all__) == sorted(module.__all__)
        for name in module.__all__:
            mine, other = getattr(counterpart, name), getattr(module, name)
            assert _parameters(mine) == _parameters(other), name
            for method, function in inspect.getmembers(other, inspect.isfunction) if inspect.isclass(other) else ():
                if not method.startswith("_"):
                    assert _parameters(getattr(mine, method)) == _parameters(function), f"{name}.{method}"
    assert {name for name in vars(theirs) if name[0] != "_" and callable(getattr(theirs, name))} <= set(ours.__all__)
    request = theirs.FileTimerRequest(7, "a", 2.5, 9)
    assert ours.FileTimerRequest(7, "a", 2.5, 9).to_json() == request.to_json()


def _parameters(function: object) -> list[tuple[str, object]]:
    found = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    return [(one.name, one.default) for one in found]
