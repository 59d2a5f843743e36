"""The destinations of events, by name.

`null` and `dynamic_rendezvous` drop them, `console` writes them to stderr, `logging` hands them to the logger
`planaria.events`, `jsonl` appends them to the file that `PLANARIA_EVENTS_FILE` names and `jsonl:PATH` to that one.
Others come from installed packages, through the entry point group `torchrun.event_handlers`: a function without arguments
that returns a `logging.Handler`, or a class of handlers.
"""

from __future__ import annotations

import logging
import os
from importlib import metadata

from planaria.errors import UsageError
from planaria.observe.handlers import TORCHRUN_GROUP as ENTRY_POINT_GROUP
from planaria.observe.handlers import JsonLinesHandler
from planaria.observe.loggers import as_logging_handler

EVENTS_FILE = "PLANARIA_EVENTS_FILE"
_JSONL = "jsonl"


class ToLogging(logging.Handler):
    """Hand every event to the logger `planaria.events`, and so to whatever logging the program has set up."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log one event at the level it was recorded with."""
        logging.getLogger("planaria.events").log(record.levelno, "%s", record.getMessage())


_log_handlers: dict[str, logging.Handler] = {
    "console": logging.StreamHandler(),
    "dynamic_rendezvous": logging.NullHandler(),
    "logging": ToLogging(),
    "null": logging.NullHandler(),
}


def get_logging_handler(destination: str = "null") -> logging.Handler:
    """Return the one handler of a destination; it is made at the first call.

    Raises:
        ValueError: There is no such destination, or it cannot be used.
    """
    if destination not in _log_handlers:
        kind, _, path = destination.partition(":")
        _log_handlers[destination] = _json_lines(path) if kind == _JSONL else _from_a_package(destination)
    return _log_handlers[destination]


def _json_lines(path: str) -> logging.Handler:
    path = path or os.environ.get(EVENTS_FILE, "")
    if not path:
        raise ValueError(f"the event handler jsonl expects a file, as in jsonl:PATH or {EVENTS_FILE}=PATH")
    try:
        return as_logging_handler(JsonLinesHandler(path, logging.getLogger(__name__).warning))
    except UsageError as exc:
        raise ValueError(f"the event handler jsonl {exc}") from exc


def _from_a_package(name: str) -> logging.Handler:
    found = metadata.entry_points(group=ENTRY_POINT_GROUP)
    if name not in found.names:
        known = sorted({*_log_handlers, _JSONL, f"{_JSONL}:PATH", *found.names})
        raise ValueError(f"there is no event handler {name!a}; known are {', '.join(known)}")
    entry = found[name]
    try:
        made = entry.load()()
    except Exception as exc:  # a foreign package: whatever it raises is the answer
        raise ValueError(f"the event handler {name} of {entry.value} cannot be made: {exc}") from exc
    if not isinstance(made, logging.Handler):
        raise ValueError(f"the event handler {name} of {entry.value} is no logging.Handler but {made!a}")
    return made
