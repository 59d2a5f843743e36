"""Measure planaria beside torchrun, or any launcher with its flags: `<venv>/bin/python bench/run.py`. See README.md here."""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from datetime import UTC, datetime

from harness import bars, machine
from harness.children import find_launchers, say
from harness.model import Settings
from harness.processes import become_subreaper, end_all_descendants
from harness.report import Circumstances, as_data, markdown
from harness.rounds import run_bench
from rows import ALL, rendezvous

HERE = os.path.dirname(os.path.abspath(__file__))
QUICK = {"rounds": 3, "idle_window_s": 4.0, "tee_s": 2.0, "kills": 3}
PLOT = "rendezvous.svg"  # beside the report
FULL = {"rounds": 11, "idle_window_s": 20.0, "tee_s": 5.0, "kills": 5}


def main() -> int:
    """Run what was asked for, print the report, and write it with the raw numbers beside it."""
    arguments = _parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))  # so that everything is cleaned up
    become_subreaper()
    scratch = tempfile.mkdtemp(prefix="bench-of-planaria-")
    try:
        return _run(arguments, _settings(arguments, scratch))
    finally:
        end_all_descendants()
        shutil.rmtree(scratch, ignore_errors=True)


def _run(arguments: argparse.Namespace, settings: Settings) -> int:
    launchers = arguments.found
    how = Circumstances(
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=_shown_command(arguments),
        quick=arguments.quick or arguments.tiny,
        rounds=settings.rounds,
        idle_window_s=settings.idle_window_s,
        tee_s=settings.tee_s,
        machine=machine.describe(),
        versions=machine.versions(),
        launchers={launcher.name: launcher.shown for launcher in launchers},
        load_before=machine.load(),
    )
    wanted = [bench for bench in ALL if not arguments.only or _is_named(bench.name, arguments.only)]
    results = [run_bench(bench, launchers, settings) for bench in wanted]
    how = replace(how, load_after=machine.load())
    data = as_data(results, how)
    drawings = {PLOT: rendezvous.draw(results), _bars_name(arguments.output): bars.svg(bars.groups([data]))}
    for name, drawing in drawings.items():
        if drawing is not None:
            _write(os.path.join(os.path.dirname(arguments.output), name), drawing)
    text = markdown(results, how, [name for name, drawing in drawings.items() if drawing is not None])
    _write(arguments.output, text)
    _write(arguments.json, json.dumps(data, indent=1, allow_nan=False) + "\n")
    print(text)
    failed = sum(len(record.failures) for result in results for record in result.records.values())
    say(f"written: {arguments.output}, {arguments.json}" + (f"; {failed} rounds failed" if failed else ""))
    return 1 if failed else 0


def _bars_name(output: str) -> str:
    return os.path.splitext(os.path.basename(output))[0].lower() + ".svg"


def _settings(arguments: argparse.Namespace, scratch: str) -> Settings:
    return Settings(
        rounds=arguments.rounds,
        quick=arguments.quick,
        python=sys.executable,
        scratch=scratch,
        scripts=os.path.join(HERE, "scripts"),
        idle_window_s=arguments.idle_window,
        tee_s=arguments.tee_seconds,
        kills_per_launch=arguments.kills,
        tiny=arguments.tiny,
    )


def _parse(argv: list[str]) -> argparse.Namespace:
    names = [bench.name for bench in ALL]
    parser = argparse.ArgumentParser(prog="bench/run.py", description=__doc__, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="few rounds and short windows, to try the benchmark")
    parser.add_argument("--rounds", type=int, help="counted rounds of each measurement (11; quick: 3)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"some, * for any letters, of: {', '.join(names)}")
    parser.add_argument(
        "--launchers",
        nargs="+",
        default=["planaria", "torchrun"],
        metavar="LAUNCHER",
        help="who takes part (planaria torchrun); NAME=COMMAND for any other that takes torchrun's flags",
    )
    parser.add_argument("--idle-window", type=float, help="seconds of idling watched in each round (20; quick: 4)")
    parser.add_argument("--tee-seconds", type=float, help="how long the workers of the tee rows write (5; quick: 2)")
    parser.add_argument(
        "--kills", type=int, help="workers killed in each launch of the rows that kill workers (5; quick: 3)"
    )
    parser.add_argument("--tiny", action="store_true", help="rows gpu-*: on a CPU, a model of no size, to try them")
    parser.add_argument("--output", default=os.path.join(HERE, "RESULTS.md"), help="the report")
    parser.add_argument("--json", default=os.path.join(HERE, "results.json"), help="the raw numbers")
    arguments = parser.parse_args(argv)
    defaults = QUICK if arguments.quick else FULL
    arguments.rounds = arguments.rounds or int(defaults["rounds"])
    arguments.idle_window = arguments.idle_window or defaults["idle_window_s"]
    arguments.tee_seconds = arguments.tee_seconds or defaults["tee_s"]
    arguments.kills = arguments.kills or int(defaults["kills"])
    for pattern in arguments.only or ():
        if not fnmatch.filter(names, pattern):
            parser.error(f"--only: no row is called {pattern}; there are {', '.join(names)}")
    try:
        arguments.found = find_launchers(arguments.launchers, sys.executable)
    except ValueError as problem:
        parser.error(f"--launchers: {problem}")
    return arguments


def _is_named(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _shown_command(arguments: argparse.Namespace) -> str:
    """Return the command line to reproduce the run, with every number spelled out and no path of this machine."""
    words = ["<venv>/bin/python bench/run.py", f"--rounds {arguments.rounds}"]
    words += [f"--idle-window {arguments.idle_window:g}", f"--tee-seconds {arguments.tee_seconds:g}"]
    words += [f"--kills {arguments.kills}"]
    shown = (one.name if one.name in arguments.launchers else f"{one.name}={one.shown}" for one in arguments.found)
    words += [f"--launchers {shlex.join(shown)}"]
    if arguments.quick:
        words.insert(1, "--quick")
    if arguments.tiny:
        words.append("--tiny")
    if arguments.only:
        words.append(f"--only {shlex.join(arguments.only)}")
    return " ".join(words)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main())
