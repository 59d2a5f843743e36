"""Write down why a worker failed, in the file that its agent named, in torch's format."""

from __future__ import annotations

import faulthandler
import json
import os
import time
import traceback
import warnings
from typing import Any

from planaria.base.files import write_atomically
from planaria.contract import error_file
from planaria.contract.env import ERROR_FILE
from planaria.elastic.utils.logging import get_logger

__all__ = ["ErrorHandler"]

logger = get_logger(__name__)

LONGEST_TEXT = 40_000  # two texts of 12 bytes a character fit into `contract.error_file.LIMIT_BYTES`


class ErrorHandler:
    """Write an exception to the file in `TORCHELASTIC_ERROR_FILE`; where there is none, log it at level INFO.

    May be subclassed; `initialize` and `record_exception` are there to be overridden. A file appears whole or not at all: an
    agent never finds half of one. What goes wrong in here is warned about and never hides the error that is reported.
    """

    def initialize(self) -> None:
        """Get ready before the code runs whose errors are to be recorded: stacks of all threads at a fatal signal."""
        try:
            if not faulthandler.is_enabled():  # what the bootstrap or the user enabled writes to a better place
                faulthandler.enable(all_threads=True)
        except (OSError, ValueError, RuntimeError) as exc:  # sys.stderr is closed, or no file at all
            warnings.warn(f"Unable to enable fault handler. {type(exc).__name__}: {exc}", stacklevel=2)

    def record_exception(self, e: BaseException) -> None:
        """Write the exception's type, text and traceback, and when it happened."""
        now_ns = time.time_ns()  # before the traceback is made, which takes 10 ms: the order of failures hangs on it
        told = _shortened(f"{type(e).__name__}: {_text_of(e)}")
        trace = _shortened("".join(traceback.format_exception(e)))
        content = error_file.write(told, trace, wall_time_s=now_ns // 10**9)
        path = self._get_error_file_path()
        if path:
            self._write_error_file(path, content.decode(), now_ns)
        else:
            logger.info("no error file defined, to write: %s", content.decode())

    def override_error_code_in_rootcause_data(
        self, rootcause_error_file: str, rootcause_error: dict[str, Any], error_code: int = 0
    ) -> None:
        """Put the exit code into what was read from a child's file: a child that a signal ended could not."""
        if "message" not in rootcause_error:
            logger.warning(
                "child error file (%s) does not have field `message`. \ncannot override error code: %s",
                rootcause_error_file,
                error_code,
            )
        elif isinstance(rootcause_error["message"], str):
            logger.warning(
                "child error file (%s) has a new message format. \nskipping error code override", rootcause_error_file
            )
        else:
            rootcause_error["message"]["errorCode"] = error_code

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
        """Copy a child's error file to our own, with the child's exit code. A file that cannot be read is told as such."""
        found = _read_or_explain(rootcause_error_file)
        if error_code:
            self.override_error_code_in_rootcause_data(rootcause_error_file, found, error_code)
        path = self._get_error_file_path()
        if not path:
            logger.error("no error file defined for parent, to copy child error file (%s)", rootcause_error_file)
            return
        self._rm(path)
        self._write_error_file(path, json.dumps(found))
        logger.info("dumped error file to parent's %s", path)

    def _get_error_file_path(self) -> str | None:
        """Return where to write; None or nothing: nowhere."""
        return os.environ.get(ERROR_FILE)

    def _write_error_file(self, file_path: str, error_msg: str, wall_time_ns: int | None = None) -> None:
        try:
            write_atomically(file_path, error_msg.encode())
            if wall_time_ns is not None and os.path.isfile(file_path):
                # Its own time is the finest there is: torch's format has whole seconds, in which failures tie.
                os.utime(file_path, ns=(wall_time_ns, wall_time_ns))
        except OSError as exc:
            warnings.warn(f"Unable to write error to file. {type(exc).__name__}: {exc}", stacklevel=2)

    def _rm(self, my_error_file: str) -> None:
        """Say what is about to be overwritten: a child that inherited our variable may have written there."""
        if os.path.isfile(my_error_file):
            old, problem = error_file.parse(read_error_file(my_error_file))
            told = json.dumps(old, indent=2) if not problem else f"the file {problem}"
            logger.warning("%s already exists and will be overwritten. Original contents:\n%s", my_error_file, told)


def read_error_file(path: str) -> bytes:
    """Return what there is of an error file, up to the limit; nothing when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(error_file.LIMIT_BYTES)
    except OSError:
        return b""


def _read_or_explain(path: str) -> dict[str, Any]:
    found, problem = error_file.parse(read_error_file(path))
    if not problem:
        return found
    told = f"the error file {path} {problem}"
    logger.warning("%s", told)
    return {"message": {"message": told, "extraInfo": {"py_callstack": told, "timestamp": str(int(time.time()))}}}


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  a broken __str__ is the user's, the report is ours
        return f"<{type(error).__name__} whose text cannot be made>"


def _shortened(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    half = LONGEST_TEXT // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
