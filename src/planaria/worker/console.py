"""Where the worker library's own lines go: to stderr, if there is one."""

from __future__ import annotations

import sys


def show(text: str) -> None:
    """Write to this process's stderr, at once.

    A process may have none (`2>&-`, a daemon), may have closed it, or nobody reads it any more. A line that cannot be shown is
    no reason to end a training: it is lost.
    """
    stream = sys.stderr
    if stream is None:
        return
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):  # ValueError: it is closed
        return
