"""The destinations of events, by name; several with commas between them.

`null` and `dynamic_rendezvous` drop them, `console` writes them to stderr, `logging` hands them to the logger
`planaria.events`, `jsonl` appends them to the file that `PLANARIA_EVENTS_FILE` names and `jsonl:PATH` to that one,
`prometheus:PATH` counts them in a file for the text file collector of Prometheus' node exporter.
Others come from installed packages, through the entry point group `torchrun.event_handlers`: a function without arguments
that returns a `logging.Handler`, or a class of handlers.
"""

from __future__ import annotations

import logging
import os
from importlib import metadata

from planaria.errors import UsageError
from planaria.observe.handlers import TORCHRUN_GROUP as ENTRY_POINT_GROUP
from planaria.observe.handlers import JsonLinesHandler, PrometheusHandler, Surroundings
from planaria.observe.loggers import LOGGER, as_logging_handler
from planaria.observe.metrics import Registry

EVENTS_FILE = "PLANARIA_EVENTS_FILE"
_JSONL = "jsonl"
_PROMETHEUS = "prometheus"

logger = logging.getLogger(__name__)


class ToLogging(logging.Handler):
    """Hand every event to the logger `planaria.events`, and so to whatever logging the program has set up."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log one event at the level it was recorded with."""
        logging.getLogger(LOGGER).log(record.levelno, "%s", record.getMessage())


class Several(logging.Handler):
    """Hand every event to each of some handlers."""

    def __init__(self, handlers: list[logging.Handler]) -> None:
        super().__init__()
        self._handlers = handlers

    def emit(self, record: logging.LogRecord) -> None:
        """Hand one event to all of them."""
        for handler in self._handlers:
            handler.handle(record)


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
        _log_handlers[destination] = _make(destination)
    return _log_handlers[destination]


def _make(destination: str) -> logging.Handler:
    if "," in destination:
        return Several([get_logging_handler(one.strip()) for one in destination.split(",")])
    kind, _, path = destination.partition(":")
    if kind == _JSONL:
        return _json_lines(path)
    return _prometheus(path) if kind == _PROMETHEUS else _from_a_package(destination)


def _json_lines(path: str) -> logging.Handler:
    path = path or os.environ.get(EVENTS_FILE, "")
    if not path:
        raise ValueError(f"the event handler jsonl expects a file, as in jsonl:PATH or {EVENTS_FILE}=PATH")
    try:
        return as_logging_handler(JsonLinesHandler(path, logger.warning))
    except UsageError as exc:
        raise ValueError(f"the event handler jsonl {exc}") from exc


def _prometheus(path: str) -> logging.Handler:
    if not path:  # `planaria run` has a registry that others read; a program has only the file
        raise ValueError("the event handler prometheus expects a file, as in prometheus:PATH")
    around = Surroundings(logger.info, logger.warning, Registry(), soon=lambda call: call())
    return as_logging_handler(PrometheusHandler(around, path))


def _from_a_package(name: str) -> logging.Handler:
    found = metadata.entry_points(group=ENTRY_POINT_GROUP)
    if name not in found.names:
        known = sorted({*_log_handlers, _JSONL, f"{_JSONL}:PATH", f"{_PROMETHEUS}:PATH", *found.names})
        raise ValueError(f"there is no event handler {name!a}; known are {', '.join(known)}")
    entry = found[name]
    try:
        made = entry.load()()
    except Exception as exc:  # a foreign package: whatever it raises is the answer
        raise ValueError(f"the event handler {name} of {entry.value} cannot be made: {exc}") from exc
    if not isinstance(made, logging.Handler):
        raise ValueError(f"the event handler {name} of {entry.value} is no logging.Handler but {made!a}")
    return made
