"""Send this process's stdout or stderr to a file for a while: of Python, of C code and of the programs that it starts."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

__all__ = ["get_libc", "libc", "redirect", "redirect_stderr", "redirect_stdout"]

_VALID_STD = {"stdout": 1, "stderr": 2}


def get_libc() -> ctypes.CDLL:
    """Return the C library of this process."""
    return ctypes.CDLL(None)


libc = get_libc()


@contextmanager
def redirect(std: str, to_file: str) -> Iterator[None]:
    """Redirect `std` ("stdout" or "stderr") to `to_file`, which is overwritten; its folder must exist.

    Raises:
        ValueError: There is no such stream.
    """
    if std not in _VALID_STD:
        raise ValueError(f"unknown standard stream <{std}>, must be one of {set(_VALID_STD)}")
    stream = getattr(sys, std)
    number = _VALID_STD[std] if stream is None else stream.fileno()
    before = _copy(number)
    try:
        with open(to_file, "w+b") as file:
            _switch(std, number, file.fileno())
            try:
                yield
            finally:
                _switch(std, number, before)
    finally:
        if before is not None:
            os.close(before)


def _copy(number: int) -> int | None:
    """Return another descriptor of a file; None for one that was closed, as in a process that was started without stderr.

    Its number is taken then, so that the file that is about to be opened does not get it.
    """
    try:
        return os.dup(number)
    except OSError:
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
        return None


def _switch(std: str, number: int, to: int | None) -> None:
    libc.fflush(ctypes.c_void_p.in_dll(libc, std))  # what C has buffered belongs to where it was printed
    stream = getattr(sys, std)
    if stream is not None:
        stream.flush()
    if to is None:
        os.close(number)
    else:
        os.dup2(to, number)


redirect_stdout = partial(redirect, "stdout")
redirect_stderr = partial(redirect, "stderr")
