"""Three ways to start one program: plainly, under the bootstrap file alone, and through `planaria run`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from programs import clean_environment

from planaria.process.command import BOOTSTRAP

TIMEOUT_S = 100

PROBE = '''\
"""A docstring."""
import sys
modules = sorted(sys.modules)
importers = sorted(sys.path_importer_cache)
import os
descriptors = sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1]
threads = len(os.listdir("/proc/self/task"))
own = {name: type(value).__name__ for name, value in globals().items()}
import atexit, faulthandler, gc, inspect, io, json, pickle, signal, warnings

class Kept:
    def __eq__(self, other):
        return isinstance(other, Kept)

def square(number):
    """Return the square."""
    return number * number

def pooled(method):
    import multiprocessing
    with multiprocessing.get_context(method).Pool(1) as pool:
        return pool.map(square, [2, 3])

def stream(file):
    return [file.name, file.encoding, file.errors, file.line_buffering, file.write_through, file.isatty(), file.mode]

def status(field, file="status"):
    for line in open("/proc/self/" + file):
        if line.startswith(field):
            return line.split()[-1]

def main():
    below = sys._getframe(1).f_back
    me = sys.modules["__main__"]
    seen = {
        "names": own,
        "doc": __doc__, "file": __file__, "cached": __cached__, "package": __package__, "name": __name__,
        "spec": __spec__ and [__spec__.name, __spec__.origin, __spec__.cached, __spec__.parent],
        "loader": type(__loader__).__name__,
        "loader_path": getattr(__loader__, "path", None), "loader_name": getattr(__loader__, "name", None),
        "builtins": type(__builtins__).__name__, "is_main": me.__dict__ is globals(),
        "argv": sys.argv, "orig_argv": sys.orig_argv[1:], "executable": sys.executable,
        "path": sys.path, "flags": repr(sys.flags), "warnoptions": sys.warnoptions, "xoptions": repr(sys._xoptions),
        "filters": repr(warnings.filters), "prefix": [sys.prefix, sys.exec_prefix],
        "handlers": {number: repr(signal.getsignal(number)) for number in signal.valid_signals()},
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "ignored_by_c": status("SigIgn:"), "caught_by_c": status("SigCgt:"),
        "wakeup": signal.set_wakeup_fd(-1), "cwd": os.getcwd(), "umask": os.umask(0o22),
        "nice": os.getpriority(os.PRIO_PROCESS, 0), "scheduler": os.sched_getscheduler(0), "slice": status("se.slice", "sched"),
        "stdio": [stream(file) for file in (sys.stdin, sys.stdout, sys.stderr)], "fds": descriptors,
        "same_stdio": [sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
        "threads": threads, "gc": [gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.get_freeze_count()],
        "excepthook": sys.excepthook is sys.__excepthook__, "displayhook": sys.displayhook is sys.__displayhook__,
        "tracing": [sys.gettrace(), sys.getprofile()], "recursion": sys.getrecursionlimit(),
        "switch": sys.getswitchinterval(), "modules": modules, "importers": importers,
        "source": inspect.getsource(square), "source_file": inspect.getsourcefile(square),
        "module_of": inspect.getmodule(square).__name__,
        "pickled": pickle.loads(pickle.dumps(Kept())) == Kept(), "pickle": pickle.dumps(Kept()).hex(),
        "spawned": pooled("spawn"), "forked": pooled("fork"),
        "code": [square.__code__.co_filename, square.__code__.co_firstlineno, square.__code__.co_flags],
        "hash": hash("planaria"), "debug": __debug__, "faulthandler": faulthandler.is_enabled(),
        "frame_below_main": None if below is None else below.f_code.co_filename,
        "cmdline": open("/proc/self/cmdline").read().split(chr(0)),
        "last": [hasattr(sys, "last_value"), hasattr(sys, "last_traceback")],
        "rlimit": open("/proc/self/limits").read(), "environ_of_ours": [x for x in os.environ if x == "PYTHONPATH"],
    }
    with open(os.environ["PROBE_OUT"], "w") as file:
        json.dump(seen, file)
    for word in ("first registered", "last registered"):
        atexit.register(print, word)
    print("done")

if __name__ == "__main__":
    main()
'''


def environment(**changes: str) -> dict[str, str]:
    """Return a plain environment: nothing of pytest's or of the shell's that would make runs differ."""
    return clean_environment("PYTHON", "COV", PYTHONHASHSEED="7", **changes)


def start(
    argv: list[str], cwd: Path, env: dict[str, str], fds: tuple[int, ...] = ()
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=TIMEOUT_S,
        pass_fds=fds,
        check=False,
    )


def plainly(
    kind: str, target: str, args: list[str], cwd: Path, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    flags = ["-m", target] if kind == "module" else [target]
    return start([sys.executable, "-u", *flags, *args], cwd, env)


def under_bootstrap(
    kind: str, target: str, args: list[str], cwd: Path, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    box = os.memfd_create("black-box")
    try:
        return start([sys.executable, "-u", BOOTSTRAP, str(box), kind, target, *args], cwd, env, (box,))
    finally:
        os.close(box)


def launched(
    kind: str, target: str, args: list[str], cwd: Path, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    flag = {"script": [], "module": ["-m"], "path": ["--run-path"]}[kind]
    return start([sys.executable, "-m", "planaria", "run", *flag, target, *args], cwd, env)


WAYS = {"plainly": plainly, "under the bootstrap": under_bootstrap, "launched": launched}


def probe(way: str, kind: str, target: str, cwd: Path, env: dict[str, str] | None = None) -> dict[str, Any]:
    out = cwd / f"{way.replace(' ', '-')}.json"
    given = {**(env or environment()), "PROBE_OUT": str(out)}
    done = WAYS[way](kind, target, ["a", "--b=c d"], cwd, given)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout == "done\nlast registered\nfirst registered\n"
    seen: dict[str, Any] = json.loads(out.read_text())
    return seen


def comparable(text: str) -> str:
    """Leave out addresses, and how many frames fit below the recursion limit: three of them are ours."""
    text = re.sub(r"0x[0-9a-f]+|(?<=object refcount : )\d+|(?<=Previous line repeated )\d+", "#", text)
    return "".join(line for line in text.splitlines(keepends=True) if f'File "{BOOTSTRAP}"' not in line)
