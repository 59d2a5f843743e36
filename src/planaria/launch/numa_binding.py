"""Bind the workers of an embedded agent to CPUs: what `LaunchConfig.numa_options` takes, as torch's `torch.numa.binding`.

An agent asks the module that its options come from to wrap what it starts; so torch's own options work too, and the rooms
below need not know how CPUs are chosen. `planaria run` binds its workers itself and does not come here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from planaria.errors import UsageError
from planaria.launch.numa import cpu_sets, read_topology

__all__ = ["AffinityMode", "NumaOptions"]

_BIND = (
    "import os, sys; os.sched_setaffinity(0, map(int, sys.argv[1].split(','))); os.execvp(sys.argv[2], sys.argv[2:])"
)


class AffinityMode(str, Enum):  # noqa: UP042  torch's kind of enum
    """Which CPUs a worker may use: those of its GPU's NUMA node or socket, a share of its own, or those of one cache."""

    NODE = "node"
    SOCKET = "socket"
    EXCLUSIVE = "exclusive"
    CORE_COMPLEX = "core-complex"


@dataclass(frozen=True)
class NumaOptions:
    """A mode, and whether a worker whose CPUs cannot be chosen starts all the same."""

    affinity_mode: AffinityMode
    should_fall_back_if_binding_fails: bool = False


def _maybe_wrap_command_args_with_numa_binding(
    command_args: tuple[str, ...], *, gpu_index: int, numa_options: NumaOptions | None
) -> tuple[str, ...]:
    """Return a command that starts the given one on the CPUs of that GPU."""
    cpus = _cpus(gpu_index, numa_options)
    if not cpus:
        return command_args
    listed = ",".join(map(str, sorted(cpus)))
    return (sys.executable, "-I", "-S", "-c", _BIND, listed, *command_args)


def _maybe_wrap_with_numa_binding(
    func: Callable[..., Any], *, gpu_index: int, numa_options: NumaOptions | None
) -> Callable[..., Any]:
    """Return a function, one that can be pickled if `func` can, that calls the given one on the CPUs of that GPU."""
    cpus = _cpus(gpu_index, numa_options)
    return partial(_call_on, cpus, func) if cpus else func


def _call_on(cpus: frozenset[int], func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    os.sched_setaffinity(0, cpus)
    return func(*args, **kwargs)


def _cpus(gpu_index: int, options: NumaOptions | None) -> frozenset[int]:
    if options is None:
        return frozenset()
    mode = AffinityMode(options.affinity_mode).value
    try:
        environ = os.environ  # noqa: TID251  where torch reads it
        topology = read_topology(mode, environ, frozenset(os.sched_getaffinity(0)))
        return cpu_sets(mode, gpu_index + 1, topology)[gpu_index]
    except UsageError:
        if options.should_fall_back_if_binding_fails:
            return frozenset()
        raise
