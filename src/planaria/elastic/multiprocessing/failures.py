"""Say in torch's shape how a worker failed."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from planaria.base.files import write_atomically
from planaria.contract import error_file
from planaria.contract.failure import Failure
from planaria.elastic.multiprocessing.errors import ProcessFailure

__all__ = ["as_process_failure"]

_OURS_TO_TELL = ("exception", "watchdog")
"""Kinds of which our own record may know more than the worker's error file: a result that cannot be sent, a hang."""


def as_process_failure(told: Failure, path: str) -> ProcessFailure:
    """Return torch's value. What only we know goes into the worker's error file at `path`, if there is none.

    So `record` around the launcher has something to hand on. No path: nothing is written, and the value says it all.
    """
    wall_time = time.time() - (time.monotonic() - told.at)
    content = b""
    if told.kind in _OURS_TO_TELL and not os.path.isfile(path):
        content = error_file.write(told.message, told.traceback, wall_time_s=int(wall_time))
        if path and path != os.devnull:
            with suppress(OSError):  # a full disk must not hide the failure
                write_atomically(path, content)
    failure = ProcessFailure(told.local_rank, told.pid, told.status, path)
    if path and failure.error_file == path:  # it knows the time, too
        return failure
    failure.exact_timestamp = wall_time
    failure.timestamp = int(wall_time)
    if content:
        failure.error_file_data, _ = error_file.parse(content)
        failure.message = failure.error_file_data["message"]
    return failure
