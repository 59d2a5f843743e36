"""Start workers and wait for them, under the names of `torch.distributed.elastic.multiprocessing`.

    def trainer(a, b):
        ...

    context = start_processes(
        name="trainer",
        entrypoint=trainer,
        args={0: (1, 2), 1: (3, 4)},
        envs={0: {"LOCAL_RANK": "0"}, 1: {"LOCAL_RANK": "1"}},
        logs_specs=DefaultLogsSpecs(log_dir="logs", redirects=Std.ALL, tee={0: Std.ERR}),
    )
    result = context.wait()

A door over `planaria.process`, which knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planaria.elastic.multiprocessing.api import (
    DefaultLogsSpecs,
    LogsDest,
    LogsSpecs,
    MultiprocessContext,
    PContext,
    RunProcsResult,
    SignalException,
    Std,
    SubprocessContext,
    _validate_full_rank,
    to_map,
)
from planaria.elastic.multiprocessing.errors import ProcessFailure

__all__ = [
    "DefaultLogsSpecs",
    "LogsDest",
    "LogsSpecs",
    "MultiprocessContext",
    "PContext",
    "ProcessFailure",
    "RunProcsResult",
    "SignalException",
    "Std",
    "SubprocessContext",
    "start_processes",
    "to_map",
]


def start_processes(  # noqa: PLR0917  torch's signature
    name: str,
    entrypoint: Callable[..., Any] | str,
    args: dict[int, tuple[Any, ...]],
    envs: dict[int, dict[str, str]],
    logs_specs: LogsSpecs,
    log_line_prefixes: dict[int, str] | None = None,
    start_method: str = "spawn",
    numa_options: Any = None,
    duplicate_stdout_filters: list[str] | None = None,
    duplicate_stderr_filters: list[str] | None = None,
) -> PContext:
    """Start a worker for each local rank, 0 up to the number of `args`: a function, or a program if `entrypoint` is a text.

    `name` stands before each line that is shown. A function's exception is in its error file as if it were decorated with
    `record`; a program's is only if it is. The arguments of a program are made texts.

    Raises:
        RuntimeError: `args` or `envs` leave out a local rank.
        UsageError: A function or an argument cannot be pickled.
        FileNotFoundError: There is no such program.
    """
    context = new_context(
        entrypoint,
        start_method,
        name=name,
        args=args,
        envs=envs,
        logs_specs=logs_specs,
        log_line_prefixes=log_line_prefixes,
        numa_options=numa_options,
        duplicate_stdout_filters=duplicate_stdout_filters,
        duplicate_stderr_filters=duplicate_stderr_filters,
    )
    return started(context)


def new_context(entrypoint: Callable[..., Any] | str, start_method: str, **common: Any) -> PContext:
    """Return the context that `start_processes` starts, which has its other arguments by their names; see there."""
    _validate_full_rank(common["args"], len(common["args"]), "args")
    _validate_full_rank(common["envs"], len(common["args"]), "envs")
    if isinstance(entrypoint, str):
        return SubprocessContext(entrypoint=entrypoint, **common)
    return MultiprocessContext(entrypoint=entrypoint, start_method=start_method, **common)


def started(context: PContext) -> PContext:
    """Start the workers of a context. If one cannot be started, those before it have `close_timeout` to end."""
    try:
        context.start()
    except BaseException:
        context.close(timeout=context.close_timeout)
        raise
    return context
