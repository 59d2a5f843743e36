"""How long a launch takes: to the first line, the exit of an empty script, the end of `--help`; and a worker's import."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from harness.children import Child
from harness.model import Bench, Metric, Sample

if TYPE_CHECKING:
    from harness.model import Launcher, Settings

TWO_WORKERS = ("--standalone", "--nproc-per-node=2")


def script(settings: Settings, name: str) -> str:
    """Return the path of one of the scripts that workers run."""
    return os.path.join(settings.scripts, name)


def _first_line(argv: tuple[str, ...], settings: Settings) -> Sample:
    with Child(argv, settings.scratch) as child:
        moment, _ = child.next_line()
        child.expect_success()
    return Sample({"first_line": [(moment - child.started_ns) / 1e6]})


def _exit(argv: tuple[str, ...], key: str, settings: Settings) -> Sample:
    with Child(argv, settings.scratch, read_stdout=False) as child:
        moment = child.expect_success()
    return Sample({key: [(moment - child.started_ns) / 1e6]})


def _measure_first_line(launcher: Launcher, settings: Settings) -> Sample:
    return _first_line((*launcher.command, *TWO_WORKERS, script(settings, "hello.py")), settings)


def _measure_exit(launcher: Launcher, settings: Settings) -> Sample:
    return _exit((*launcher.command, *TWO_WORKERS, script(settings, "empty.py")), "exit", settings)


def _measure_help(launcher: Launcher, settings: Settings) -> Sample:
    return _exit((*launcher.command, "--help"), "help", settings)


def _direct_first_line(settings: Settings) -> Sample:
    return _first_line((settings.python, script(settings, "hello.py")), settings)


def _bare_exit(settings: Settings) -> Sample:
    return _exit((settings.python, "-c", "pass"), "first_line", settings)


def _direct_exit(settings: Settings) -> Sample:
    return _exit((settings.python, script(settings, "empty.py")), "exit", settings)


def _bare_exit_for_help(settings: Settings) -> Sample:
    return _exit((settings.python, "-c", "pass"), "help", settings)


_IMPORT = "import time; began = time.monotonic_ns(); import {}; print(time.monotonic_ns() - began)"


def _imported(modules: str, settings: Settings) -> Sample:
    with Child((settings.python, "-c", _IMPORT.format(modules)), settings.scratch) as child:
        took_ns = int(child.next_line()[1])
        child.expect_success()
    return Sample({"import": [took_ns / 1e6]})


def _measure_import(_launcher: Launcher, settings: Settings) -> Sample:
    return _imported("planaria.worker", settings)


def _bare_import(settings: Settings) -> Sample:
    return _imported("socket, threading, contextlib", settings)


BENCHES = (
    Bench(
        name="first-line",
        title="launch → first user line, 2 workers",
        method="`--standalone --nproc-per-node=2` of a script that writes one line; from just before the launcher is "
        "started to the arrival of the first worker's line at the reader of its stdout.",
        metrics=(Metric("first_line", "launch → first user line, 2 workers", "ms", goal=70.0),),
        measure=_measure_first_line,
        floors={"the same script started directly": _direct_first_line, "`python -c pass` → exit": _bare_exit},
    ),
    Bench(
        name="exit",
        title="launch → exit of an empty script, 2 workers",
        method="the same with an empty script; to the exit of the launcher, seen through a pidfd.",
        metrics=(Metric("exit", "launch → exit of an empty script, 2 workers", "ms", goal=90.0),),
        measure=_measure_exit,
        floors={"the same script started directly": _direct_exit},
    ),
    Bench(
        name="help",
        title="`--help` → exit",
        method="`--help` with stdout to /dev/null; to the exit.",
        metrics=(Metric("help", "`--help` → exit", "ms", goal=60.0),),
        measure=_measure_help,
        floors={"`python -c pass` → exit": _bare_exit_for_help},
    ),
    Bench(
        name="import",
        title="`import planaria.worker`",
        method="in a fresh interpreter, by its own clock around the import; torch is there and not imported.",
        metrics=(Metric("import", "`import planaria.worker`", "ms", goal=30.0),),
        measure=_measure_import,
        floors={"`import socket, threading, contextlib`": _bare_import},
        only=frozenset({"planaria"}),
    ),
)
