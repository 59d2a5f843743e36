"""Jobs that hang, or only look like it: several of them run at the same time, and each leaves a report and its evidence.

A script marks the line at which it hangs with `# HERE`. Its ranks meet after every step in a ring of FIFOs.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Mapping

FLOOR_S = 4.0  # a processor that is away for 2 s is no hang
WEATHER_S = 15.0  # by which a machine may be late with everything; what was forgiven to it is in no gap
STEPS = 12
HANGS_AT = 8
NO_TOOL = "exit 0"  # a real one takes a second, or several with torch, and all jobs would start one at the same time
MEETING = '''\
import os
from threading import Event

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ROOM = os.environ["ROOM"]
_ENDS = [os.open(f"{ROOM}/{RANK}-{(RANK + 1) % WORLD}", os.O_RDWR), os.open(f"{ROOM}/{(RANK - 1) % WORLD}-{RANK}", os.O_RDWR)]


def work(seconds=0.03):
    """Take as long as a step takes."""
    Event().wait(seconds)


def meet():
    """Wait for everybody."""
    for _ in range(WORLD):
        os.write(_ENDS[0], b"x")
        os.read(_ENDS[1], 1)


def train(hang, steps=12, at=8):
    """Train; rank 1 calls `hang` in one of the steps, before the others are met."""
    from planaria import worker

    for step in range(steps):
        work()
        if step == at and RANK == 1:
            hang()
        meet()
        worker.report_progress(step, samples=step * 8)
'''
SLOW_AND_STUCK = """
import threading, time
from planaria.worker import report_progress

def stuck():
    threading.Event().wait()  # HERE

tell(f"up {RANK}")
wait_at("begin")
for step in range(10**6):
    began = time.monotonic()
    time.sleep(0.012 if RANK == 2 else 0.002)  # what a step takes
    report_progress(step, busy_s=time.monotonic() - began)
    if RANK == 1 and os.path.exists(f"{ROOM}/hang"):
        stuck()
"""
"""What three ranks of a `harness.Room` run, once they all have come: rank 2 is slow, and rank 1 hangs when it is told to."""
SLOW_AND_STUCK_FLAGS = ("--nproc-per-node=3", "--hang-floor=3", "--hang-policy=report")


class Ended(NamedTuple):
    """A job that has ended: its status, what it said, its report, and the folders of evidence."""

    status: int
    err: str
    report: dict[str, Any]
    evidence: list[str]

    @property
    def hangs(self) -> list[dict[str, Any]]:
        return self.report["hangs"]

    def summary(self) -> dict[str, Any]:
        (folder,) = self.evidence
        with open(f"{folder}/summary.json") as file:
            return json.load(file)

    def file(self, name: str) -> str:
        (found,) = glob.glob(f"{self.evidence[0]}/{name}")
        with open(found) as file:
            return file.read()


# A launcher whose workers have longer to show where they are before they are stopped, and other nodes to look at theirs:
# a processor may be away for 2 s.
PATIENT = """\
import sys
from planaria.agent import charge, machine
machine.LOOK_S = 3.0
charge.OTHERS_S = 15.0
from planaria.launch.main import run
sys.exit(run(sys.argv[2:]))
"""


class Jobs:
    """Starts jobs in a folder, all at once, and waits for them."""

    def __init__(self, root: str, ranks: int = 3) -> None:
        self._root = root
        self._ranks = ranks
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        with open(f"{root}/meeting.py", "w") as file:
            file.write(f"FLOOR_S = {FLOOR_S}\n{MEETING}")
        with open(f"{root}/patient.py", "w") as file:
            file.write(PATIENT)

    def start(self, name: str, script: str, *flags: str, env: Mapping[str, str] | None = None) -> None:
        folder = f"{self._root}/{name}"
        os.mkdir(folder)
        for rank in range(self._ranks):
            os.mkfifo(f"{folder}/{rank}-{(rank + 1) % self._ranks}")
        with open(f"{folder}/main.py", "w") as file:
            file.write(script)
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PET_", "OMP_", "TORCH"))}
        common = ("--hang-policy=restart", "--shutdown-timeout=1", f"--hang-floor={FLOOR_S:g}")
        places = (f"--report-file={folder}/report.json", f"--log-dir={folder}/logs", "--redirects=3")
        launcher = (sys.executable, f"{self._root}/patient.py", "run")
        argv = [*launcher, f"--nproc-per-node={self._ranks}", *common, *places, *flags]
        environment = {**inherited, "ROOM": folder, "PYTHONPATH": self._root, "TMPDIR": folder, **(env or {})}
        with open(f"{folder}/err", "wb") as err:
            self._started[name] = subprocess.Popen(
                [*argv, f"{folder}/main.py"], cwd=folder, env=environment, stderr=err, stdin=subprocess.DEVNULL
            )

    def tool(self, script: str) -> dict[str, str]:
        """Return an environment in which the first tool for native stacks is this script."""
        path = f"{self._root}/tool{len(self._started)}/py-spy"
        os.mkdir(os.path.dirname(path))
        with open(path, "w") as file:
            file.write(f"#!/bin/sh\n{script}\n")
        os.chmod(path, 0o755)
        return {"PATH": f"{os.path.dirname(path)}:{os.environ['PATH']}"}

    def path(self, name: str, file: str) -> str:
        return f"{self._root}/{name}/{file}"

    def said(self, name: str) -> bytes:
        with open(self.path(name, "err"), "rb") as file:
            return file.read()

    def events(self, name: str, kind: str) -> list[dict[str, Any]]:
        """Return what the events of a kind say."""
        with open(self.path(name, "events")) as file:
            found = [json.loads(line) for line in file]
        return [event["metadata"] for event in found if event["name"] == kind]

    def wait(self) -> dict[str, Ended]:
        return {name: self._end(name, process) for name, process in self._started.items()}

    def _end(self, name: str, process: subprocess.Popen[bytes]) -> Ended:
        process.wait(4 * PATIENCE_S)
        err = self.said(name).decode()
        folder = f"{self._root}/{name}"
        with open(f"{folder}/report.json") as file:
            report = json.load(file)
        return Ended(process.returncode, err, report, sorted(glob.glob(f"{folder}/logs/*/evidence/*")))

    def close(self) -> None:
        for process in self._started.values():
            if process.poll() is None:
                process.kill()
                process.wait(PATIENCE_S)


def assert_caught(end: Ended, script: str, rank: int = 1) -> None:
    """Check that the job failed for the right rank, with a stack that names the line."""
    (hang,) = end.hangs
    line = 1 + next(number for number, text in enumerate(script.splitlines()) if "# HERE" in text)
    cause = end.report["first_cause"]
    assert (hang["ranks"][0], cause["rank"], cause["type"]) == (rank, rank, "planaria.hang"), end.err
    assert cause["message"].startswith("hangs in phase step after step "), cause["message"]
    assert f"evidence in {end.evidence[0]}" in cause["message"]
    (of_rank,) = [one for one in end.summary()["ranks"] if one["rank"] == rank]
    lines = [frame["line"] for frame in of_rank["frames"] if frame["file"].endswith("/main.py")]
    assert line in lines, (line, of_rank, end.err)
    assert f"line {line} in stuck" in cause["traceback"], cause["traceback"]
    # The promise is on the silence that is allowed; how soon after it a busy machine lets the agent look is its own affair.
    promised_s = 3 * hang["usual_s"] + FLOOR_S
    assert FLOOR_S <= hang["limit_s"] <= promised_s, hang
    assert hang["limit_s"] <= hang["gap_s"] <= promised_s + WEATHER_S, hang
    job = os.path.basename(end.evidence[0].partition("/logs/")[0])
    print(f"{job}: found after {hang['gap_s']:.2f} s; usual {hang['usual_s']:.2f} s, promised {promised_s:.2f} s")


def assert_not_called(end: Ended) -> None:
    """Check that the job went well and that nobody said that it hangs."""
    assert (end.status, end.report["outcome"], end.hangs, end.evidence) == (0, "done", [], []), end.err
