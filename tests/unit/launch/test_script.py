from __future__ import annotations

import os
import py_compile
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from planaria.errors import UsageError
from planaria.launch.parse import parse
from planaria.launch.script import check, same_interpreter

if TYPE_CHECKING:
    from pathlib import Path

PATH = {"PATH": "/usr/bin:/bin"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ok.py").write_text("print('hello')\n")
    return tmp_path


def kind(*argv: str, ours: bool = True, environ: dict[str, str] | None = None) -> str:
    return check(parse(argv, {}), ours, environ or PATH).kind


def refused(*argv: str, ours: bool = True) -> str:
    with pytest.raises(UsageError) as caught:
        kind(*argv, ours=ours)
    return str(caught.value)


def test_every_kind_of_program_is_recognised(folder: Path) -> None:
    py_compile.compile("ok.py", cfile="ok.pyc")
    (folder / "app").mkdir()
    (folder / "app" / "__main__.py").write_text("")
    with zipfile.ZipFile("bundle", "w") as bundle:
        bundle.writestr("__main__.py", "")
    (folder / "shebang.pyz").write_bytes(b"#!/usr/bin/env python3\n" + (folder / "bundle").read_bytes())
    assert kind("ok.py") == "source"
    assert kind("ok.pyc") == "bytecode"
    assert kind("app") == "directory"
    assert kind("bundle") == "zip"
    assert kind("shebang.pyz") == "zip"
    assert kind("-m", "ok") == "module"
    assert kind("--no-python", "sh") == "program"
    assert kind("--run-path", "--no-python", "ok.py") == "source"


def test_a_script_that_cannot_be_read_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", deny)  # root may read everything, so chmod would not do
    assert refused("ok.py") == "the script 'ok.py' cannot be read: Permission denied"


def test_a_syntax_error_is_told_with_file_line_and_message(folder: Path) -> None:
    (folder / "broken.py").write_text("x = 1\ny = = 2\n")
    assert refused("broken.py") == "the script does not compile: line 2 of 'broken.py': invalid syntax"
    assert refused("--run-path", "broken.py").startswith("the script does not compile")


def test_a_script_for_another_interpreter_is_not_compiled(folder: Path) -> None:
    (folder / "python2.py").write_text("print 'hello'\n")
    assert kind("python2.py", ours=False) == "source"


def test_a_questionable_script_is_left_to_its_workers(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "warns.py").write_text("'\\d'\nif x is 1: pass\n")
    (folder / "deep.py").write_text("(" * 150 + ")" * 150 + "\n")
    (folder / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\nx = '\xe9'\n")
    for name in ("warns.py", "deep.py", "latin.py"):
        assert kind(name) == "source"
    assert capfd.readouterr() == ("", "")


def test_a_long_script_is_compiled_too(folder: Path) -> None:
    (folder / "huge.py").write_text("# padding\n" * 10_000 + "y = = 2\n")
    with pytest.raises(UsageError, match="line 10001"):
        kind("huge.py")


def test_a_pipe_is_not_a_script(folder: Path) -> None:
    os.mkfifo("pipe.py")
    assert refused("pipe.py").startswith("the script 'pipe.py' is not a regular file")


@pytest.mark.parametrize("name", ["ok", "json", "json.tool", "sys", "planaria", "_frozen_importlib"])
def test_modules_are_found_here_in_the_standard_library_and_among_the_installed(name: str) -> None:
    assert kind("-m", name) == "module"


def test_a_missing_module_is_refused_only_when_its_search_path_is_ours() -> None:
    assert refused("-m", "no_such_module.sub").startswith("-m: there is no module 'no_such_module'")
    assert kind("-m", "no_such_module", ours=False) == "module"
    assert kind("-m", "no_such_module", environ={"PYTHON_EXEC": sys.executable, **PATH}) == "module"


def test_without_an_environment_nothing_is_searched_on_path() -> None:
    assert check(parse(["--no-python", "no_such_program"], {}), True).kind == "program"


def test_the_same_interpreter_is_recognised_through_links(folder: Path) -> None:
    (folder / "python").symlink_to(sys.executable)
    assert same_interpreter({}, sys.executable)
    assert same_interpreter({"PYTHON_EXEC": ""}, sys.executable)
    assert same_interpreter({"PYTHON_EXEC": str(folder / "python")}, sys.executable)
    assert not same_interpreter({"PYTHON_EXEC": "/bin/sh"}, sys.executable)
    assert not same_interpreter({"PYTHON_EXEC": "/no/such/python"}, sys.executable)


def test_a_log_directory_may_be_made_later_and_is_not_made_by_the_check(folder: Path) -> None:
    assert kind("--log-dir=a/b/c", "ok.py") == "source"
    assert kind("--log-dir=/dev/null", "ok.py") == "source"
    assert kind("--log-dir=", "ok.py") == "source"
    assert not (folder / "a").exists()


def test_directories_that_cannot_be_written_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_args: False)  # root may write everywhere
    assert refused("--log-dir=logs", "ok.py").startswith("--log-dir expects a writable directory, got 'logs'")
    assert (
        refused("--report-file=r.json", "ok.py") == "--report-file expects a path in a writable directory, got 'r.json'"
    )


def test_a_dangling_link_is_no_log_directory(folder: Path) -> None:
    (folder / "logs").symlink_to("nowhere")
    assert refused("--log-dir=logs", "ok.py").startswith("--log-dir expects a directory, got 'logs'")
