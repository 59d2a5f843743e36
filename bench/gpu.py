"""What a commit, a restore and a kill -9 cost on a GPU. Linux, one GPU, torch with CUDA; nothing has to be installed.

    PYTHONPATH=src python3 bench/gpu.py commits FOLDER     # stalls, step times, restore; 1.6 GB and 12 GB; 2.5 minutes at most
    PYTHONPATH=src python3 bench/gpu.py recovery FOLDER    # kill -9 to the next step, phase by phase; 3.5 minutes at most

Each writes FOLDER/gpu-NAME.json and .md; the two of the latter, one behind the other, are bench/RESULTS-gpu.md.
`--tiny` tries everything on a CPU with a model of no size, to see that it runs.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from queue import Empty, Queue

from harness.processes import descendants

SCRIPTS = Path(__file__).parent / "scripts"
PLANARIA = [sys.executable, "-m", "planaria", "run"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
PHASES = ("begin", "imported", "built", "group", "restored", "stepped")
WAYS = {
    "planaria, standbys, join()": ([*PLANARIA, "--standbys=auto"], "join"),
    "planaria, standbys, without join()": ([*PLANARIA, "--standbys=auto"], "plain"),
    "torchrun, checkpoint on disk": (TORCHRUN, "disk"),
}
GOALS = {"planaria, standbys, join()": 0.7, "planaria, standbys, without join()": 3.5}
KILLS = {"planaria, standbys, join()": 6, "planaria, standbys, without join()": 4, "torchrun, checkpoint on disk": 2}
COMMIT_GOALS = {  # for 1.6 GB: what is measured, what is to be reached, and the largest figure that does
    "commit() call, ms": ("<= 1 ms", 1.0),
    "commit() call behind loss.item(), ms": ("<= 1 ms", 1.0),
    "synchronous commit, ms": ("<= 32 ms", 32.0),
    "step time more, %": ("within 1 %", 1.0),
}
TITLES = {"commits": "Commits of a GPU's state", "recovery": "kill -9 of a worker on a GPU"}
VERSIONS = "import torch; cuda = torch.cuda; print(torch.__version__, cuda.is_available() and cuda.get_device_name())"
READY_S = 60.0
PATIENCE_S = 90.0
_PAPERS_FD, _CHANNEL_FD = 1021, 1022  # a standby has closed the first of them when it is ready


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}


class Job:
    """A launcher under test. `next` returns the words that its workers say: word, pid, moment, number."""

    def __init__(self, argv: list[str]) -> None:
        self.process = subprocess.Popen(argv, env=environment(), stdout=subprocess.PIPE, text=True)
        self._said: Queue[tuple[str, int, int, int]] = Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            _, mark, rest = line.rpartition("@ ")
            if mark:
                word, pid, moment, number = rest.split()
                self._said.put((word, int(pid), int(moment), int(number)))

    def next(self, within_s: float) -> tuple[str, int, int, int]:
        return self._said.get(timeout=within_s)

    def end(self) -> None:
        pids = [self.process.pid, *descendants(self.process.pid)]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


def standing(job: Job) -> bool:
    for pid in descendants(job.process.pid):
        has_papers, has_channel = (os.path.lexists(f"/proc/{pid}/fd/{number}") for number in (_PAPERS_FD, _CHANNEL_FD))
        if has_channel and not has_papers:
            return True
    return False


def lives(argv: list[str], rounds: int, until: float) -> list[dict[str, float]]:
    """Kill the worker again and again; return for each kill the seconds to each phase, and the steps that were lost."""
    job, found = Job(argv), []
    try:
        kept = trained = 0
        while True:
            word, pid, _, number = job.next(PATIENCE_S)
            kept = number if word == "kept" else kept
            trained += word == "kept"
            if trained < 3:
                continue
            waited = time.monotonic() + READY_S
            while "--standbys=auto" in argv and not standing(job) and time.monotonic() < waited:
                time.sleep(0.05)
            time.sleep(
                2.5
            )  # a standby that is ready maps and registers memory then; a commit is under way at any moment
            kept = drained(job, kept)
            stood = standing(job)
            killed = time.monotonic_ns()
            os.kill(pid, signal.SIGKILL)
            found.append(life(job, pid, killed, kept) | {"stood by": float(stood)})
            print(found[-1], flush=True)
            trained = 0
            if len(found) == rounds or time.monotonic() > until:
                return found
    except Empty:
        print("nothing was said for too long", flush=True)
        return found
    finally:
        job.end()


def drained(job: Job, kept: int) -> int:
    """Return the newest commit that was said to be kept by now."""
    try:
        while True:
            word, _, _, number = job.next(0.0001)
            kept = number if word == "kept" else kept
    except Empty:
        return kept


def life(job: Job, killed_pid: int, killed: int, kept: int) -> dict[str, float]:
    phases: dict[str, float] = {}
    while "stepped" not in phases:
        word, pid, moment, number = job.next(PATIENCE_S)
        if pid == killed_pid:
            kept = number if word == "kept" else kept
        elif word in PHASES and moment > killed:
            phases[word] = (moment - killed) / 1e9
            if word == "restored":
                phases["kept steps lost"] = max(0, kept - number)
    return phases


def recovery(folder: Path, arguments: argparse.Namespace) -> None:
    size, device = ("tiny", ["cpu"]) if arguments.tiny else ("1.6 GB", [])
    begin = time.monotonic()
    found: dict[str, list[dict[str, float]]] = {}
    for number, (name, (launcher, way)) in enumerate(WAYS.items()):
        with tempfile.TemporaryDirectory() as scratch:
            argv = [*launcher, "--nproc-per-node=1", "--max-restarts=100", str(SCRIPTS / "gpu_recover.py")]
            until = begin + (number + 1) * arguments.minutes * 60 / len(WAYS)
            rounds = arguments.rounds or KILLS[name]
            print(name, flush=True)
            found[name] = lives([*argv, way, size, scratch, *device], rounds, until)
        write(folder, "recovery", {"size": size, "ways": found}, recovery_text(found))


def recovery_text(found: dict[str, list[dict[str, float]]]) -> str:
    lines = [
        "kill -9 of the worker to each phase, s: median (least - most). A standby that joined has begun before the kill.",
        "",
        "| way | n | " + " | ".join(PHASES) + " | goal | kept steps lost |",
        "|---|---|" + "---|" * (len(PHASES) + 2),
    ]
    for name, kills in found.items():
        cells = []
        for phase in PHASES:
            values = [kill[phase] for kill in kills if phase in kill]
            cells.append(f"{statistics.median(values):.3f} ({min(values):.3f} - {max(values):.3f})" if values else "")
        lost = sum(kill.get("kept steps lost", 0) for kill in kills)
        lines.append(f"| {name} | {len(kills)} | " + " | ".join(cells) + f" | {GOALS.get(name, '')} | {lost:.0f} |")
    return "\n".join(lines)


def commits(folder: Path, arguments: argparse.Namespace) -> None:
    sizes = {"tiny": 8} if arguments.tiny else {"1.6 GB": 200, "12 GB": 200}
    if not arguments.tiny:
        subprocess.run([sys.executable, str(SCRIPTS / "gpu_check.py")], env=environment(), check=False)
    found = {}
    for size, steps in sizes.items():
        output = folder / f"commits-{size.replace(' ', '')}.json"
        script = [str(SCRIPTS / "gpu_commit.py"), size, str(output), str(steps), *(["cpu"] if arguments.tiny else [])]
        status = subprocess.run(
            [*PLANARIA, "--nproc-per-node=1", "--max-restarts=0", *script], env=environment(), check=False
        ).returncode
        found[size] = json.loads(output.read_text()) if output.exists() else {}
        found[size]["status"] = status
        write(folder, "commits", found, commits_text(found))


def commits_text(found: dict[str, dict[str, object]]) -> str:
    names = list(dict.fromkeys(name for one in found.values() for name in one))
    lines = ["| what | goal | reached | " + " | ".join(found) + " |", "|---|---|---|" + "---|" * len(found)]
    for name in names:
        cells = [name, *judged(name, next(iter(found.values()))), *(cell(one.get(name, "")) for one in found.values())]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def judged(name: str, one: dict[str, object]) -> tuple[str, str]:
    """Return the goal that a figure has, for the first size, and whether it was reached; by its median."""
    if name not in COMMIT_GOALS or name not in one:
        return "", ""
    goal, most = COMMIT_GOALS[name]
    value = one[name]
    figure = value["median"] if isinstance(value, dict) else value
    return goal, "yes" if isinstance(figure, float) and figure <= most else "no"


def cell(value: object) -> str:
    if isinstance(value, dict) and "median" in value:
        return (
            f"{value['median']:.2f} ({value['p10']:.2f} - {value['p90']:.2f}, most {value['most']:.2f}, n={value['n']})"
        )
    if isinstance(value, dict):
        return ", ".join(f"{name} {number:.2f}" for name, number in value.items())
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def write(folder: Path, name: str, found: object, text: str) -> None:
    told = subprocess.run([sys.executable, "-c", VERSIONS], capture_output=True, text=True, check=False).stdout.strip()
    about = (
        f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC, Python {platform.python_version()}, torch {told}, "
        f"{os.cpu_count()} cores, Linux {platform.release()}"
    )
    (folder / f"gpu-{name}.json").write_text(json.dumps({"about": about, "found": found}, indent=1))
    command = f"PYTHONPATH=src python3 bench/gpu.py {name} FOLDER"
    (folder / f"gpu-{name}.md").write_text(f"# {TITLES[name]}\n\n{about}: `{command}`\n\n{text}\n")
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="measure commits and recovery on a GPU")
    parser.add_argument("what", choices=["commits", "recovery"])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--rounds", type=int, default=0, help="kills for each way; else six, four, and two for torchrun"
    )
    parser.add_argument("--minutes", type=float, default=3.5, help="how long recovery may take in all")
    parser.add_argument("--tiny", action="store_true")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (commits if arguments.what == "commits" else recovery)(arguments.folder, arguments)


main()
