"""How tests ask a real agent how it is: with curl at its port or its owner's door, and with its owner's commands."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from harness import PATIENCE_S, wait_until
from programs import clean_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness import Launcher, Room

CURL = shutil.which("curl")
needs_curl = pytest.mark.skipif(CURL is None, reason="there is no curl on this machine")
SILENT = (0, "")
LATE = "the agent's loop has not answered for "  # and nothing that it was asked is done
WAIT = 'tell(f"up {RANK}")\nwait_forever()\n'
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAIT
READS = ("livez", "readyz", "metrics", "v1/status")
ORDERS = ("v1/drain", "v1/stop")
TOKEN = "s3cret-of-the-run"
SECRET = {"PLANARIA_TOKEN": TOKEN}


def curl(
    where: int | str,
    path: str,
    *flags: str,
    host: str = "127.0.0.1",
    patience_s: float = PATIENCE_S,
    stuck: bool = False,
) -> tuple[int, str]:
    """Ask with curl, at a port or through a UNIX socket; (0, "") when nobody answers in time.

    An agent that others keep from its processor says so; it is asked again, unless that is what the caller looks for.
    """

    def found() -> tuple[int, str] | None:
        answer = _ask(where, path, flags, host, patience_s)
        return None if answer[1].startswith(LATE) and not stuck else answer

    answer: tuple[int, str] = wait_until(found, "an agent whose loop turns")
    return answer


def _ask(where: int | str, path: str, flags: Sequence[str], host: str, patience_s: float) -> tuple[int, str]:
    assert CURL is not None
    door = ["--unix-socket", where] if isinstance(where, str) else []
    url = f"http://localhost/{path}" if isinstance(where, str) else f"http://{host}:{where}/{path}"
    argv = [CURL, "-s", "-m", str(patience_s), "-w", "\n%{http_code}", *door, *flags, url]
    env = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=PATIENCE_S * 2, check=False)
    if done.returncode:
        return SILENT
    body, _, code = done.stdout.rpartition("\n")
    return int(code), body


def status(where: int | str) -> dict[str, Any]:
    code, body = curl(where, "v1/status")
    assert code == 200, body
    found: dict[str, Any] = json.loads(body)
    assert found["schema"] == 1
    return found


def ask_everywhere(port: int, state: str, *, ready: bool = False, stuck: bool = False) -> None:
    """Ask at every endpoint, and give every order without the token: in each state each of them has its answer."""
    found = {path: curl(port, path, stuck=stuck) for path in READS}
    good = {"livez": not stuck, "readyz": ready, "metrics": not stuck, "v1/status": not stuck}
    assert {path: code for path, (code, _) in found.items()} == {
        path: 200 if is_good else 503 for path, is_good in good.items()
    }, found
    assert [curl(port, order, "-X", "POST")[0] for order in ORDERS] == [401, 401]
    if not stuck:
        told = json.loads(found["v1/status"][1])
        assert (told["state"], told["ready"], told["why_not_ready"] is None) == (state, ready, ready)
        assert f"\nplanaria_ready {ready:d}\n" in found["metrics"][1]


def port_of(room: Room, name: str = "err") -> int:
    """Return the free port that the agent said it answers at."""
    pattern = re.compile(rb"health check at http://[^/]*:(\d+)/")
    return int(wait_until(lambda: pattern.search(room.read(name)), "the line about the health check")[1])


def wait_state(where: int | str, state: str) -> None:
    wait_until(lambda: status(where)["state"] == state, f"state {state}")


def planaria(room: Room, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "planaria", *words],
        env=clean_environment(**{"TMPDIR": room.tmp, **(env or {})}),
        cwd=room.root,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 2,
        check=False,
    )


def door(room: Room) -> str:
    (name,) = room.scratch_folders()
    return os.path.join(room.tmp, name, "http")


def start(room: Room, script: str = WAIT, *flags: str, workers: int = 1, **settings: Any) -> tuple[Launcher, int]:
    launcher = room.start(["--health-check-port=0", f"--nproc-per-node={workers}", *flags], script, **settings)
    room.hear_many([f"up {rank}" for rank in range(workers)])
    return launcher, port_of(room)
