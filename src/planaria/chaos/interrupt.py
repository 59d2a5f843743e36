"""Ctrl-C and SIGTERM end a campaign once: what is being cleaned up then is not left half done by another."""

from __future__ import annotations

import signal

_BOTH = (signal.SIGINT, signal.SIGTERM)


def listen() -> None:
    """Let the next of them be a KeyboardInterrupt, and those after it nothing."""
    for number in _BOTH:
        signal.signal(number, _interrupt)


def hush() -> None:
    """Let them be nothing from now on."""
    for number in _BOTH:
        signal.signal(number, signal.SIG_IGN)


def _interrupt(_number: int, _frame: object) -> None:
    hush()
    raise KeyboardInterrupt
