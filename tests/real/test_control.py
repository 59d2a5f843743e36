"""The control socket between real workers and a real agent: progress, drain, and peers that mean no good."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from programs import clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = 100

REPORT_AND_WAIT = """
import fcntl, os, struct, termios
from planaria import worker

def report(step, **values):
    '''Report progress and wait until the agent has taken it out of the socket.'''
    worker.report_progress(step, **values)
    while struct.unpack("i", fcntl.ioctl(worker._LINK._socket, termios.TIOCOUTQ, bytes(4)))[0]:
        os.sched_yield()
"""
RESTARTED = "import os\nif os.environ['TORCHELASTIC_RESTART_COUNT'] == '1':\n    raise SystemExit\n"


def environment() -> dict[str, str]:
    return clean_environment("PYTHON", OMP_NUM_THREADS="1")


def launch(folder: Path, script: str, *flags: str, **options: Any) -> subprocess.Popen[str]:
    (folder / "main.py").write_text(script)
    argv = [sys.executable, "-m", "planaria", "run", f"--report-file={folder / 'report.json'}", *flags, "main.py"]
    env = {**environment(), "TMPDIR": str(folder)}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(argv, cwd=folder, env=env, text=True, **(pipes | options))


@contextmanager
def launched(folder: Path, script: str, *flags: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a job for the length of a block; whatever happens inside, nothing of it is left."""
    with launch(folder, script, *flags, **options) as job:
        try:
            yield job
        finally:
            job.kill()
            job.wait(TIMEOUT_S)


def finish(job: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = job.communicate(timeout=TIMEOUT_S)
    return job.returncode, out, err


def report_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def test_an_error_after_progress_is_worth_a_restart(tmp_path: Path) -> None:
    script = RESTARTED + REPORT_AND_WAIT + "report(1, loss=0.5)\nraise ImportError('the same everywhere')\n"
    with launched(tmp_path, script, "--nproc-per-node=2", "--max-restarts=3") as job:
        status, _, err = finish(job)
    assert (status, report_of(tmp_path)["restarts"]) == (0, 1), err


def test_the_same_error_before_any_progress_is_not(tmp_path: Path) -> None:
    """One worker is all ranks: with two, a busy machine may keep the second from failing before the agent has decided."""
    script = RESTARTED + REPORT_AND_WAIT + "worker.drain_notice()\nraise ImportError('the same everywhere')\n"
    with launched(tmp_path, script, "--max-restarts=3") as job:
        status, _, err = finish(job)
    assert (status, len(report_of(tmp_path)["lives"])) == (1, 1), err
    assert "every rank failed alike at start-up" in err


def test_progress_of_a_worker_s_child_counts_as_the_worker_s(tmp_path: Path) -> None:
    child = REPORT_AND_WAIT + "report(7)\n"
    script = RESTARTED + (
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}], check=True)\nraise ImportError('x')\n"
    )
    with launched(tmp_path, script, "--max-restarts=3") as job:
        status, _, err = finish(job)
    assert (status, report_of(tmp_path)["restarts"]) == (0, 1), err


def test_a_forked_child_makes_a_connection_of_its_own(tmp_path: Path) -> None:
    script = (
        RESTARTED
        + REPORT_AND_WAIT
        + (
            "worker.drain_notice()\nif os.fork() == 0:\n    report(1)\n    os._exit(0)\nos.wait()\nraise ImportError('x')\n"
        )
    )
    with launched(tmp_path, script, "--max-restarts=3") as job:
        status, _, err = finish(job)
    assert (status, report_of(tmp_path)["restarts"]) == (0, 1), err


@pytest.mark.torch
def test_numbers_of_torch_and_numpy_are_numbers(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="its numbers are the ones people report")
    script = (
        RESTARTED
        + REPORT_AND_WAIT
        + (
            "import numpy, torch\n"
            "report(torch.tensor(3), loss=torch.tensor([0.5]), norm=numpy.float32(1), n=numpy.int64(2), big=float('inf'))\n"
            "raise ImportError('x')\n"
        )
    )
    with launched(tmp_path, script, "--max-restarts=3") as job:
        status, _, err = finish(job)
    assert (status, report_of(tmp_path)["restarts"]) == (0, 1), err


DRAINED = """
import json, os, signal, sys
from planaria import worker

def say(line):
    os.write(1, line.encode() + b"\\n")  # in one piece: two workers share this pipe

def on_signal(number, frame):
    notice = worker.drain_notice()
    say(json.dumps([number, notice and notice.reason, notice and notice.grace_s]))
    sys.exit(0)

for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, on_signal)
worker.report_progress(0)
assert worker.drain_notice() is None
say("ready")
while True:
    signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_drain_notice_is_there_when_the_signal_arrives(tmp_path: Path, number: signal.Signals) -> None:
    script = DRAINED.replace("worker.report_progress(0)", REPORT_AND_WAIT + "report(0)")
    with launched(tmp_path, script, "--nproc-per-node=2", "--shutdown-timeout=77") as job:
        assert job.stdout is not None
        assert [job.stdout.readline() for _ in range(2)] == ["ready\n", "ready\n"]
        job.send_signal(number)
        status, out, err = finish(job)
    assert status == 128 + number, err
    assert [json.loads(line) for line in out.splitlines()] == [[number, number.name, 77.0]] * 2


def waiting_worker(folder: Path, after: str = "") -> str:
    """Return a worker that shows its control socket, waits for the test to go on, and then does `after`."""
    os.mkfifo(folder / "go")
    return f"import os\nprint(os.environ['PLANARIA_CONTROL'], flush=True)\nopen({str(folder / 'go')!r}).read()\n{after}"


def go_on(folder: Path) -> None:
    (folder / "go").write_text("")


def is_dropped(peer: socket.socket) -> bool:
    """Tell whether the other side has closed the connection; waits for it."""
    peer.settimeout(TIMEOUT_S)
    try:
        return peer.recv(1) == b""
    except ConnectionError:
        return True


def test_a_stranger_of_the_same_user_is_not_heard(tmp_path: Path) -> None:
    script = RESTARTED + waiting_worker(tmp_path, "raise ImportError('x')\n")
    with launched(tmp_path, script, "--max-restarts=3") as job, socket.socket(socket.AF_UNIX) as stranger:
        assert job.stdout is not None
        stranger.connect(job.stdout.readline().strip())
        with suppress(ConnectionError):
            stranger.sendall(b'{"type": "progress", "step": 1}\n')
        assert is_dropped(stranger)
        go_on(tmp_path)
        status, _, err = finish(job)
    assert (status, len(report_of(tmp_path)["lives"])) == (1, 1), err


def test_many_strangers_at_once_do_not_disturb_the_job(tmp_path: Path) -> None:
    with launched(tmp_path, waiting_worker(tmp_path)) as job:
        assert job.stdout is not None
        path = job.stdout.readline().strip()
        strangers = [socket.socket(socket.AF_UNIX) for _ in range(200)]
        for stranger in strangers:
            stranger.connect(path)
        assert all(map(is_dropped, strangers))
        for stranger in strangers:
            stranger.close()
        go_on(tmp_path)
        assert finish(job)[0] == 0


HOSTILE = (
    REPORT_AND_WAIT
    + r"""
import os, socket
path = os.environ["PLANARIA_CONTROL"]

def connected():
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(path)
    peer.settimeout(60)
    return peer

def dropped(*pieces):
    '''Send these bytes; tell whether the agent closes the connection upon them.'''
    peer = connected()
    try:
        for piece in pieces:
            peer.sendall(piece)
        return peer.recv(1) == b""
    except ConnectionError:
        return True

for garbage in (
    b"\n", b"{}{}\n", b"[]\n", b"null\n", b"\xff\xfe\x00\n", b"\x00" * 100 + b"\n",
    b"[" * 16000 + b"\n", b'"' + b"x" * 16000 + b"\n",
    b'{"type": "progress"}\n', b'{"type": "progress", "step": 1.5}\n', b'{"type": "progress", "step": true}\n',
    b'{"type": "progress", "step": 1, "x": "y"}\n', b'{"type": "progress", "step": 1, "x": []}\n',
    b'{"type": "progress", "step": ' + b"9" * 5000 + b"}\n",
    b'{"type": "drain", "grace_s": []}\n', b'{"type": "drain", "grace_s": null}\n', b'{"type": "drain", "grace_s": "soon"}\n',
    b'{"type": "drain", "grace_s": ' + b"9" * 400 + b"}\n",
    b"x" * 17000, b" " * 200_000, b'{"type": "progress", "step": 1, "x": "' + b"y" * 100_000,
):
    assert dropped(garbage), garbage[:60]
assert dropped(b'{"type": "pro', b"gress", b'"}\n')

quiet = [connected() for _ in range(200)]  # they say nothing
for number, peer in enumerate(quiet):
    peer.sendall([b"", b'{"type": "progress", "st', b'{"type": "news", "of": ["the", "future"]}\n', b"\n" * 9][number % 4])
for peer in quiet[::2]:
    peer.close()
for _ in range(20):  # the answer to the first line finds nobody
    peer = connected()
    peer.sendall(b'{"type": "vault-join", "id": 1}\nnot json\n')
    peer.close()
connected().sendall(b'{"type": ["progress"]}\n')  # of another version, for all that we know
connected().close()
report(5)
"""
)


def test_garbage_from_a_worker_costs_it_a_connection_and_nothing_else(tmp_path: Path) -> None:
    script = RESTARTED + HOSTILE + "raise ImportError('heard')\n"
    with launched(tmp_path, script, "--max-restarts=1") as job:
        status, _, err = finish(job)
    report = report_of(tmp_path)
    assert (status, report["restarts"]) == (0, 1), err
    assert [life["failures"][0]["message"] for life in report["lives"][:1]] == ["ImportError: heard"]


@pytest.mark.parametrize("umask", [0o000, 0o077])
@pytest.mark.parametrize("stop", [False, True], ids=["finished", "stopped"])
def test_the_socket_s_folder_is_private_and_gone_afterwards(tmp_path: Path, umask: int, stop: bool) -> None:
    with launched(tmp_path, waiting_worker(tmp_path), umask=umask) as job:
        assert job.stdout is not None
        path = Path(job.stdout.readline().strip())
        assert stat.S_ISSOCK(path.stat().st_mode)
        folder = path.parent
        assert (stat.S_IMODE(folder.stat().st_mode), folder.stat().st_uid) == (0o700, os.getuid())
        assert folder.name.startswith("planaria-")
        if stop:
            job.send_signal(signal.SIGTERM)
        else:
            go_on(tmp_path)
        assert finish(job)[0] == (143 if stop else 0)
    assert not folder.exists()


OUTSIDE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "numpy"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
import planaria.worker
for step in range(3):
    planaria.worker.report_progress(step, loss=0.5)
    planaria.worker.report_progress(step, loss="not a number")
    assert planaria.worker.drain_notice() is None
rooms = {name.split(".")[1] for name in sys.modules if name.startswith("planaria.")}
assert rooms <= {"worker", "contract", "base", "errors"}, rooms
"""


@pytest.mark.parametrize("path", [None, "", "/nowhere/control", "not a socket", "nobody listens"])
def test_the_worker_library_does_nothing_without_an_agent_and_without_torch(tmp_path: Path, path: str | None) -> None:
    if path == "not a socket":
        path = str(tmp_path / "file")
        Path(path).write_text("")
    if path == "nobody listens":
        path = str(tmp_path / "socket")
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(path)
    env = environment() | ({} if path is None else {"PLANARIA_CONTROL": path})
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", OUTSIDE],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_worker_goes_on_when_its_agent_stops_listening(tmp_path: Path) -> None:
    """An agent that is stopped, here a server that never reads, costs one short wait; then the worker has given up."""
    path = str(tmp_path / "socket")
    script = (
        "from planaria import worker\n"
        "for step in range(1000):\n    worker.report_progress(step, **{f'value{n}': 1.0 for n in range(500)})\n"
        "assert worker.drain_notice() is None\nprint(worker._LINK._socket)\n"
    )
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(path)
        deaf.listen()
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-W", "error", "-c", script],
            env={**environment(), "PLANARIA_CONTROL": path},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert (done.returncode, done.stdout, done.stderr) == (0, "None\n", "")


def test_the_variables_name_round_and_reason(tmp_path: Path) -> None:
    script = (
        "import os\nshown = [os.environ[f'PLANARIA_{name}'] for name in ('ROUND', 'RESTART_REASON')]\nprint(shown)\n"
        "raise SystemExit(3 if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' else 0)\n"
    )
    with launched(tmp_path, script, "--max-restarts=1") as job:
        status, out, err = finish(job)
    assert status == 0, err
    assert out == "['0', '']\n['1', 'rank 0 failed']\n"
    assert re.search(r"restart 1 of 1", err)
