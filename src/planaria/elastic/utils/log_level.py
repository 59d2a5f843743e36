"""The level that loggers have when `LOGLEVEL` does not say."""

from __future__ import annotations


def get_log_level() -> str:
    """Return the name of the default level."""
    return "WARNING"
