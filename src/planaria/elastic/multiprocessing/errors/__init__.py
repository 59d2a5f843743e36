"""How a worker's error reaches its agent, and from there whoever started the agent.

A worker whose main function is decorated with `record` writes an uncaught exception to the file that its agent named in
`TORCHELASTIC_ERROR_FILE`. The agent reads the files of all that failed (`ProcessFailure`), raises `ChildFailedError` with
the first failure as root cause, and, being decorated itself, copies that one file to its own. torch's `record` writes the
same files, so either may be in a worker. `planaria run` needs no decorator: it finds the traceback by itself.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from planaria.contract import error_file as contract
from planaria.elastic.multiprocessing.errors.error_handler import ErrorHandler, read_error_file
from planaria.elastic.multiprocessing.errors.handlers import get_error_handler
from planaria.elastic.utils.logging import get_logger

__all__ = ["ChildFailedError", "ErrorHandler", "ProcessFailure", "get_error_handler", "record"]

logger = get_logger(__name__)

JSON = dict[str, Any]
GlobalRank = int

_NOT_AVAILABLE = "<N/A>"
_WIDEST = 60
_JUST_BELOW_A_SECOND = 0.999_999
_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass
class ProcessFailure:
    """One worker's bad end. `exitcode` is negative for a signal; `message` is a text or torch's object with a traceback.

    What is known comes from `error_file`, whoever wrote it. Without one, or with one that is empty, cut short or no error
    file at all, the message is made up from the exit code and the time is now. `exact_timestamp` is `timestamp` with its
    fraction, from the file's own time: two workers often fail within a second, and the first one is the cause. Who knows
    the time better may set both. `host` is where it failed, if that was not here.
    """

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    error_file_data: JSON = field(init=False)
    message: Any = field(init=False)
    timestamp: int = field(init=False)

    def __post_init__(self) -> None:
        self.error_file_data = {"message": "<NONE>"}
        self.message = ""
        self.host = ""
        self.exact_timestamp = time.time()
        if os.path.isfile(self.error_file):
            self._read()
        else:
            self.error_file = _NOT_AVAILABLE
        self.timestamp = int(self.exact_timestamp)
        if not self.message:
            self._make_up_a_message()

    def signal_name(self) -> str:
        """Return the name of the signal that ended the worker, or `<N/A>`."""
        try:
            return signal.Signals(-self.exitcode).name if self.exitcode < 0 else _NOT_AVAILABLE
        except ValueError:  # a real-time signal has no name
            return _NOT_AVAILABLE

    def timestamp_isoformat(self) -> str:
        """Return the time as YYYY-MM-DD_HH:MM:SS, of this machine's time zone."""
        return datetime.fromtimestamp(self.timestamp).isoformat(sep="_")  # noqa: DTZ006  for people who look at a clock

    def _read(self) -> None:
        found, problem = contract.parse(read_error_file(self.error_file))
        if problem:
            logger.warning("the error file %s %s", self.error_file, problem)
            return
        self.error_file_data = found
        self.message = found["message"]
        self.exact_timestamp = _with_fraction(contract.seconds(found), self.error_file)

    def _make_up_a_message(self) -> None:
        if self.exitcode < 0:
            self.message = f"Signal {-self.exitcode} ({self.signal_name()}) received by PID {self.pid}"
        else:
            self.error_file_data["errorTraits"] = {"category": "system_terminated_error", "retryability": "False"}
            self.message = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"


def _with_fraction(seconds: int, path: str) -> float:
    """Return the time in an error file with the fraction of the file's own, if that is from then and not of a copy."""
    try:
        written = os.stat(path).st_mtime
    except OSError:
        return float(seconds)
    if seconds <= written < seconds + 2:  # the exception may be of the last moment of a second, its file of the next
        return min(written, seconds + _JUST_BELOW_A_SECOND)
    return float(seconds)


def _when(failure: ProcessFailure) -> float:
    """Return the finest time of a failure; `timestamp` counts alone once somebody has changed it."""
    exact = failure.exact_timestamp
    return exact if int(exact) == failure.timestamp else float(failure.timestamp)


class ChildFailedError(Exception):
    """Workers failed: which, how, and which of them first. Raised through `record`, it hands on the first one's file.

    So the scheduler above a launcher is told what went wrong in the training, not that a launcher raised an exception.
    """

    def __init__(self, name: str, failures: dict[GlobalRank, ProcessFailure]) -> None:
        self.name = name
        self.failures = failures
        if not failures:
            raise AssertionError("a ChildFailedError without a failure makes no sense")
        super().__init__(self.format_msg())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (
            self.name,
            self.failures,
        )  # an exception is pickled by its message, which is not our argument

    def get_first_failure(self) -> tuple[GlobalRank, ProcessFailure]:
        """Return the rank that failed first, and how."""
        rank = min(self.failures, key=lambda one: _when(self.failures[one]))
        return rank, self.failures[rank]

    def format_msg(self, boarder_delim: str = "=", section_delim: str = "-") -> str:
        """Return the report that is this exception's message, in torch's layout."""
        title = f"{self.name} FAILED"
        host = socket.getfqdn()
        told = {
            rank: _told(number, rank, failure, host) for number, (rank, failure) in enumerate(self.failures.items())
        }
        width = min(max(len(line) for text in (title, *told.values()) for line in text.split("\n")), _WIDEST)
        border, section = boarder_delim * width, section_delim * width
        cause = told.pop(self.get_first_failure()[0])
        others = list(told.values()) or ["  <NO_OTHER_FAILURES>"]
        return "\n".join(
            [
                "",  # the report starts below the exception's name
                border,
                title,
                section,
                "Failures:",
                *others,
                section,
                "Root Cause (first observed failure):",
                cause,
                border,
            ]
        )


def _told(number: int, rank: int, failure: ProcessFailure, host: str) -> str:
    name = failure.signal_name()
    signal_name = f" ({name})" if name != _NOT_AVAILABLE else ""
    return "\n".join(
        [
            f"[{number}]:",
            f"  time      : {failure.timestamp_isoformat()}",
            f"  host      : {failure.host or host}",
            f"  rank      : {rank} (local_rank: {failure.local_rank})",
            f"  exitcode  : {failure.exitcode} (pid: {failure.pid}) {signal_name}",
            f"  error_file: {failure.error_file}",
            f"  traceback : {_traceback(failure.message)}",
        ]
    )


def _traceback(message: object) -> str:
    """Return the traceback in torch's object, else its message, else the text that there is instead of an object."""
    if not isinstance(message, dict):
        return str(message)
    extra = message.get("extraInfo")
    stack = extra.get("py_callstack") if isinstance(extra, dict) else None
    return str(message.get("message", _NOT_AVAILABLE) if stack is None else stack).replace("\n", "\n  ")


def record(fn: Callable[_P, _R], error_handler: ErrorHandler | None = None) -> Callable[_P, _R | None]:
    """Decorate the main function of a process, once: what it raises is written to the error file and raised on.

    `SystemExit` with status 0 becomes a return of None: for a function worker the end of its function is not the end of its
    process. A `ChildFailedError` is not written down itself: the file of its first failure is copied.
    """
    handler = error_handler or get_error_handler()

    @wraps(fn)
    def recorded(*args: _P.args, **kwargs: _P.kwargs) -> _R | None:
        handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit as exc:
            if exc.code not in (0, None):
                raise
            return None
        except ChildFailedError as exc:
            _hand_on(exc, handler)
            raise
        except Exception as exc:
            handler.record_exception(exc)
            raise

    return recorded


def _hand_on(error: ChildFailedError, handler: ErrorHandler) -> None:
    rank, failure = error.get_first_failure()
    if failure.error_file != _NOT_AVAILABLE:
        handler.dump_error_file(failure.error_file, failure.exitcode)
        return
    logger.info("rank %s FAILED with no error file. Decorate your entrypoint fn with @record for traceback info.", rank)
