"""What is called in a worker instead of the user's function: the function, recorded, and bound to its CPUs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from planaria.elastic.multiprocessing.errors import record

__all__ = ["recorded"]


def recorded(entrypoint: Callable[..., Any], local_rank: int, numa_options: Any, *args: Any) -> Any:
    """Call a function as if it were decorated with `record`: its exception is in the error file as well."""
    if numa_options is not None:  # the package that the options come from (`torch.numa.binding`) knows what they mean
        package = importlib.import_module(type(numa_options).__module__)
        entrypoint = package._maybe_wrap_with_numa_binding(  # noqa: SLF001
            entrypoint, gpu_index=local_rank, numa_options=numa_options
        )
    return record(entrypoint)(*args)
