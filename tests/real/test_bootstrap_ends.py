"""A program that planaria started ends as it would have ended plainly, and the report says how."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ways import comparable, environment, plainly, start, under_bootstrap

from planaria.process.command import BOOTSTRAP

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
