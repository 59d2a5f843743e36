"""A whole screen that is drawn again and again: plain ANSI, restored however it ends."""

from __future__ import annotations

import contextlib
import os
import select
import termios
import time
import tty

from planaria.base import signals
from planaria.base.files import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planaria.insight.model import RunSeen

ENTER = "\x1b[?1049h\x1b[?25l"  # the other screen, without a cursor
LEAVE = "\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_ENDING = (signals.SIGTERM, signals.SIGHUP)


class _Told(Exception):
    """A signal asked us to end."""


class _HungUp(Exception):
    """There is no terminal any more."""


def watch(
    run: RunSeen,
    look: Callable[[], RunSeen],
    draw: Callable[[RunSeen, tuple[int, int]], Sequence[str]],
    every_s: float,
) -> RunSeen | None:
    """Draw a run, and what is seen of it then, until somebody types q or Ctrl-C, hangs up, or it is over.

    Returns what was seen last, where there is somebody to read it.
    """
    before = termios.tcgetattr(0)
    handlers = {number: signals.set_handler(number, _end) for number in _ENDING}
    try:
        tty.setcbreak(0)
        tell(1, ENTER)
        while True:
            rows = draw(run, _size())
            tell(1, HOME + "".join(f"{row}{CLEAR_LINE}\n" for row in rows) + CLEAR_BELOW)
            if run.is_past or _has_ended(every_s):
                return run
            run = look()
    except (KeyboardInterrupt, _Told, _HungUp):
        return None
    finally:
        with contextlib.suppress(termios.error):  # nobody is left whose terminal it would be
            termios.tcsetattr(0, termios.TCSADRAIN, before)
        tell(1, LEAVE)
        for number, handler in handlers.items():
            signals.set_handler(number, handler)


def _end(_number: int, _frame: object) -> None:
    raise _Told


def _size() -> tuple[int, int]:
    """Return columns and rows that may be drawn on."""
    try:
        size = os.get_terminal_size(1)
    except OSError:
        raise _HungUp from None
    return size.columns or 80, max(1, (size.lines or 24) - 1)


def _has_ended(within_s: float) -> bool:
    """Wait for the next look; tell whether somebody typed q."""
    until = time.monotonic() + within_s
    while (left_s := until - time.monotonic()) > 0:
        if not select.select([0], [], [], left_s)[0]:
            return False
        try:
            typed = os.read(0, 64)
        except OSError:
            raise _HungUp from None
        if not typed:
            raise _HungUp
        if b"q" in typed or b"Q" in typed:
            return True
    return False
