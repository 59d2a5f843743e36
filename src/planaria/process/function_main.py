"""What runs in the worker of a function: call it, send back what it returns, write down how it failed.

    spawn       agent forks, `worker/bootstrap.py` reads the papers     -> answer
    fork        agent forks                                  -> settle  -> answer
    forkserver  multiprocessing's server forks   -> enter    -> settle  -> read the papers -> answer

All three go through `multiprocessing`'s own `Process`, so that queues, locks, finalizers and names are as people know them.
"""

from __future__ import annotations

import os
import sys

from planaria.base.value import Value, replace
from planaria.errors import ResultNotPicklable
from planaria.process import pickling
from planaria.process.command import BOOTSTRAP
from planaria.process.spawn import enter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Protocol

    from planaria.process.spawn import Start

    class Lent(Protocol):
        """A descriptor on its way through a fork server."""

        def detach(self) -> int:
            """Return its number in this process."""


DUMP_STACKS = 62  # `contract.blackbox` has the same number; it is not imported for one
LENGTH_BYTES = 8
_PIECE = 1 << 20


class Ends(Value):
    """What a worker needs to answer: the pipe for its result, its black box, and its rank, for messages."""

    result_fd: int
    black_box_fd: int
    rank: int


def answer(function: Callable[..., object], args: tuple[object, ...], ends: Ends) -> None:
    """Call the function and send what it returns. Leaving with status 0 is a good end, and returns None."""
    _watched(lambda: function(*args), ends)


def settle(start: Start) -> None:
    """Make a forked interpreter what a fresh one would be: its environment, its streams, its fault handler."""
    os.environ.clear()
    os.environ.update(start.environment)
    for name, descriptor, number in (("stdout", start.stdout_fd, 1), ("stderr", start.stderr_fd, 2)):
        if descriptor is not None:  # the caller's may be a notebook's, or buffered
            setattr(sys, name, open(number, "w", buffering=1, errors="backslashreplace", closefd=False))  # noqa: SIM115
    import faulthandler

    if not os.environ.get("PYTHONFAULTHANDLER"):
        faulthandler.enable(file=start.black_box_fd)
    faulthandler.register(DUMP_STACKS, file=start.black_box_fd)


def serve(start: Start, ends: Ends, lent: dict[str, Lent]) -> None:
    """Be the worker in a process that a fork server made; the descriptors of `start` and `ends` are those of `lent` here."""
    here = {name: handle.detach() for name, handle in lent.items()}
    papers = here.pop("papers")
    ends = replace(ends, result_fd=here.pop("result_fd"), black_box_fd=here["black_box_fd"])
    start = replace(start, **here)

    def call() -> object:
        enter(start, os.getppid(), is_lasting=True)
        settle(start)
        function, args = _read_papers(papers)
        return function(*args)

    _watched(call, ends)


def _read_papers(papers: int) -> tuple[Callable[..., object], tuple[object, ...]]:
    """Import the caller's main module as `multiprocessing` does, then the function and its arguments.

    Only now, with the worker's own environment: that module may look at it.
    """
    import pickle
    from multiprocessing import process, spawn

    here = process.current_process()
    here._inheriting = True  # type: ignore[attr-defined]  # noqa: SLF001  its own mark for what is read now
    try:
        with open(papers, "rb") as source:
            spawn.prepare(pickle.load(source))  # noqa: S301  the agent wrote it for us alone
            function, args = pickle.load(source)  # noqa: S301
    finally:
        del here._inheriting  # type: ignore[attr-defined]  # noqa: SLF001
    return function, args


def _watched(call: Callable[[], object], ends: Ends) -> None:
    worker = os.getpid()
    os.set_inheritable(ends.result_fd, False)
    try:
        value = _value_of(call)
        if os.getpid() == worker:  # a copy that the function forked and let return has nothing to answer
            _send(value, ends)
    except BaseException as error:
        if os.getpid() == worker:
            _record(ends.black_box_fd, error)
        raise


def _value_of(call: Callable[[], object]) -> object:
    try:
        return call()
    except SystemExit as leaving:
        if leaving.code is None or (type(leaving.code) is int and leaving.code == 0):
            return None
        raise


def _send(value: object, ends: Ends) -> None:
    try:
        data = pickling.dump(value)
    except pickling.NotPicklable as problem:
        raise ResultNotPicklable(
            f"the return value of rank {ends.rank}, {problem}", hint="return plain data, or None"
        ) from None
    _write(ends.result_fd, len(data).to_bytes(LENGTH_BYTES, "little"))
    for at in range(0, len(data), _PIECE):
        _write(ends.result_fd, memoryview(data)[at : at + _PIECE])
    os.close(ends.result_fd)


def _write(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of it, waiting for the agent to read: its loop does, whatever else it waits for."""
    written = 0
    while written < len(data):
        written += os.write(descriptor, data[written:])


def _record(black_box: int, error: BaseException) -> None:
    """Write the error into the black box, with the recorder that other workers load from the same file."""
    recorder: dict[str, Callable[[int, BaseException, TracebackType | None], None]] = {}
    path = os.path.join(os.path.dirname(BOOTSTRAP), "crash.py")
    with open(path, "rb") as file:
        exec(compile(file.read(), path, "exec", dont_inherit=True), recorder)  # noqa: S102  our own file
    recorder["record"](black_box, error, _without_our_frames(error.__traceback__))


def _without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace
