"""What the launcher finds when it starts, and must neither trip over nor take along."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import planaria
from planaria.contract import exit_status

LAUNCHER = [sys.executable, "-m", "planaria", "run"]
PATIENCE_S = 60


def run(arguments: list[str], **settings: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **settings)


def test_a_parent_that_ignores_sigchld_does_not_make_the_launcher_wait_for_ever() -> None:
    done = run([*LAUNCHER, "--no-python", "true"], preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert done.returncode == 0


@pytest.mark.parametrize(("files", "said"), [(5, "cannot start the agent"), (8, "cannot go on")])
def test_a_limit_that_is_used_up_is_this_node_s_trouble(files: int, said: str) -> None:
    done = run(
        [*LAUNCHER, "--no-python", "true"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)),
    )
    assert done.returncode == exit_status.NODE_FAILED
    assert re.fullmatch(rf"planaria: {said}: .*Too many open files.*\n", done.stderr)


def test_children_from_before_the_launcher_are_left_alone(tmp_path: Path) -> None:
    command = f'sleep 100 >/dev/null 2>&1 & echo $! >"{tmp_path}/pid"; exec "$@"'
    done = run(["sh", "-c", command, "sh", *LAUNCHER, "--no-python", "true"], stdin=subprocess.DEVNULL)
    bystander = int((tmp_path / "pid").read_text())
    os.kill(bystander, signal.SIGKILL)  # raises if it had been killed
    assert done.returncode == 0


SLEEPER = """
#include <fcntl.h>
#include <unistd.h>
int main(void) { setuid(0); open("ready", O_WRONLY); sleep(100); return 0; }  // should the test fail to end it, this does
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to be two users at once")
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_process_that_has_become_another_user_is_left_alone(tmp_path: Path) -> None:
    """The launcher runs as nobody; its worker leaves a program behind that has become root."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))  # a place that nobody may enter and that allows setuid programs
    try:
        folder.chmod(0o777)
        sleeper = folder / "sleeper"
        (folder / "sleeper.c").write_text(SLEEPER)
        os.mkfifo(folder / "ready")
        (folder / "ready").chmod(0o666)  # whatever the umask
        subprocess.run(["cc", "-o", sleeper, folder / "sleeper.c"], check=True, timeout=PATIENCE_S)
        sleeper.chmod(0o4755)
        command = f'"{sleeper}" >/dev/null 2>&1 & echo $! >"{folder}/pid"; : <ready'
        site = str(Path(planaria.__file__).parents[1])
        package = folder / "planaria"
        shutil.copytree(f"{site}/planaria", package, ignore=shutil.ignore_patterns("__pycache__"))
        done = run(
            [_public_python(), "-m", "planaria", "run", "--no-python", "sh", "-c", command],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "TMPDIR": str(folder), "PYTHONPATH": str(folder)},
            user=65534,
            group=65534,
        )
        left = int((folder / "pid").read_text())
        os.kill(left, signal.SIGKILL)
        assert done.returncode == 0, done.stderr
        assert "bug" not in done.stderr
    finally:
        shutil.rmtree(folder)


def _public_python() -> str:
    """Return an interpreter that another user may run; this one may live below a home directory."""
    found = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if found is None or run([found, "-c", "import sys; assert sys.version_info >= (3, 11)"], user=65534).returncode:
        pytest.skip("there is no Python 3.11 that another user may run")
    return found


@pytest.mark.parametrize("kind", ["fifo", "device", "link"])
def test_a_report_file_that_is_not_a_plain_file_is_written_not_replaced(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "report"
    if kind == "fifo":
        os.mkfifo(target)
        reader = os.open(target, os.O_RDONLY | os.O_NONBLOCK)
    elif kind == "device":
        target.symlink_to("/dev/null")
    else:
        (tmp_path / "real").write_text("old")
        target.symlink_to(tmp_path / "real")
    done = run([*LAUNCHER, f"--report-file={target}", "--no-python", "true"])
    assert done.returncode == 0, done.stderr
    if kind == "fifo":
        assert stat.S_ISFIFO(target.stat().st_mode)
        assert json.loads(os.read(reader, 1 << 16))["outcome"] == "done"
        os.close(reader)
    else:
        assert target.is_symlink()
        if kind == "link":
            assert json.loads((tmp_path / "real").read_text())["outcome"] == "done"


def test_a_report_to_dev_stdout_joins_what_the_workers_wrote_there(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/stdout")
    for target in ("/dev/stdout", str(tmp_path / "link")):
        with (tmp_path / "out").open("w") as out:
            subprocess.run(
                [*LAUNCHER, f"--report-file={target}", "--no-python", "echo", "hello"],
                stdout=out,
                timeout=PATIENCE_S,
                check=True,
            )
        first, _, rest = (tmp_path / "out").read_text().partition("\n")
        assert (first, json.loads(rest)["outcome"]) == ("hello", "done")


def test_descriptors_of_the_caller_do_not_reach_the_workers(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        done = run(
            ["sh", "-c", f'exec 9<&{lock.fileno()}; exec "$@"', "sh", *LAUNCHER, "--no-python", "ls", "/proc/self/fd"],
            pass_fds=(lock.fileno(),),
        )
    assert "9" not in done.stdout.split()


def test_a_full_disk_behind_stdout_is_said_once_and_the_job_goes_on() -> None:
    script = "import sys\nfor _ in range(3): print('x' * 100, flush=True)\n"
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*LAUNCHER, "-t", "3", "--log-dir=/dev/null", "--no-python", sys.executable, "-c", script],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0
    assert done.stderr.count("cannot write to standard output any more") == 1


@pytest.mark.parametrize("words", [["run", "--help"], ["--version"]])
def test_help_that_cannot_be_written_is_no_bug(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "planaria", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert (done.returncode, "bug" in done.stderr) == (1, False)


def test_many_fast_failures_are_restarts_and_never_a_stop_that_nobody_asked_for(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\n[ "$RANK" = 0 ] && exit 3\nexec sleep 100\n')
    program.chmod(0o755)
    done = run([*LAUNCHER, "--nproc-per-node=12", "--max-restarts=10", "--no-python", str(program)])
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("starting all workers again") == 10


def test_an_exception_is_the_first_cause_although_the_worker_hangs_afterwards_and_we_stop_it(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(
        "import os, threading\n"
        "if os.environ['RANK'] == '1':\n"
        "    def hang():\n"
        "        threading.main_thread().join()\n"  # the exception is told by then
        "        open('raised', 'w').close()\n"
        "        threading.Event().wait()\n"
        "    threading.Thread(target=hang).start()\n"
        "    raise RuntimeError('the real cause')\n"
        "while not os.path.exists('raised'): os.sched_yield()\n"
        "raise RuntimeError('only a consequence')\n"
    )
    done = run([*LAUNCHER, "--nproc-per-node=2", "--report-file=report.json", str(script)], cwd=tmp_path)
    assert done.returncode == 1
    cause = json.loads((tmp_path / "report.json").read_text())["first_cause"]
    assert cause["message"] == "RuntimeError: the real cause, then SIGTERM (Terminated)"


def test_a_node_where_the_agent_cannot_work_has_a_status_of_its_own(tmp_path: Path) -> None:
    """Others go on without it, so whoever reads statuses must not take it for the failure of a job."""
    script = tmp_path / "main.py"
    script.write_text("print('ran')\n")
    done = run([*LAUNCHER, str(script)], env={**os.environ, "TMPDIR": "/proc"})
    assert (done.returncode, done.stdout) == (71, "")
    assert done.stderr.startswith("planaria: cannot go on: ")
