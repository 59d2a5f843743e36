"""A program started by planaria cannot tell that it was not started by a plain `python -u script`.

Every test runs the same file three ways: plainly, under the bootstrap file alone, and through `planaria run`; what the
program sees of its own start must be equal. What differs on purpose is in `KNOWN`, with the reason, and nothing else.
"""

from __future__ import annotations

import py_compile
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from ways import PROBE, WAYS, comparable, environment, launched, plainly, probe, start, under_bootstrap

from planaria.process.command import BOOTSTRAP

KNOWN = {
    "faulthandler": "enabled, so that a fatal signal leaves the stacks in the black box",
    "modules": "built-in ones: `faulthandler` for that, and `atexit`, to wait for threads of Gloo; nothing else is imported",
    "fds": "one more: the black box, an anonymous file",
    "frame_below_main": "a Python program can only be run from a frame, and that frame is ours",
    "cmdline": "/proc/PID/cmdline is the kernel's memory of the real command line",
    "caught_by_c": "the fault handler's five fatal signals, and the one that asks for stacks",
    "importers": "the import system looks at the main script once, to see whether it is a zip file",
}


def assert_alike(plain: dict[str, Any], ours: dict[str, Any]) -> None:
    """Compare two starts; each known difference is exactly the one we know of."""
    fatal_and_stacks = {4, 6, 7, 8, 11, 62}
    plain, ours = dict(plain), dict(ours)
    before, after = plain.pop("modules"), ours.pop("modules")
    assert set(after) - set(before) <= {"atexit", "faulthandler"}
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
