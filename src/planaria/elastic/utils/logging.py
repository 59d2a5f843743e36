"""Loggers whose level comes from the variable `LOGLEVEL`."""

from __future__ import annotations

import inspect
import logging
import os
import warnings

from planaria.elastic.utils.log_level import get_log_level


def get_logger(name: str | None = None) -> logging.Logger:
    """Return the logger of that name, or of the calling module, with the level that `LOGLEVEL` names or WARNING.

    A `LOGLEVEL` that names no level is told of once and ignored: a wrong variable must not keep an import from working.
    """
    logger = logging.getLogger(name or _name_of_caller())
    set_level(logger, get_log_level())
    return logger


def set_level(logger: logging.Logger, default: str) -> None:
    """Give a logger the level that `LOGLEVEL` names, or `default`."""
    wanted = os.environ.get("LOGLEVEL") or default
    try:
        logger.setLevel(int(wanted) if wanted.isdecimal() else wanted)
    except ValueError:
        warnings.warn(f"LOGLEVEL expects a level such as INFO, got {wanted!a}: {default} is used", stacklevel=3)
        logger.setLevel(default)


def _name_of_caller() -> str | None:
    """Return the name of the module that called `get_logger`, or None where the interpreter does not tell."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame.f_back if frame is not None else None
    return frame.f_globals.get("__name__") if frame is not None else None
