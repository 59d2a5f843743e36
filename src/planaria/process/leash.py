"""One pipe that every worker of an embedded agent hangs on: when its only writer, this process, is gone, they are killed.

The kernel's parent death signal is not enough in somebody else's program: it comes when the thread that forked ends, and
the workers of a fork server are not our children. See `linux.end_with_writers`.
"""

from __future__ import annotations

import os

_ENDS: list[int] = []  # the read end, then the write end, which nobody uses and nobody may inherit


def hold() -> int:
    """Return the end to give to workers; it stays open as long as this process."""
    if not _ENDS:
        _ENDS.extend(os.pipe())
    return _ENDS[0]


def _let_go() -> None:
    """Forget the pipe in a forked child: what it starts itself hangs on itself, and it must not hold up its siblings'."""
    if _ENDS:
        os.close(_ENDS[1])
        _ENDS.clear()


os.register_at_fork(after_in_child=_let_go)
