"""Where `record` gets its handler from."""

from __future__ import annotations

from planaria.elastic.multiprocessing.errors.error_handler import ErrorHandler

__all__ = ["get_error_handler"]


def get_error_handler() -> ErrorHandler:
    """Return a new handler of the default kind."""
    return ErrorHandler()
