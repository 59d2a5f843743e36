"""What a commit, a restore and a kill -9 cost on a GPU. Linux, one GPU, torch with CUDA; nothing has to be installed.

    PYTHONPATH=src python3 bench/gpu.py commits FOLDER     # stalls, step times, restore; 1.6 GB and 12 GB; 2.5 minutes
    PYTHONPATH=src python3 bench/gpu.py recovery FOLDER    # kill -9 to the next step, phase by phase; a quarter of an hour

Each writes FOLDER/gpu-NAME.json and .md; the two of the latter, one behind the other, are bench/RESULTS-gpu.md.
Ways to recover take turns, some kills each, until all have had enough. `--launchers` as in bench/run.py; `--only` leaves ways
or sizes out, `--minutes` ends it early. `--tiny` tries everything on a CPU with a model of no size, to see that it runs.
bench/run.py has the same as rows, `gpu-*`, with a number for each launcher.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness.children import find_launchers
from harness.gpu_lives import GOALS, PHASES, environment, has_stepped, lives, ways_of
from harness.machine import versions
from harness.model import OURS

if TYPE_CHECKING:
    from harness.gpu_lives import Life, Way

SCRIPTS = Path(__file__).parent / "scripts"
KILLS = 11  # of each way of planaria's
PEERS_KILLS = 5  # of each other one, which takes ten times as long
CHECK_S = 300.0  # all of `commits`, this included, takes half as long
CHECK_MARK = "gpu check: "
AT_A_TIME = 3  # kills before the next way has its turn: to start a job takes longer than a kill
SIZES = {"1.6GB": "1.6 GB", "12GB": "12 GB"}
COMMIT_GOALS = {  # for 1.6 GB: what is measured, what is to be reached, and the largest figure that does
    "commit() call, ms": ("<= 1 ms", 1.0),
    "commit() call behind loss.item(), ms": ("<= 1 ms", 1.0),
    "synchronous commit, ms": ("<= 32 ms", 32.0),
    "step time more, %": ("within 1 %", 1.0),
}
TITLES = {"commits": "Commits of a GPU's state", "recovery": "kill -9 of a worker on a GPU"}
VERSIONS = "import torch; cuda = torch.cuda; print(torch.__version__, cuda.is_available() and cuda.get_device_name())"


def recovery(folder: Path, arguments: argparse.Namespace) -> None:
    size, device = ("tiny", ["cpu"]) if arguments.tiny else ("1.6 GB", [])
    until = time.monotonic() + arguments.minutes * 60 if arguments.minutes else math.inf
    ways = [way for way in ways_of(arguments.found) if not arguments.only or way.kind in arguments.only]
    wanted = {way.name: arguments.rounds or (KILLS if way.is_ours else PEERS_KILLS) for way in ways}
    found: dict[str, list[Life]] = {way.name: [] for way in ways}
    turn = 0
    while any(wanted.values()) and time.monotonic() < until:
        for way in ways if turn % 2 == 0 else reversed(ways):
            rest = wanted[way.name] - len(found[way.name])
            if rest > 0 and time.monotonic() < until:
                kills = _turn_of(way, size, device, min(rest, arguments.at_a_time), until)
                found[way.name] += kills
                write(folder, "recovery", {"size": size, "ways": found}, recovery_text(found))
                rest = rest - len(kills) if kills else 0  # one that says nothing would never come to an end
            if rest <= 0:
                wanted[way.name] = 0
        turn += 1


def _turn_of(way: Way, size: str, device: list[str], kills: int, until: float) -> list[Life]:
    print(way.name, flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        script = [str(SCRIPTS / "gpu_recover.py"), way.kind, size, scratch, *device]
        return lives([*way.command, *script], kills, until)


def recovery_text(found: dict[str, list[Life]]) -> str:
    lines = [
        "kill -9 of the worker to each phase, s: median (least - most). A standby that joined has begun before the kill.",
        "n is all kills, *no step* those of them that no step followed: their later phases have no figure.",
        "",
        "| way | n | no step | " + " | ".join(PHASES) + " | goal | kept steps lost |",
        "|---|---|---|" + "---|" * (len(PHASES) + 2),
    ]
    for name, kills in found.items():
        cells = []
        for phase in PHASES:
            values = [kill[phase] for kill in kills if phase in kill]
            cells.append(f"{statistics.median(values):.3f} ({min(values):.3f} - {max(values):.3f})" if values else "")
        lost = sum(kill.get("kept steps lost", 0) for kill in kills)
        failed = sum(not has_stepped(kill) for kill in kills)
        told = [name, str(len(kills)), str(failed), *cells, str(GOALS.get(name, "")), f"{lost:.0f}"]
        lines.append(f"| {' | '.join(told)} |")
    return "\n".join(lines)


def commits(folder: Path, arguments: argparse.Namespace) -> None:
    sizes = {SIZES[one]: 200 for one in SIZES if not arguments.only or one in arguments.only}
    sizes = {"tiny": 8} if arguments.tiny else sizes
    ours = next(one for one in arguments.found if one.name == OURS)
    checks = ["not made: there is no GPU in a try on a CPU"] if arguments.tiny else checked()
    found = {}
    for size, steps in sizes.items():
        output = folder / f"commits-{size.replace(' ', '')}.json"
        script = [str(SCRIPTS / "gpu_commit.py"), size, str(output), str(steps), *(["cpu"] if arguments.tiny else [])]
        status = subprocess.run(
            [*ours.command, "--nproc-per-node=1", "--max-restarts=0", *script], env=environment(), check=False
        ).returncode
        found[size] = json.loads(output.read_text()) if output.exists() else {}
        found[size]["status"] = status
        write(folder, "commits", found, f"{checks_text(checks)}\n\n{commits_text(found)}", checks=checks)


def checked() -> list[str]:
    """Have the GPU's copies and digests compared with the host's, and return what was found."""
    argv = [sys.executable, str(SCRIPTS / "gpu_check.py")]
    try:
        done = subprocess.run(
            argv,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=CHECK_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"not over after {CHECK_S:.0f} s"]
    print(done.stdout, flush=True)
    return check_lines(done.stdout, done.returncode)


def check_lines(said: str, status: int) -> list[str]:
    """Return the lines of the check itself. One that has not come to its last word has failed, whatever it said before."""
    lines = [line.removeprefix(CHECK_MARK) for line in said.splitlines() if line.startswith(CHECK_MARK)]
    ends = {0: " are right", 1: " are wrong"}
    is_whole = status in ends and bool(lines) and lines[-1].endswith(ends[status])
    return lines if is_whole else [*lines, f"ended with status {status} before its last word"]


def checks_text(checks: list[str]) -> str:
    return f"Checks of copies and digests on the GPU (`bench/scripts/gpu_check.py`): {'; '.join(checks)}."


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


def write(folder: Path, name: str, found: object, text: str, **more: object) -> None:
    told = subprocess.run([sys.executable, "-c", VERSIONS], capture_output=True, text=True, check=False).stdout.strip()
    about = (
        f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC, Python {platform.python_version()}, torch {told}, "
        f"{os.cpu_count()} cores, Linux {platform.release()}, planaria {versions()['commit']}"
    )
    (folder / f"gpu-{name}.json").write_text(json.dumps({"about": about, **more, "found": found}, indent=1))
    command = f"PYTHONPATH=src python3 bench/gpu.py {name} FOLDER"
    (folder / f"gpu-{name}.md").write_text(f"# {TITLES[name]}\n\n{about}: `{command}`\n\n{text}\n")
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="measure commits and recovery on a GPU")
    parser.add_argument("what", choices=["commits", "recovery"])
    parser.add_argument("folder", type=Path)
    kills = f"kills of each way ({KILLS}; {PEERS_KILLS} of another launcher than planaria)"
    parser.add_argument("--rounds", type=int, default=0, help=kills)
    parser.add_argument(
        "--at-a-time",
        type=int,
        default=AT_A_TIME,
        metavar="KILLS",
        help=f"kills of one way before the next one has its turn ({AT_A_TIME}); more of them start fewer jobs",
    )
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="end recovery after so long, whatever there is by then"
    )
    parser.add_argument("--only", nargs="+", choices=["join", "plain", "disk", *SIZES], help="some ways, or some sizes")
    parser.add_argument("--launchers", nargs="+", default=["planaria", "torchrun"], metavar="LAUNCHER")
    parser.add_argument("--tiny", action="store_true", help="on a CPU, a model of no size")
    arguments = parser.parse_args()
    if arguments.at_a_time < 1:
        parser.error("--at-a-time: expected a whole number of at least 1")
    try:
        arguments.found = find_launchers(arguments.launchers, sys.executable)
    except ValueError as problem:
        parser.error(f"--launchers: {problem}")
    if arguments.what == "commits" and not any(one.name == OURS for one in arguments.found):
        parser.error("--launchers: commits are planaria's")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    (commits if arguments.what == "commits" else recovery)(arguments.folder, arguments)


if __name__ == "__main__":
    main()
