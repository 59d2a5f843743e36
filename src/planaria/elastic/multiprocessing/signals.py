"""Turn signals into exceptions, but never in the middle of what must not be left half done."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from planaria.elastic.multiprocessing.start import handled_signals
from planaria.elastic.utils.logging import get_logger

__all__ = ["SignalException", "install_handlers", "undisturbed"]

logger = get_logger(__name__)


class SignalException(Exception):
    """This process was asked to end by `sigval`. Raised in its main thread; whoever catches it should end the workers."""

    def __init__(self, msg: str, sigval: signal.Signals) -> None:
        super().__init__(msg)
        self.sigval = sigval


class _Pending:
    """Signals that came while the main thread was undisturbed. Handlers run in that thread alone, so there is no race."""

    depth = 0
    first: int | None = None


def install_handlers() -> None:
    """Raise `SignalException` for the signals of `TORCHELASTIC_SIGNALS_TO_HANDLE`; only the main thread can ask for it."""
    if threading.current_thread() is not threading.main_thread():
        logger.warning(
            "Failed to register signal handlers since torchelastic is running on a child thread. "
            "This could lead to orphaned worker processes if the torchrun is terminated."
        )
        return
    for name in handled_signals():
        try:
            signal.signal(getattr(signal, name), terminate_process_handler)
        except (AttributeError, ValueError, OSError):
            logger.warning("Failed to register signal handler for %s", name, exc_info=True)


def terminate_process_handler(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001  a handler's signature
    """Raise in the main thread, now or as soon as it may be disturbed."""
    if _Pending.depth:
        _Pending.first = _Pending.first or signum
        return
    _raise(signum)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold signals back: a worker that was started or reaped must also be noted as such."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _Pending.depth += 1
    try:
        yield
    finally:
        _Pending.depth -= 1
    if not _Pending.depth and _Pending.first is not None:
        signum, _Pending.first = _Pending.first, None
        _raise(signum)


def _raise(signum: int) -> None:
    sigval = signal.Signals(signum)
    raise SignalException(f"Process {os.getpid()} got signal: {sigval}", sigval=sigval)
