"""Turn signals into exceptions, but never in the middle of what must not be left half done.

Two may ask for it: whoever starts a context of its own (`install_handlers`, for good, as in torch) and an agent, for as long
as it runs (`raise_on_signals`). The agent's word counts while both are there.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from planaria.elastic.utils.logging import get_logger

__all__ = [
    "SIGNALS_TO_HANDLE",
    "SignalException",
    "as_exception",
    "install_handlers",
    "raise_on_signals",
    "signals_named",
    "undisturbed",
]

logger = get_logger(__name__)

SIGNALS_TO_HANDLE = "TORCHELASTIC_SIGNALS_TO_HANDLE"
_USUAL = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"


class SignalException(Exception):
    """This process was asked to end by `sigval`. Raised in its main thread; whoever catches it should end the workers."""

    def __init__(self, msg: str, sigval: signal.Signals) -> None:
        super().__init__(msg)
        self.sigval = sigval


class _Main:
    """What the main thread is at. Handlers run in that thread alone, so there is no race."""

    undisturbed = 0
    pending: int | None = None
    agents = 0


def signals_named(environment: Mapping[str, str]) -> tuple[signal.Signals, ...]:
    """Return the signals of `TORCHELASTIC_SIGNALS_TO_HANDLE`, or the usual ones; unknown names are left out, as in torch."""
    found = (getattr(signal, name, None) for name in _names(environment))
    return tuple(one for one in found if isinstance(one, signal.Signals))


def _names(environment: Mapping[str, str]) -> list[str]:
    return [name.strip() for name in environment.get(SIGNALS_TO_HANDLE, _USUAL).split(",")]


def as_exception(number: int) -> SignalException:
    """Return what a run ends with after this signal."""
    sigval = signal.Signals(number)
    return SignalException(f"Process {os.getpid()} got signal: {sigval}", sigval=sigval)


def install_handlers() -> None:
    """Raise `SignalException` for the signals of `TORCHELASTIC_SIGNALS_TO_HANDLE`; only the main thread can ask for it."""
    if not _is_main():
        logger.warning(
            "Failed to register signal handlers since torchelastic is running on a child thread. "
            "This could lead to orphaned worker processes if the torchrun is terminated."
        )
        return
    if _Main.agents:  # it listens already, and puts everything back when it is done
        return
    for name in _names(os.environ):
        try:
            signal.signal(getattr(signal, name), terminate_process_handler)
        except (AttributeError, ValueError, OSError):
            logger.warning("Failed to register signal handler for %s", name, exc_info=True)


def terminate_process_handler(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001  a handler's signature
    """Raise in the main thread, now or as soon as it may be disturbed."""
    if _Main.undisturbed:
        _Main.pending = _Main.pending or signum
        return
    raise as_exception(signum)


@contextmanager
def raise_on_signals(numbers: tuple[signal.Signals, ...]) -> Iterator[None]:
    """Raise `SignalException` in this block when one of the signals comes; afterwards handlers are what they were.

    Once: what stops the workers then must not be interrupted by a manager that is thorough. SIGHUP stays ignored where it
    is (`nohup`). In another thread than the main one nothing is raised.
    """
    if not _is_main():
        yield
        return
    told = False

    def tell(number: int, frame: FrameType | None) -> None:
        nonlocal told
        if not told:
            told = True
            terminate_process_handler(number, frame)

    before = {}
    _Main.agents += 1
    try:
        for number in numbers:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, tell)
        yield
    finally:
        _Main.agents -= 1
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold signals back: a worker that was started or reaped must also be noted as such."""
    if not _is_main():
        yield
        return
    _Main.undisturbed += 1
    try:
        yield
    finally:
        _Main.undisturbed -= 1
        if not _Main.undisturbed and _Main.pending is not None:
            signum, _Main.pending = _Main.pending, None
            raise as_exception(signum)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
