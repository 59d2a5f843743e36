"""Signals that end a run: which ones, and how they become a `SignalException` in whoever runs an agent."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from planaria.elastic.multiprocessing import SignalException

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

SIGNALS_TO_HANDLE = "TORCHELASTIC_SIGNALS_TO_HANDLE"
_USUAL = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"


def signals_to_handle() -> tuple[signal.Signals, ...]:
    """Return the signals of `TORCHELASTIC_SIGNALS_TO_HANDLE`; what this system does not have is left out, as in torch."""
    named = os.environ.get(SIGNALS_TO_HANDLE, _USUAL).split(",")
    found = (getattr(signal, name.strip(), None) for name in named)
    return tuple(one for one in found if isinstance(one, signal.Signals))


def has_signals() -> bool:
    """Tell whether signals can be handled here: in the main thread only."""
    return threading.current_thread() is threading.main_thread()


def as_exception(number: int) -> SignalException:
    """Return what a run ends with after this signal."""
    sigval = signal.Signals(number)
    return SignalException(f"Process {os.getpid()} got signal: {sigval}", sigval=sigval)


@contextmanager
def raise_on_signals() -> Iterator[None]:
    """Raise `SignalException` in this block when one of the signals comes; afterwards handlers are what they were.

    Once: what stops the workers then must not be interrupted by a manager that is thorough. SIGHUP stays ignored where it
    is (`nohup`). In another thread than the main one nothing is raised.
    """
    if not has_signals():
        yield
        return
    told = False

    def tell(number: int, _frame: FrameType | None) -> None:
        nonlocal told
        if not told:
            told = True
            raise as_exception(number)

    before = {}
    try:
        for number in signals_to_handle():
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, tell)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
