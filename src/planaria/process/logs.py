"""Where each worker's output and error file go: torchrun's folders, and nothing ever deleted from them.

<log_dir>/<run_id>_<random>/attempt_<n>/<local_rank>/{stdout.log,stderr.log,error.json}
<log_dir>/<run_id>_<random>/attempt_<n>/filtered_{stdout,stderr}.log
"""

from __future__ import annotations

import errno
import os

from planaria.base.value import Value, replace
from planaria.errors import InternalError, ProcessError, UsageError
from planaria.process.model import DEV_NULL, NO_STREAM, STDERR, STDOUT, LogSettings, StreamMask
from planaria.process.tee import PIPE_BYTES, open_pipe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Literal, Protocol

    from planaria.contract.env import Round

    StreamKind = Literal["inherit", "file", "pipe", "null"]

    class Logs(Protocol):
        """Where the streams of workers go: our folders (`RunLogs`), or those of somebody's own plan."""

        @property
        def announce(self) -> str | None:
            """Return a folder that the user did not name and should be told of."""

        @property
        def is_kept(self) -> bool:
            """Tell whether the files are still there when the run is over."""

        def begin_life(self, life: Round) -> None:
            """Get ready for the workers of a life."""

        def open_streams(self, local_rank: int) -> Streams:
            """Open what one of them writes to."""


EVIDENCE = "evidence"
"""The folder of what was found when workers hung."""
_PUBLIC, _PRIVATE = 0o755, 0o700
_NAMES = {STDOUT: "stdout", STDERR: "stderr"}
_LONGEST_RUN_ID = 100  # a file name has 255 bytes, and ours adds a random part
_ALL_PIPES_BYTES = (
    16 << 20
)  # a quarter of what one user may have (pipe-user-pages-soft), whose other pipes shrink after


def open_logs(settings: LogSettings, run_id: str, scratch_dir: str, *, temp_dir: str, local_world_size: int) -> Logs:
    """Open the logs of a run: our own folders, unless the user has a plan of another package's.

    Raises:
        UsageError: A folder cannot be made.
    """
    if settings.plan is not None:
        return settings.plan(settings)
    return RunLogs(settings, run_id, scratch_dir, temp_dir=temp_dir, local_world_size=local_world_size)


class Stream(Value):
    """One stream of one worker.

    `inherit`: the launcher's own. `file`: the worker writes `worker_fd` itself. `pipe`: it writes `worker_fd`, a `Tee`
    reads `read_fd`, and takes over `log_fd` and `filtered_fd`. `null`: `worker_fd` is `/dev/null`. A pipe that is there only to
    be read is not shown, or shown as it is, without a prefix.
    """

    kind: StreamKind = "inherit"
    worker_fd: int | None = None
    read_fd: int | None = None
    log_fd: int | None = None
    log_path: str | None = None
    filters: tuple[bytes, ...] = ()
    filtered_fd: int | None = None
    is_shown: bool = True
    has_prefix: bool = True


class Streams(Value):
    """Both streams of one worker, and the path of its error file: empty when no files are wanted.

    `variables` are what whoever planned them wants in the worker's environment.
    """

    stdout: Stream
    stderr: Stream
    error_file: str
    variables: Mapping[str, str] = {}

    def close_worker_ends(self) -> None:
        """Close what only the worker needs, once it has it; else a pipe would never end."""
        _close(stream.worker_fd for stream in (self.stdout, self.stderr))

    def close(self) -> None:
        """Close everything, when the worker could not be started."""
        self.close_worker_ends()
        _close(fd for one in (self.stdout, self.stderr) for fd in (one.read_fd, one.log_fd, one.filtered_fd))


class RunLogs:
    """The folders of one run on this node. `announce`: a folder the user did not name and should be told of, once.

    Raises:
        UsageError: The log directory cannot be made.
    """

    def __init__(
        self,
        settings: LogSettings,
        run_id: str,
        scratch_dir: str,
        *,
        temp_dir: str = "/tmp",  # noqa: S108  # the caller passes $TMPDIR; the folder made in it has a random name
        local_world_size: int = 8,
    ) -> None:
        self._settings = settings
        self._scratch_dir = scratch_dir
        self._pipe_bytes = min(PIPE_BYTES, _ALL_PIPES_BYTES // (2 * max(local_world_size, 1)))
        self._life = ""
        self._mode = _PUBLIC
        self.announce: str | None = None
        self.directory: str | None = None
        if settings.log_dir == DEV_NULL:
            return
        if settings.log_dir is not None:
            self.directory = _make_run_folder(os.path.abspath(settings.log_dir), folder_name(run_id))
        elif writes_files(settings):
            self.directory = self.announce = _make_run_folder(temp_dir, f"planaria_{folder_name(run_id)}", _PRIVATE)
        else:
            self.directory = scratch_dir
            self._mode = _PRIVATE

    @property
    def is_kept(self) -> bool:
        """Tell whether the files are still there when the run is over, so that naming them helps."""
        return self.directory is not None and self.directory != self._scratch_dir

    def begin_life(self, life: Round) -> None:
        """Give the workers started from now on a folder of their own, also when this attempt had one already."""
        if self.directory is not None:
            self._life = make_attempt_folder(self.directory, life.restart_count, self._mode)

    def open_streams(self, local_rank: int) -> Streams:
        """Open what one worker of the life that was begun last writes to. Once a life and worker.

        Raises:
            ProcessError: A file or folder could not be made; nothing is left open.
        """
        folder = self._worker_folder(local_rank)
        error_file = os.path.join(folder, "error.json") if folder else ""
        return open_both(
            lambda which, opened: self._open_stream(which, local_rank, folder, opened), local_rank, error_file
        )

    def _worker_folder(self, local_rank: int) -> str:
        if self.directory is None:
            return ""
        folder = os.path.join(self._life, str(local_rank))
        if not _make(folder, self._mode):
            raise InternalError(f"local rank {local_rank} was opened twice in {self._life}")
        return folder

    def _open_stream(self, which: int, local_rank: int, folder: str, opened: list[int]) -> Stream:
        name = f"{_NAMES[which]}.log"
        where = Destination(
            stream_kind(self._settings, which, local_rank),
            path=os.path.join(folder, name) if folder else None,
            filters=self._settings.stdout_filters if which == STDOUT else self._settings.stderr_filters,
            filtered_path=os.path.join(os.path.dirname(folder), f"filtered_{name}") if folder else None,
        )
        if self._settings.reads_lines and where.kind != "pipe":
            return self._open_to_read(where, opened)
        return open_stream(where, self._pipe_bytes, opened)

    def _open_to_read(self, where: Destination, opened: list[int]) -> Stream:
        """Open a pipe for a stream that would not come through here, and let it go where it would have gone."""
        path = where.path if where.kind == "file" else None
        stream = open_stream(Destination("pipe", path), self._pipe_bytes, opened)
        return replace(stream, is_shown=where.kind == "inherit", has_prefix=False)


class Destination(Value):
    """Where one stream of one worker is to go: see `Stream`. Lines with any of `filters` go to `filtered_path` too."""

    kind: StreamKind
    path: str | None = None
    filters: tuple[str, ...] = ()
    filtered_path: str | None = None


def open_both(open_one: Callable[[int, list[int]], Stream], local_rank: int, error_file: str) -> Streams:
    """Open both streams of a worker with `open_one(which, opened)`, or neither.

    Raises:
        ProcessError: A file could not be opened; nothing is left open.
    """
    opened: list[int] = []
    try:
        return Streams(open_one(STDOUT, opened), open_one(STDERR, opened), error_file)
    except OSError as exc:
        _close(opened)
        raise _refused(f"cannot open the logs of local rank {local_rank}", exc) from exc


def open_stream(where: Destination, pipe_bytes: int, opened: list[int]) -> Stream:
    """Open what a stream needs; files are appended to. Descriptors are added to `opened` as they come.

    Raises:
        OSError: The caller closes what is in `opened`.
    """
    if where.kind == "inherit":
        return Stream()
    if where.kind == "null":
        opened.append(os.open(DEV_NULL, os.O_WRONLY | os.O_CLOEXEC))
        return Stream(where.kind, worker_fd=opened[-1])
    log_fd = _append_to(where.path, opened) if where.path else None
    if where.kind == "file":
        return Stream(where.kind, worker_fd=log_fd, log_path=where.path)
    filters = tuple(os.fsencode(text) for text in where.filters)
    filtered_fd = _append_to(where.filtered_path, opened) if filters and where.filtered_path else None
    read_fd, write_fd = open_pipe(pipe_bytes)
    opened += (read_fd, write_fd)
    return Stream(where.kind, write_fd, read_fd, log_fd, where.path, filters, filtered_fd)


def make_attempt_folder(run_folder: str, attempt: int, mode: int = _PUBLIC) -> str:
    """Make `attempt_<n>`, or `attempt_<n>.2` and so on: rounds that are no restarts have the same number."""
    first = path = os.path.join(run_folder, f"attempt_{attempt}")
    count = 1
    while not _make(path, mode):
        count += 1
        path = f"{first}.{count}"
    return path


def _make(folder: str, mode: int) -> bool:
    """Make a folder; False when there is one already, which is then left alone."""
    try:
        os.mkdir(folder, mode)
    except FileExistsError:
        return False
    except OSError as exc:
        raise _refused(f"cannot make the log folder {folder}", exc) from exc
    return True


def stream_kind(settings: LogSettings, which: int, local_rank: int) -> StreamKind:
    """Decide what becomes of one stream of one worker.

    As torchrun: what is tee'd is in a file too, a rank that is not shown is still written to its file, an empty list
    of shown ranks shows all, and `--redirects` without files (`--log-dir /dev/null`) shows the stream instead.
    """
    is_shown = not settings.shown_ranks or local_rank in settings.shown_ranks
    is_teed = settings.tee.of(local_rank) & which != 0
    if is_teed and is_shown:
        return "pipe"
    has_files = settings.log_dir != DEV_NULL
    if has_files and (is_teed or settings.redirects.of(local_rank) & which):
        return "file"
    return "inherit" if is_shown else "null"


def folder_name(run_id: str) -> str:
    """Return `run_id` as part of a folder name: plain characters only, no `..`, bounded, never empty."""
    plain = "".join(char if char.isascii() and (char.isalnum() or char in "._-+=@:,") else "_" for char in run_id)
    return plain.replace("..", "__").lstrip(".")[:_LONGEST_RUN_ID] or "run"


def evidence_dir(run_folder: str | None, logs: Logs, temp_dir: str, run_id: str) -> str:
    """Return where folders of evidence go: into the run's folder or that of logs that are kept, else where they outlive it."""
    kept = run_folder or (getattr(logs, "directory", None) if logs.is_kept else None)
    if kept is not None:
        return os.path.join(kept, EVIDENCE)
    return os.path.join(temp_dir, f"planaria_evidence_{folder_name(run_id)}_{os.urandom(4).hex()}")


def _make_run_folder(parent: str, name: str, mode: int = _PUBLIC) -> str:
    while True:
        path = os.path.join(parent, f"{name}_{os.urandom(4).hex()}")
        try:
            os.makedirs(parent, _PUBLIC, exist_ok=True)
            os.mkdir(path, mode)
        except FileExistsError:
            if not os.path.isdir(parent):
                raise UsageError(f"--log-dir {parent} is a file", hint="name a directory") from None
        except OSError as exc:
            raise UsageError(
                f"cannot make a log folder in {parent}: {os.strerror(exc.errno or 0)}",
                hint="name a directory you may write to with --log-dir",
            ) from exc
        else:
            return path


def _append_to(path: str, opened: list[int]) -> int:
    opened.append(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644))
    return opened[-1]


def _refused(what: str, exc: OSError) -> ProcessError:
    hint = "raise the limit of open files (ulimit -n)" if exc.errno in (errno.EMFILE, errno.ENFILE) else ""
    return ProcessError(f"{what}: {os.strerror(exc.errno or 0)}", hint=hint)


def writes_files(settings: LogSettings) -> bool:
    """Tell whether the output of any worker goes to a file."""
    return _names_any(settings.redirects) or _names_any(settings.tee)


def _names_any(mask: StreamMask) -> bool:
    return any(streams != NO_STREAM for _, streams in mask.by_rank) if mask.by_rank else mask.every != NO_STREAM


def _close(descriptors: Iterable[int | None]) -> None:
    for fd in descriptors:
        if fd is not None:
            os.close(fd)
