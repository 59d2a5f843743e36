"""Misbehave when `planaria chaos` asks for it. The start-up file runs this file by its path where PLANARIA_CHAOS is set.

It imports built-in modules only, as the start-up file does; `contract.chaos` says what the orders are.
"""

import _signal  # type: ignore[import-not-found]  # what `signal` is made of, without its imports
import os
import time

ORDER_SIGNAL = 61


def listen(folder: str) -> None:
    """Obey the orders in a folder from now on. A program that takes this signal for itself hears none."""
    _signal.signal(ORDER_SIGNAL, lambda _number, _frame: _obey(f"{folder}/{os.getpid()}"))


def _obey(path: str) -> None:
    try:
        with open(path) as file:
            word, seconds = file.read().split()
        os.unlink(path)
    except (OSError, ValueError):  # it was taken back
        return
    if word == "hang":
        time.sleep(float(seconds))  # noqa: TID251  hanging is what was asked for
    elif word == "hold-gil":
        _hold_gil(float(seconds))


def _hold_gil(seconds: float) -> None:
    import ctypes

    c_library = ctypes.PyDLL(None)  # calls through it keep the GIL
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        c_library.usleep(int(left * 1e6) + 1)  # a signal ends it early
