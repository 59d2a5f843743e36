"""Look at the files a command line names before anything starts: a job of 512 workers must not fail 512 times."""

from __future__ import annotations

import os
import sys

from planaria.base.text import safe_line
from planaria.base.usage import quoted
from planaria.base.value import Value
from planaria.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from planaria.launch.parse import Options

    ScriptKind = Literal["source", "bytecode", "directory", "zip", "module", "program"]

_COMPILED_BYTES = 4 << 20  # nobody writes a longer script; compiling costs 7-11 ms per 1000 lines
_ZIP_TAIL_BYTES = 22 + 65535  # where the end record of a zip file must be
_ZIP_END = b"PK\x05\x06"


class ScriptFacts(Value):
    """What the file system says about the script. Only `source` and `module` can be started by our bootstrap file."""

    kind: ScriptKind = "source"


def same_interpreter(environ: Mapping[str, str], executable: str) -> bool:
    """Say whether workers run under the launcher's own interpreter, so that what compiles here compiles there."""
    chosen = environ.get("PYTHON_EXEC", "")
    if not chosen or chosen == executable:
        return True
    try:
        return os.path.samefile(chosen, executable)
    except OSError:
        return False


def check(options: Options, interpreter_is_ours: bool, environ: Mapping[str, str] | None = None) -> ScriptFacts:
    """Check script, report file, files of events and directories; return what kind of program the script is.

    Without `environ` nothing that depends on `PATH` or `PYTHON_EXEC` is checked.

    Raises:
        UsageError: One sentence about the first thing that cannot work.
    """
    _check_written_files(options)
    if options.log_dir and options.log_dir != os.devnull:
        _check_log_dir(options.source("log_dir"), options.log_dir)
    if options.run_dir is not None:
        _check_log_dir(options.source("run_dir"), options.run_dir)
    if options.snapshot_dir is not None:
        _check_log_dir(options.source("snapshot_dir"), options.snapshot_dir)
    target = options.training_script
    if target in ("", "-"):
        wrong = "the script's name is empty" if not target else "a script from standard input (-) is not supported"
        raise UsageError(wrong, hint="every worker has to read it: name a file")
    if options.no_python and not options.run_path:
        if not options.module:  # both together are refused by the plan
            _check_program(target, None if environ is None else environ.get("PATH", os.defpath))
        return ScriptFacts("program")
    if environ is not None and environ.get("PYTHON_EXEC") and not options.run_path:
        _check_interpreter(environ["PYTHON_EXEC"], environ.get("PATH", os.defpath))
    if options.module and not options.run_path:
        _check_module(target, interpreter_is_ours and not (environ or {}).get("PYTHON_EXEC"))
        return ScriptFacts("module")
    return ScriptFacts(_check_script(target, interpreter_is_ours))


def _check_script(path: str, compile_it: bool) -> ScriptKind:
    shown = quoted(path)
    if os.path.isdir(path):
        if not any(os.path.exists(os.path.join(path, "__main__" + suffix)) for suffix in (".py", ".pyc")):
            raise UsageError(f"the script {shown} is a directory without a __main__.py")
        return "directory"
    if not os.path.exists(path):
        hint = "is it a module? then add -m" if "/" not in path and not path.endswith(".py") else ""
        where = "" if os.path.isabs(path) else f" in {quoted(_cwd())}"
        raise UsageError(f"there is no script {shown}{where}", hint=hint)
    if not os.path.isfile(path):
        raise UsageError(f"the script {shown} is not a regular file", hint="every worker has to read it: name a file")
    try:
        head, tail, size = _ends_of(path)
    except OSError as problem:
        raise UsageError(f"the script {shown} cannot be read: {problem.strerror}") from problem
    if path.endswith(".pyc"):
        return "bytecode"
    if _ZIP_END in tail and _is_program_zip(path):
        return "zip"
    if compile_it and size <= len(head):
        _check_source(path, head)
    return "source"


def _cwd() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "gone"


def _ends_of(path: str) -> tuple[bytes, bytes, int]:
    """Return the beginning, the end and the size of a file."""
    with open(path, "rb") as file:
        head = file.read(_COMPILED_BYTES)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _ZIP_TAIL_BYTES))
        return head, file.read(_ZIP_TAIL_BYTES), size


def _is_program_zip(path: str) -> bool:
    import zipimport

    try:
        return zipimport.zipimporter(path).find_spec("__main__") is not None
    except zipimport.ZipImportError:
        return False


def _check_source(path: str, source: bytes) -> None:
    """Compile the script. What is merely questionable (warnings, deep nesting) is left to the workers."""
    import warnings

    shown = quoted(path)
    if b"\0" in source:
        raise UsageError(f"the script {shown} contains null bytes: it is not Python source", hint="--no-python?")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, path, "exec", dont_inherit=True)
    except SyntaxError as problem:
        where = f"line {problem.lineno} of " if problem.lineno else ""
        raise UsageError(f"the script does not compile: {where}{shown}: {safe_line(problem.msg)}") from problem
    except (ValueError, RecursionError, MemoryError, OverflowError):
        return


def _check_module(name: str, look_for_it: bool) -> None:
    top = name.partition(".")[0]
    if not top:
        raise UsageError(f"-m expects an absolute module name, got {quoted(name)}")
    if name.endswith(".py") and os.path.isfile(name) and not os.path.isdir(top):
        raise UsageError(f"-m expects a module name, got the file {quoted(name)}", hint="leave -m out, or .py")
    if look_for_it and not _is_importable(top):
        raise UsageError(f"-m: there is no module {quoted(top)} in {quoted(_cwd())} or on sys.path")


def _is_importable(top: str) -> bool:
    """Look for a top-level module as `python -m` in the current directory would, without importing anything."""
    try:
        here = os.listdir(".")
    except OSError:
        here = []
    if any(entry == top or entry.startswith(top + ".") for entry in here):
        return True
    try:
        return any(finder.find_spec(top, None) is not None for finder in sys.meta_path)
    except (ImportError, AttributeError, OSError, ValueError):
        return True  # an unusual finder: the workers will know


def _check_program(name: str, search_path: str | None) -> None:
    shown = quoted(name)
    if "/" in name:
        _check_executable(name, f"the program {shown}")
    elif search_path is not None and not _on_path(name, search_path):
        hint = f"write ./{safe_line(name)} for the one in this directory" if os.path.isfile(name) else ""
        raise UsageError(f"--no-python: there is no program {shown} on PATH", hint=hint)


def _check_interpreter(name: str, search_path: str) -> None:
    if "/" in name:
        _check_executable(name, f"PYTHON_EXEC={quoted(name)}")
    elif not _on_path(name, search_path):
        raise UsageError(f"PYTHON_EXEC names no program on PATH, got {quoted(name)}")


def _check_executable(path: str, called: str) -> None:
    if not os.path.exists(path):
        raise UsageError(f"{called} does not exist")
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise UsageError(f"{called} is not executable")


def _on_path(name: str, search_path: str) -> bool:
    places = (os.path.join(folder, name) for folder in search_path.split(os.pathsep))
    return any(os.path.isfile(place) and os.access(place, os.X_OK) for place in places)


def _check_written_files(options: Options) -> None:
    if options.report_file is not None:
        _check_written_file(options.source("report_file"), options.report_file)
    if options.event_log_handler != "null":
        from planaria.observe.handlers import read_specs

        for spec in read_specs(options.event_log_handler):
            if spec.path is not None:
                _check_written_file(options.source("event_log_handler"), spec.path)


def _check_written_file(source: str, path: str) -> None:
    folder = os.path.dirname(path) or "."
    if not path or os.path.isdir(path):
        raise UsageError(f"{source} expects the path of a file, got {quoted(path)}")
    if not os.path.isdir(folder):
        raise UsageError(f"{source} expects a path in an existing directory, got {quoted(path)}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{source} expects a path in a writable directory, got {quoted(path)}")


def _check_log_dir(source: str, path: str) -> None:
    """Refuse a directory that cannot be made or written. It is made later: a dry run leaves no traces."""
    if not path:
        raise UsageError(f"{source} expects a directory, got ''")
    existing = os.path.abspath(path)
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        raise UsageError(f"{source} expects a directory, got {quoted(path)}: {quoted(existing)} is not one")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UsageError(f"{source} expects a writable directory, got {quoted(path)}: {quoted(existing)} is read-only")
