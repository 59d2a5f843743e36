"""Start a function in a process of its own, by spawn, fork or fork server, and never wait for that process.

`multiprocessing` does this too, but hands over only after its child has imported the caller's main module: without the
worker's environment, session and streams, and with a caller that blocks while large arguments are read. So the papers (what
to import, the function, its arguments) lie in an anonymous file from the start, and the rest is its own machinery.
"""

from __future__ import annotations

import os
from multiprocessing import context, forkserver, popen_forkserver, popen_spawn_posix, reduction, spawn, util
from multiprocessing.resource_tracker import getfd

from planaria.base.value import Value, replace
from planaria.errors import UsageError
from planaria.process import pickling
from planaria.process import spawn as starting
from planaria.process.command import BOOTSTRAP
from planaria.process.function_main import answer, serve, settle
from planaria.process.leash import hold

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.process import BaseProcess
    from types import ModuleType
    from typing import Self

    from planaria.process.function_main import Ends
    from planaria.process.model import Call
    from planaria.process.spawn import Start

_MAIN = ("init_main_from_name", "init_main_from_path")


class Started(Value):
    """A worker that runs. `status_fd` brings the end of one that is a fork server's child; `held_fd` is to stay open."""

    pid: int
    status_fd: int | None = None
    held_fd: int | None = None


def start_function(call: Call, start: Start, ends: Ends) -> Started:
    """Start one worker. `start.argv` is only its name.

    Raises:
        UsageError: The function or an argument cannot be pickled; nothing was started.
        OSError: The system is out of processes, memory or descriptors.
    """
    start = replace(start, leash_fd=hold())
    match call.start_method:
        case "spawn":
            return _by_spawn(call, start, ends)
        case "fork":
            return _by_fork(call, start, ends)
        case "forkserver":
            return _by_server(call, start, ends)
        case other:
            raise UsageError(f"start_method expects one of spawn, fork, forkserver, got {other!r}")


class _Lender:
    """What `multiprocessing` asks, while it pickles queues, locks and connections, to take descriptors along."""

    def __init__(self, kind: ModuleType) -> None:
        self.DupFd = kind._DupFd  # noqa: SLF001  the name that reduction.DupFd looks for
        self.fds: list[int] = []
        self._by_index = kind is popen_forkserver

    def duplicate_for_child(self, fd: int) -> int:
        """Return how the worker will find this descriptor: by its number, or by its place in the list."""
        self.fds.append(fd)
        return len(self.fds) - 1 if self._by_index else fd

    def __enter__(self) -> Self:
        context.set_spawning_popen(self)  # type: ignore[arg-type]  # it needs no more than this of one
        return self

    def __exit__(self, *_: object) -> None:
        context.set_spawning_popen(None)


def _by_spawn(call: Call, start: Start, ends: Ends) -> Started:
    with _Lender(popen_spawn_posix) as lender:
        process = context.SpawnProcess(target=answer, args=(call.function, call.args, ends))
        papers = _papers(_dumped(spawn.get_preparation_data(process.name)), _dumped_call(call, ends, process))
    try:
        tracker, leash = getfd(), hold()
        own = (ends.black_box_fd, ends.result_fd, papers, tracker, leash)
        words = (ends.black_box_fd, "function", papers, tracker, leash)
        python = (interpreter(), *util._args_from_interpreter_flags(), "-u")  # type: ignore[attr-defined]  # noqa: SLF001
        argv = (*python, BOOTSTRAP, *map(str, words))
        return Started(starting.spawn(replace(start, argv=argv, kept_fds=(*own, *lender.fds))))
    finally:
        os.close(papers)


def interpreter() -> str:
    """Return the interpreter of spawned workers: in a program that embeds Python it is not `sys.executable`."""
    return os.fsdecode(spawn.get_executable())


def _by_fork(call: Call, start: Start, ends: Ends) -> Started:
    process = context.ForkProcess(target=answer, args=(call.function, call.args, ends))
    util._flush_std_streams()  # type: ignore[attr-defined]  # noqa: SLF001  what is buffered is the caller's to write

    def main() -> int:
        settle(start)
        return _bootstrap(process, start.leash_fd)

    return Started(starting.fork(start, main))


def _by_server(call: Call, start: Start, ends: Ends) -> Started:
    with _Lender(popen_forkserver) as lender:
        prepared = spawn.get_preparation_data("worker")
        main = {name: prepared.pop(name) for name in _MAIN if name in prepared}
        papers = _papers(_dumped(main), _dumped_call(call, ends, (call.function, call.args)))
        lent = {"papers": reduction.DupFd(papers), "result_fd": reduction.DupFd(ends.result_fd)}
        for name in ("black_box_fd", "stdout_fd", "stderr_fd", "leash_fd"):
            if getattr(start, name) is not None:
                lent[name] = reduction.DupFd(getattr(start, name))
        process = context.ForkServerProcess(target=serve, args=(start, ends, lent))
        prepared["name"] = process.name
        words = _dumped(prepared) + _dumped(process)
    try:
        status_fd, tell = forkserver.connect_to_new_process(lender.fds)
    finally:
        os.close(papers)
    held = os.dup(tell)  # as long as it is open, the worker's `parent_process()` is alive
    with open(tell, "wb") as told:
        told.write(words)
    return Started(forkserver.read_signed(status_fd), status_fd, held)


def _bootstrap(process: BaseProcess, leash: int | None) -> int:
    status: int = process._bootstrap(parent_sentinel=leash)  # type: ignore[attr-defined]  # noqa: SLF001  what `start` calls
    return status


def _dumped(item: object) -> bytes:
    return bytes(reduction.ForkingPickler.dumps(item))


def _papers(*parts: bytes) -> int:
    """Return an anonymous file to be read from its beginning."""
    papers = os.memfd_create("planaria-papers", os.MFD_CLOEXEC)
    with open(papers, "wb", closefd=False) as file:
        file.writelines(parts)
    os.lseek(papers, 0, os.SEEK_SET)
    return papers


def _dumped_call(call: Call, ends: Ends, item: object) -> bytes:
    """Pickle what holds the call; on failure say which part of the call it was: pickle names only the innermost type."""
    try:
        return _dumped(item)
    except Exception as refused:
        parts = [
            ("the function", _inner(call.function)),
            *((f"argument {at}", item) for at, item in enumerate(call.args)),
        ]
        for what, part in parts:
            try:
                pickling.guarded(_dumped, part)
            except pickling.NotPicklable as problem:
                raise UsageError(
                    f"{what} of rank {ends.rank}: {problem}",
                    hint=f"{call.start_method} sends it to another process: define it at the top of a module, or use fork",
                ) from refused
        raise


def _inner(function: Callable[..., object]) -> object:
    """Look through a wrapper that is no function itself: people know what they wrote."""
    return function if hasattr(function, "__qualname__") else getattr(function, "__wrapped__", function)
