"""What is called in a worker instead of the user's function: the function, recorded, and bound to its CPUs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from planaria.elastic.multiprocessing.errors import record

__all__ = ["Recorded"]


class Recorded:
    """A function as if it were decorated with `record`: its exception is in the error file as well. Can be pickled."""

    def __init__(self, entrypoint: Callable[..., Any], local_rank: int = 0, numa_options: Any = None) -> None:
        self.entrypoint = entrypoint
        self.local_rank = local_rank
        self.numa_options = numa_options

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """Return what the user wrote."""
        return self.entrypoint

    def __call__(self, *args: Any) -> Any:
        """Call it, in the worker."""
        function = self.entrypoint
        if self.numa_options is not None:  # who made the options (`torch.numa.binding`) knows what they mean
            package = importlib.import_module(type(self.numa_options).__module__)
            function = package._maybe_wrap_with_numa_binding(  # noqa: SLF001
                function, gpu_index=self.local_rank, numa_options=self.numa_options
            )
        return record(function)(*args)
