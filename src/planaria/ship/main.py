"""`fetch_and_run`, and `planaria-entry`, the image's entry point: bring the code here, then become `planaria run` by exec.

After exec there is one process as if the launcher had been started directly: signals and the exit status need no one to
pass them on.
"""

from __future__ import annotations

import os
import sys

from planaria.base.files import tell
from planaria.contract import exit_status
from planaria.errors import PlanariaError, UsageError
from planaria.ship import words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from planaria.ship.fetch import Code, Folder
    from planaria.ship.source import Inside, Local, Stored

_SHOW_AFTER_S = 1.0  # a download that takes longer shows how far it is, on a terminal
_SHOW_EVERY_S = 0.2


def entry(argv: Sequence[str]) -> int:
    """Do as the entry point of the image; return a status only when nothing was started."""
    return _guarded(lambda: _serve(words.entry(argv, os.environ)))


def fetch_and_run(argv: Sequence[str]) -> int:
    """Do as `fetch_and_run`; return a status only when nothing was started."""
    return _guarded(lambda: _serve(words.fetch_and_run(argv, os.environ)))


def _guarded(act: Callable[[], int]) -> int:
    try:
        return act()
    except PlanariaError as problem:
        _say(str(problem))
        return exit_status.of_error(problem)
    except _Terminated:
        return exit_status.by_signal(15)


def _serve(asked: words.Launch | words.Described | words.Typed | words.Help) -> int:
    match asked:
        case words.Launch(argv):
            _become(argv)
        case words.Help():
            tell(1, words.HELP)
            return exit_status.DONE
        case words.Described(path):
            return _run_described(path)
        case words.Typed(source, rest, sha256):
            return _run_typed(source, rest, sha256)
    raise AssertionError("every request is listed")


def _run_described(path: str) -> int:
    from planaria.ship.description import LIMIT_BYTES, decode
    from planaria.ship.source import source_of

    try:
        with open(path, "rb") as file:
            content = file.read(LIMIT_BYTES + 1)
    except OSError as problem:
        raise UsageError(f"{words.JOB} names {path!a}, which cannot be read: {problem.strerror}") from problem
    job = decode(content)
    source = source_of(job.source, inside=True)
    return _run(source, job.script, job.sha256, job.launch, job.argv)


def _run_typed(text: str, rest: tuple[str, ...], sha256: str | None) -> int:
    from planaria.ship.source import Stored, source_of, split_words

    source = source_of(text)
    is_directory = not isinstance(source, Stored) and os.path.isdir(source.path)
    script, argv = split_words(source, is_directory, rest)
    return _run(source, script, sha256, (), argv)


def _run(
    source: Stored | Local | Inside,
    script: str | None,
    sha256: str | None,
    launch: tuple[str, ...],
    argv: tuple[str, ...],
) -> int:
    from planaria.ship.fetch import Folder, code_at, is_packed
    from planaria.ship.source import Stored

    if not isinstance(source, Stored) and not is_packed(source):
        if sha256 is not None:
            raise UsageError(f"{words.SHA256} is the hash of an object or archive, and {source.path!a} is neither")
        _become_code(code_at(source, script), launch, argv)
    folder = Folder(os.path.abspath(os.environ.get("TMPDIR") or "/tmp"))  # noqa: S108  a random name, ours alone
    try:
        with _terminable():
            code = _brought(source, script, sha256, folder)
        _become_code(code, launch, argv)
    except BaseException:
        folder.remove()
        raise


def _brought(source: Stored | Local | Inside, script: str | None, sha256: str | None, folder: Folder) -> Code:
    """Fetch, verify, unpack: in this order."""
    from planaria.ship.fetch import Code, take, unpacked, verify
    from planaria.ship.pack import digest_of
    from planaria.ship.source import Stored

    if not isinstance(source, Stored):
        verify(source.path, digest_of(source.path), sha256)
        return unpacked(source.path, script or "", folder, source.path)
    from planaria.ship.bucket import connect, read

    if sha256 is None:
        _say(
            f"no hash is known of {source.url!a}: it is run as it is now ({words.SHA256} or a job's description pins it)"
        )
    path = os.path.join(folder.path, "packed" if source.is_archive else source.name)
    progress = _Progress(source.name)
    client = connect()
    try:
        found = take(read(client, source, progress.begin), path, progress.show)
    finally:
        progress.end()
        client.close()
    verify(source.url, found, sha256)
    if not source.is_archive:
        return Code(path, None)
    code = unpacked(path, script or "", folder, source.url)
    os.unlink(path)
    return code


class _Terminated(BaseException):
    """SIGTERM came before there was a launcher to hear it."""


class _terminable:  # noqa: N801  used like a function
    """While code is fetched SIGTERM ends us in good order, also as the first process of a container, which ignores it."""

    def __enter__(self) -> None:
        import signal

        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminate)

    def __exit__(self, *_about: object) -> None:
        import signal

        if callable(signal.getsignal(signal.SIGTERM)):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(_number: int, _frame: object) -> NoReturn:
    raise _Terminated


def _become_code(code: Code, launch: tuple[str, ...], argv: tuple[str, ...]) -> NoReturn:
    if code.directory is not None:
        os.chdir(code.directory)
    _become((*launch, code.script, *argv))


def _become(argv: tuple[str, ...]) -> NoReturn:
    """Become `planaria run`. The current directory stays out of the launcher's own imports."""
    environ = {name: value for name, value in os.environ.items() if name not in words.OURS}
    try:
        os.execve(sys.executable, [sys.executable, "-P", "-m", "planaria", "run", *argv], environ)
    except OSError as problem:
        raise UsageError(
            f"cannot start planaria run: {problem.strerror}", hint="are the arguments too long?"
        ) from problem


class _Progress:
    """How far a long download is, on a terminal, in one line that is wiped in the end."""

    def __init__(self, name: str) -> None:
        import time

        self._clock = time.monotonic
        self._name = name
        self._size = 0
        self._next = self._clock() + _SHOW_AFTER_S
        self._shown = False
        self._on = os.isatty(2)

    def begin(self, size: int) -> None:
        """Hear how much there is."""
        self._size = size

    def show(self, taken: int) -> None:
        """Show how much of it is here, not too often."""
        if not self._on or self._clock() < self._next:
            return
        from planaria.base.text import safe_line
        from planaria.ship.limits import mib

        self._next = self._clock() + _SHOW_EVERY_S
        self._shown = True
        tell(2, f"\r\033[Kfetching {safe_line(self._name, 60)}: {mib(taken)} of {mib(self._size)}")

    def end(self) -> None:
        """Wipe the line."""
        if self._shown:
            tell(2, "\r\033[K")


def _say(text: str) -> None:
    tell(2, f"planaria: {text}\n")
