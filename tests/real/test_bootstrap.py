"""A program started by planaria cannot tell that it was not started by a plain `python -u script`.

Every test runs the same file three ways: plainly, under the bootstrap file alone, and through `planaria run`; what the
program sees of its own start must be equal. What differs on purpose is in `KNOWN`, with the reason, and nothing else.
"""

from __future__ import annotations

import json
import os
import py_compile
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from planaria.process.command import BOOTSTRAP

TIMEOUT_S = 100

KNOWN = {
    "faulthandler": "enabled, so that a fatal signal leaves the stacks in the black box",
    "modules": "the interpreter loads `faulthandler` for that; nothing else is imported",
    "fds": "one more: the black box, an anonymous file",
    "frame_below_main": "a Python program can only be run from a frame, and that frame is ours",
    "cmdline": "/proc/PID/cmdline is the kernel's memory of the real command line",
    "caught_by_c": "the fault handler's five fatal signals, and the one that asks for stacks",
    "importers": "the import system looks at the main script once, to see whether it is a zip file",
}

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
    dropped = ("PYTHON", "PET_", "TORCHELASTIC_", "PLANARIA_", "OMP_", "COV")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "PYTHONHASHSEED": "7", **changes}


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


def assert_alike(plain: dict[str, Any], ours: dict[str, Any]) -> None:
    """Compare two starts; each known difference is exactly the one we know of."""
    fatal_and_stacks = {4, 6, 7, 8, 11, 62}
    plain, ours = dict(plain), dict(ours)
    before, after = plain.pop("modules"), ours.pop("modules")
    assert set(after) - set(before) <= {"faulthandler"}
    assert set(before) <= set(after)
    before, after = plain.pop("fds"), ours.pop("fds")
    assert set(before) < set(after)
    assert len(after) == len(before) + 1
    before, after = int(plain.pop("caught_by_c"), 16), int(ours.pop("caught_by_c"), 16)
    assert after & ~before & ~sum(1 << (number - 1) for number in fatal_and_stacks) == 0
    assert after & before == before
    before, after = plain.pop("importers"), ours.pop("importers")
    assert {BOOTSTRAP} >= set(after) - set(before)
    assert (plain.pop("faulthandler"), ours.pop("faulthandler")) == (False, True)
    plain.pop("frame_below_main")
    assert "planaria" in ours.pop("frame_below_main") or plain["name"] != "__main__"
    plain.pop("cmdline")
    assert BOOTSTRAP in ours.pop("cmdline")
    assert ours == plain


def test_a_script_sees_what_a_plain_start_shows_it(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    target = str(tmp_path / "probe.py")
    plain = probe("plainly", "script", target, tmp_path)
    assert plain["frame_below_main"] is None
    assert_alike(plain, probe("under the bootstrap", "script", target, tmp_path))
    assert_alike(plain, probe("launched", "script", target, tmp_path))


def test_a_module_sees_what_a_plain_start_shows_it(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "probe.py").write_text(PROBE)
    plain = probe("plainly", "module", "package.probe", tmp_path)
    ours = probe("under the bootstrap", "module", "package.probe", tmp_path)
    started = probe("launched", "module", "package.probe", tmp_path)
    for seen in (plain, ours, started):  # the frame below is runpy's own in each case, but for one line of it
        seen["frame_below_main"] = "planaria"
    assert_alike(plain, ours)
    assert_alike(plain, started)


@pytest.mark.parametrize(
    "typed",
    [
        "probe.py",
        "./probe.py",
        "sub/../probe.py",
        "../{name}/probe.py",
        ".//probe.py",
        "link.py",
        "sub/link.py",
        "{whole}/sub/../probe.py",
    ],
)
def test_a_script_keeps_the_name_it_was_given(tmp_path: Path, typed: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "probe.py").write_text(PROBE)
    (tmp_path / "link.py").symlink_to("probe.py")
    (tmp_path / "sub" / "link.py").symlink_to("../link.py")
    target = typed.format(name=tmp_path.name, whole=tmp_path)
    assert_alike(probe("plainly", "script", target, tmp_path), probe("under the bootstrap", "script", target, tmp_path))


@pytest.mark.parametrize(
    "variables",
    [
        {"PYTHONSAFEPATH": "1"},
        {"PYTHONOPTIMIZE": "2"},
        {"PYTHONWARNINGS": "error::DeprecationWarning,ignore::UserWarning"},
        {"PYTHONUTF8": "1", "PYTHONIOENCODING": "latin-1:replace"},
        {"PYTHONPATH": "/nowhere:relative", "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        {"PYTHONINTMAXSTRDIGITS": "700", "PYTHONPLATLIBDIR": "lib"},
    ],
    ids="+".join,
)
def test_variables_of_the_interpreter_are_honoured(tmp_path: Path, variables: dict[str, str]) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    env = environment(**variables)
    plain = probe("plainly", "script", "probe.py", tmp_path, env)
    assert_alike(plain, probe("under the bootstrap", "script", "probe.py", tmp_path, env))


def test_development_mode_is_honoured(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import sys, faulthandler\nprint(sys.flags.dev_mode, faulthandler.is_enabled(), file=sys.stderr)\nopen(__file__)\n"
    )
    env = environment(PYTHONDEVMODE="1", PYTHONTRACEMALLOC="1")
    plain, ours = (WAYS[way]("script", "main.py", [], tmp_path, env) for way in ("plainly", "under the bootstrap"))
    assert comparable(ours.stderr) == comparable(plain.stderr)
    assert "ResourceWarning" in plain.stderr


@pytest.mark.parametrize(
    "name",
    ["json", "traceback", "runpy", "posixpath", "signal", "time", "linecache", "tokenize", "typing", "enum", "re"],
)
def test_a_users_module_with_a_standard_name_is_met_as_in_a_plain_start(tmp_path: Path, name: str) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / f"{name}.py").write_text("OURS = True\n")
    (tmp_path / "job" / "main.py").write_text(
        f"import sys\nimport {name}\nprint(getattr({name}, 'OURS', False), {name} is sys.modules[{name!r}])\n1 / 0\n"
    )
    plain = plainly("script", "job/main.py", [], tmp_path, environment())
    ours = under_bootstrap("script", "job/main.py", [], tmp_path, environment())
    assert (ours.stdout, ours.stderr, ours.returncode) == (plain.stdout, plain.stderr, plain.returncode)
    whole = launched("script", "job/main.py", [], tmp_path, environment())
    assert whole.stdout == plain.stdout
    assert whole.returncode == 1
    assert "ZeroDivisionError: division by zero" in whole.stderr.partition("planaria: job failed")[2]


@pytest.mark.parametrize("name", ["json", "traceback", "runpy", "os"])
def test_a_module_beside_users_modules_with_standard_names_runs(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("OURS = True\n")
    (tmp_path / "main.py").write_text(f"import {name}\nprint(getattr({name}, 'OURS', False))\n1 / 0\n")
    plain = plainly("module", "main", [], tmp_path, environment())
    ours = under_bootstrap("module", "main", [], tmp_path, environment())
    assert (ours.stdout, ours.stderr, ours.returncode) == (plain.stdout, plain.stderr, plain.returncode)


SOURCES = {
    "an encoding cookie": b"# -*- coding: latin-1 -*-\nprint(ascii('\xe4\xf6'))\n",
    "a cookie in line two": b"#!/usr/bin/env python\n# vim: set fileencoding=cp1252 :\nprint(ascii('\x80'))\n",
    "a byte order mark": b"\xef\xbb\xbfprint(ascii('\xc3\xa4'))\n",
    "annotations from the future": b"from __future__ import annotations\ndef f(x: Missing): ...\nprint(f.__annotations__)\n",
    "a docstring before the future": b"'''Words.'''\nfrom __future__ import generator_stop\nprint(__doc__)\n",
    "windows line ends": b"print(1)\r\nif True:\r\n    print(2)\r\n",
    "no newline at the end": b"print(__name__, end='')",
    "a questionable line": b"x = 3\nprint(x is 3)\n",
    "a bad escape": b"print('\\d')\n",
    "annotated variables": b"x: int = 3\nprint(__annotations__)\n",
    "no text at all": b"",
    "only a comment": b"# nothing",
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_source_is_read_as_the_interpreter_reads_it(tmp_path: Path, source: bytes) -> None:
    (tmp_path / "main.py").write_bytes(source)
    env = environment(PYTHONWARNINGS="default")
    plain, ours, whole = (WAYS[way]("script", "main.py", [], tmp_path, env) for way in WAYS)
    assert (ours.stdout, ours.stderr, ours.returncode) == (plain.stdout, plain.stderr, plain.returncode)
    assert (whole.stdout, whole.stderr, whole.returncode) == (plain.stdout, plain.stderr, plain.returncode)


def test_a_folder_a_zip_file_and_bytecode_start_without_the_bootstrap(tmp_path: Path) -> None:
    source = "import sys\nprint(sys.argv[1:], __file__, sys.path[0], __package__, 'faulthandler' in sys.modules)\n"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text(source)
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.writestr("__main__.py", source)
    py_compile.compile(str(tmp_path / "folder" / "__main__.py"), cfile=str(tmp_path / "main.pyc"))
    for target in ("folder", "app.zip", "main.pyc"):
        plain = plainly("script", target, ["a"], tmp_path, environment())
        whole = launched("script", target, ["a"], tmp_path, environment())
        assert (whole.stdout, whole.stderr, whole.returncode) == (plain.stdout, plain.stderr, plain.returncode)
        assert plain.stdout.startswith("['a'] ")


ENDINGS = {
    "an exception": "def f():\n    raise ValueError('no')\nf()",
    "an exception without words": "raise KeyError",
    "a chained exception": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ValueError('no') from error",
    "an exception in a handler": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    {}['x']",
    "a suppressed context": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise ValueError from None",
    "a note": "error = ValueError('no')\nerror.add_note('look here')\nraise error",
    "a syntax error in an import": "import broken",
    "a syntax error in exec": "exec('x = = 1')",
    "a missing module": "import nowhere_to_be_found",
    "exit 0": "import sys; sys.exit(0)",
    "exit None": "import sys; sys.exit(None)",
    "exit 3": "import sys; sys.exit(3)",
    "exit -1": "import sys; sys.exit(-1)",
    "exit True": "import sys; sys.exit(True)",
    "exit False": "import sys; sys.exit(False)",
    "exit with a huge number": "import sys; sys.exit(2 ** 70)",
    "exit 256": "import sys; sys.exit(256)",
    "exit with words": "import sys; sys.exit('not today')",
    "exit with a tuple": "import sys; sys.exit((1, 2))",
    "exit with a float": "import sys; sys.exit(0.0)",
    "exit by exit()": "exit(4)",
    "a bare SystemExit": "raise SystemExit",
    "exit with what cannot be compared": (
        "import sys\nclass Odd:\n    def __eq__(self, other): raise RuntimeError('odd')\n"
        "    def __str__(self): return 'odd'\nsys.exit(Odd())"
    ),
    "Ctrl-C": "raise KeyboardInterrupt",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "a hook": "import sys\ndef hook(*given):\n    print('mine', given[0], given[2].tb_lineno, given[2].tb_next)\n"
    "sys.excepthook = hook\n1 / 0",
    "a hook that looks around": (
        "import sys\ndef hook(kind, error, trace):\n    print(sys.excepthook is hook, error.__traceback__ is trace)\n"
        "    print(sys.last_traceback is trace, trace.tb_frame.f_code.co_name)\nsys.excepthook = hook\n1 / 0"
    ),
    "a hook that fails": "import sys\ndef hook(*given):\n    {}['lost']\nsys.excepthook = hook\n1 / 0",
    "a hook that exits": "import sys\ndef hook(*given):\n    sys.exit(9)\nsys.excepthook = hook\n1 / 0",
    "a hook that calls the original": (
        "import sys\ndef hook(*given):\n    print('first')\n    sys.__excepthook__(*given)\nsys.excepthook = hook\n1 / 0"
    ),
    "a hook that is nothing": "import sys\nsys.excepthook = None\n1 / 0",
    "a hook that is missing": "import sys\ndel sys.excepthook\n1 / 0",
    "no stderr": "import sys\nsys.stderr = None\n1 / 0",
    "closed stderr": "import sys\nsys.stderr.close()\n1 / 0",
    "an exception in a thread": (
        "import threading\nthread = threading.Thread(target=lambda: 1 / 0, name='t')\nthread.start()\nthread.join()"
    ),
    "a thread that goes on": (
        "import threading\nready = threading.Event()\ndef late():\n    ready.wait()\n    print('late')\n"
        "threading.Thread(target=late).start()\nimport atexit\natexit.register(print, 'exit')\n"
        "threading._register_atexit(ready.set)\n1 / 0"
    ),
    "os._exit": "import os; os._exit(5)",
    "an abort": "import os; os.abort()",
    "a kill": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "endless recursion": "def f(n):\n    return f(n + 1)\nf(0)",
    "an exception that cannot be shown": "class Odd(Exception):\n    def __str__(self): raise RuntimeError('odd')\nraise Odd",
    "an exception that exits when shown": (
        "class Odd(Exception):\n    def __str__(self): raise SystemExit(8)\nraise Odd"
    ),
    "an exception group": "raise ExceptionGroup('both', [ValueError(1), ExceptionGroup('in', [TypeError('x')])])",
    "a long message": "raise ValueError('x' * 1_000_000)",
    "a long message in many scripts": "raise ValueError('\\u65e5\\U0001f600' * 100_000)",
    "a message with surrogates": "raise ValueError('\\udcff\\ud800 \\x1b[31m \\0')",
    "an exception of another class of exceptions": "class Mine(BaseException): ...\nraise Mine('x')",
    "an error at the end": "import atexit\natexit.register(lambda: 1 / 0)",
    "an error in a destructor": "class Odd:\n    def __del__(self): 1 / 0\nodd = Odd()",
    "text left in a buffer": "import sys\nsys.stdout.write('half a line')\n1 / 0",
    "a warning": "import warnings\nwarnings.warn('careful')\n",
    "a renamed main module": "import sys\ndel sys.modules['__main__']\n1 / 0",
    "a forked child that fails": "import os\nif os.fork() == 0:\n    1 / 0\nprint(os.wait()[1])\nraise SystemExit(6)",
}


def comparable(text: str) -> str:
    """Leave out addresses, and how many frames fit below the recursion limit: three of them are ours."""
    text = re.sub(r"0x[0-9a-f]+|(?<=object refcount : )\d+|(?<=Previous line repeated )\d+", "#", text)
    return "".join(line for line in text.splitlines(keepends=True) if f'File "{BOOTSTRAP}"' not in line)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_ends_as_it_would_have_ended_plainly(tmp_path: Path, ending: str) -> None:
    (tmp_path / "main.py").write_text(ENDINGS[ending] + "\n")
    (tmp_path / "broken.py").write_text("def f(:\n    pass\n")
    plain = plainly("script", "main.py", [], tmp_path, environment())
    ours = under_bootstrap("script", "main.py", [], tmp_path, environment())
    assert ours.returncode == plain.returncode
    assert ours.stdout == plain.stdout
    assert comparable(ours.stderr) == comparable(plain.stderr)
    assert BOOTSTRAP not in ours.stderr


@pytest.mark.parametrize(
    "ending", ["an exception", "exit with words", "Ctrl-C", "a chained exception", "a hook that fails"]
)
def test_a_module_ends_as_it_would_have_ended_plainly(tmp_path: Path, ending: str) -> None:
    (tmp_path / "main.py").write_text(ENDINGS[ending] + "\n")
    plain = plainly("module", "main", [], tmp_path, environment())
    ours = under_bootstrap("module", "main", [], tmp_path, environment())
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)


def test_a_module_that_is_missing_or_a_package_without_main_is_told_as_plainly(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    for name in ("package", "package.nothing", "package.nothing.more"):
        plain = plainly("module", name, [], tmp_path, environment())
        ours = under_bootstrap("module", name, [], tmp_path, environment())
        assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)


def report_of(script: str, cwd: Path, *flags: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a script through `planaria run` and return the first cause of its `--report-file`."""
    (cwd / "main.py").write_text(script + "\n")
    flags = (f"--report-file={cwd / 'report.json'}", *flags)
    start([sys.executable, "-m", "planaria", "run", *flags, "main.py"], cwd, env or environment())
    found = json.loads((cwd / "report.json").read_text())
    cause: dict[str, Any] = found["first_cause"]
    return cause


@pytest.mark.parametrize(
    ("ending", "status", "kind", "message"),
    [
        ("an exception", 1, "exception", "ValueError: no"),
        ("an exception without words", 1, "exception", "KeyError"),
        ("a syntax error in an import", 1, "exception", "SyntaxError: invalid syntax (broken.py, line 1)"),
        ("exit 3", 3, "exit", "exit status 3"),
        ("exit -1", 255, "exit", "exit status 255"),
        ("exit True", 1, "exit", "exit status 1"),
        ("exit with words", 1, "exit", "exit: not today"),
        ("exit with what cannot be compared", 1, "exit", "exit: odd"),
        ("os._exit", 5, "exit", "exit status 5"),
        ("an abort", -6, "signal", "SIGABRT (Aborted)"),
        ("Ctrl-C", -2, "signal", "SIGINT (Interrupt)"),
        ("an exception that cannot be shown", 1, "exception", "Odd: <Odd whose text cannot be made>"),
        ("a forked child that fails", 6, "exit", "exit status 6"),
        ("a hook that exits", 9, "exception", "ZeroDivisionError: division by zero"),
        ("endless recursion", 1, "exception", "RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_the_report_names_the_end(tmp_path: Path, ending: str, status: int, kind: str, message: str) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n    pass\n")
    cause = report_of(ENDINGS[ending], tmp_path)
    assert (cause["status"], cause["kind"], cause["message"]) == (status, kind, message)


def test_a_long_message_in_any_script_reaches_the_report(tmp_path: Path) -> None:
    cause = report_of(ENDINGS["a long message in many scripts"], tmp_path)
    assert cause["type"] == "ValueError"
    assert cause["message"].startswith("ValueError: \u65e5\U0001f600\u65e5")
    assert cause["traceback"].startswith("Traceback (most recent call last):\n  File ")


def test_the_stack_of_a_fatal_signal_reaches_the_report_and_not_the_screen(tmp_path: Path) -> None:
    script = "import ctypes\ndef deep():\n    ctypes.string_at(0)\ndeep()"
    cause = report_of(script, tmp_path, "--redirects=2", f"--log-dir={tmp_path / 'logs'}")
    assert cause["status"] == -11
    assert 'main.py", line 3 in deep' in cause["traceback"]
    assert Path(cause["log_files"][0]).read_text() == ""


def test_a_users_own_fault_handler_wins(tmp_path: Path) -> None:
    env = environment(PYTHONFAULTHANDLER="1")
    (tmp_path / "main.py").write_text("import ctypes\nctypes.string_at(0)\n")
    plain = plainly("script", "main.py", [], tmp_path, env)
    ours = under_bootstrap("script", "main.py", [], tmp_path, env)
    assert "Fatal Python error: Segmentation fault" in plain.stderr
    assert comparable(ours.stderr) == comparable(plain.stderr)
    assert ours.returncode == plain.returncode == -11


def test_what_the_report_shows_of_a_traceback_is_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(ENDINGS["an exception"] + "\n")
    plain = plainly("script", "main.py", [], tmp_path, environment())
    for flags in ((), ("--no-bootstrap", "--tee=2", "--log-dir=logs")):
        cause = report_of(ENDINGS["an exception"], tmp_path, *flags)
        assert (cause["traceback"] or cause["stderr_tail"]).strip() == plain.stderr.strip()


@pytest.mark.parametrize("flags", [(), ("--no-bootstrap",)])
def test_run_path_runs_as_runpy_does(tmp_path: Path, flags: tuple[str, ...]) -> None:
    (tmp_path / "main.py").write_text(
        "import sys\nprint(__name__, __file__, sys.argv, __spec__, __loader__, __cached__, repr(__package__))\n"
        "print(sys.modules['__main__'].__dict__ is globals())\n"
    )
    words = "import runpy, sys; del sys.argv[0]; runpy.run_path('main.py', run_name='__main__')"
    plain = start(
        [sys.executable, "-u", "-c", words, "main.py", "a"],
        tmp_path,
        environment(),
    )
    argv = [sys.executable, "-m", "planaria", "run", *flags, "--run-path", "main.py", "a"]
    whole = start(argv, tmp_path, environment())
    assert (whole.stdout, whole.stderr, whole.returncode) == (plain.stdout, plain.stderr, plain.returncode)
    assert plain.stdout.startswith("__main__ main.py ['main.py', 'a']")


@pytest.mark.parametrize("flags", [(), ("--no-bootstrap",)])
def test_run_path_runs_folders_and_tells_where_they_failed(tmp_path: Path, flags: tuple[str, ...]) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text("import beside\nbeside.fail()\n")
    (tmp_path / "app" / "beside.py").write_text("def fail():\n    raise ValueError('no')\n")
    whole = start([sys.executable, "-m", "planaria", "run", *flags, "--run-path", "app"], tmp_path, environment())
    assert whole.returncode == 1
    assert 'beside.py", line 2, in fail' in whole.stderr
    assert BOOTSTRAP not in whole.stderr


@pytest.mark.parametrize("kind", ["script", "module"])
def test_another_interpreter_by_variable_runs_the_workers(tmp_path: Path, kind: str) -> None:
    (tmp_path / "my python").symlink_to(sys.executable)
    (tmp_path / "main.py").write_text("import sys\nprint(sys.executable, sys.orig_argv)\n")
    env = environment(PYTHON_EXEC=str(tmp_path / "my python"))
    whole = launched(kind, "main" if kind == "module" else "main.py", ["x"], tmp_path, env)
    flags = ["-m", "main"] if kind == "module" else ["main.py"]
    plain = start([str(tmp_path / "my python"), "-u", *flags, "x"], tmp_path, env)
    assert (whole.stdout, whole.stderr, whole.returncode) == (plain.stdout, plain.stderr, 0)


def test_a_worker_may_close_every_descriptor_it_does_not_know(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import os\nos.closerange(3, 4096)\n1 / 0\n")
    plain = plainly("script", "main.py", [], tmp_path, environment())
    ours = under_bootstrap("script", "main.py", [], tmp_path, environment())
    assert (ours.returncode, ours.stderr) == (plain.returncode, plain.stderr)


def test_programs_a_worker_starts_do_not_inherit_the_black_box(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import os\nos.execvp('ls', ['ls', '/proc/self/fd'])\n")
    plain, ours, whole = (WAYS[way]("script", "main.py", [], tmp_path, environment()) for way in WAYS)
    assert ours.stdout == plain.stdout == whole.stdout


def test_a_worker_without_room_for_many_descriptors_has_its_black_box(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("1 / 0\n")
    words = f"ulimit -n 64; exec {sys.executable} -m planaria run --report-file=report.json main.py"
    done = start(["sh", "-c", words], tmp_path, environment())
    assert done.returncode == 1
    assert json.loads((tmp_path / "report.json").read_text())["first_cause"]["type"] == "ZeroDivisionError"


REPOSITORY = Path(__file__).parents[2]
SHADOWS = (
    "json",
    "traceback",
    "signal",
    "select",
    "time",
    "enum",
    "re",
    "typing",
    "heapq",
    "ctypes",
    "warnings",
    "types",
)
NEEDED_BY_DASH_M = {"types", "warnings", "collections", "functools", "contextlib"}
"""Python's own `-m` imports these with the current directory in front, before there is any code of ours."""


@pytest.mark.parametrize(
    "command",
    [
        [str(REPOSITORY / "bin" / "planaria"), "run"],
        ["-m", "planaria", "run"],
        ["-m", "planaria.run"],
    ],
    ids=["the planaria command", "python -m planaria", "python -m planaria.run"],
)
def test_modules_with_standard_names_in_the_current_directory_do_not_reach_the_launcher(
    tmp_path: Path, command: list[str]
) -> None:
    for name in SHADOWS:
        if command[0] != "-m" or name not in NEEDED_BY_DASH_M:
            (tmp_path / f"{name}.py").write_text("OURS = True\n")
    (tmp_path / "main.py").write_text("raise ConnectionError('no')\n")
    argv = [sys.executable, *command, "--max-restarts=1", "--report-file=report.json", "main.py"]
    done = start(argv, tmp_path, environment())
    assert done.returncode == 1, done.stderr
    found = json.loads((tmp_path / "report.json").read_text())
    assert [life["failures"][0]["message"] for life in found["lives"]] == ["ConnectionError: no"] * 2
