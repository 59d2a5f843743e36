"""Events and the standard library's `logging`, in both directions. It costs 15 ms, so only who asked for it imports this."""

from __future__ import annotations

import json
import logging

from planaria.observe.handlers import line_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.observe.handlers import Event, Handler

LOGGER = "planaria.events"


class LoggingHandler:
    """Hands every event to a logger, as one line of JSON; see `level_of`."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def handle(self, event: Event) -> None:
        """Log one event."""
        self._logger.log(level_of(event), "%s", line_of(event))

    def close(self) -> None:
        """Let go of nothing: loggers are the process's."""


def level_of(event: Event) -> int:
    """Return ERROR for a run that failed, WARNING for a worker that did and for a restart, else INFO."""
    metadata = event.get("metadata")
    told = metadata if isinstance(metadata, dict) else {}
    if told.get("outcome", "done") not in ("done", "signal", "stopped"):
        return logging.ERROR
    return logging.WARNING if told.get("result") == "failed" or "total_s" in told else logging.INFO


def own_logger(say: Callable[[str], object], level: str) -> logging.Logger:
    """Return the logger of events; where nobody has set up logging, its records are said like other lines."""
    logger = logging.getLogger(LOGGER)
    if not logger.hasHandlers():
        handler = _SayingHandler(say)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(level if level in logging.getLevelNamesMapping() else logging.INFO)
    return logger


class _SayingHandler(logging.Handler):
    def __init__(self, say: Callable[[str], object]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(self.format(record))


def as_handler(made: Handler | logging.Handler) -> Handler:
    """Return a handler of events for what another package made: one already, or a `logging.Handler`, as torch has them."""
    return _Logged(made) if isinstance(made, logging.Handler) else made


class _Logged:
    """Hands events to a `logging.Handler`: records of one line of JSON."""

    def __init__(self, handler: logging.Handler) -> None:
        self._handler = handler

    def handle(self, event: Event) -> None:
        level = level_of(event)
        if level >= self._handler.level:
            self._handler.handle(logging.LogRecord(LOGGER, level, "", 0, line_of(event), None, None))

    def close(self) -> None:
        self._handler.close()


def as_logging_handler(handler: Handler) -> logging.Handler:
    """Return a `logging.Handler` that hands records which are one line of JSON to a handler of events."""
    return _Unlogged(handler)


class _Unlogged(logging.Handler):
    def __init__(self, handler: Handler) -> None:
        super().__init__()
        self._handler = handler

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        try:
            event = json.loads(text)
        except ValueError:
            event = text
        self._handler.handle(event if isinstance(event, dict) else {"name": record.name, "message": text})

    def close(self) -> None:
        self._handler.close()
        super().close()
