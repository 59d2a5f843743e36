"""How workers are bound to CPUs, under the names of `torch.numa.binding`: what `LaunchConfig.numa_options` takes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["AffinityMode", "NumaOptions"]


class AffinityMode(str, Enum):  # noqa: UP042  torch's kind of enum
    """Which CPUs a worker may use: those of its GPU's NUMA node or socket, a share of its own, or those of one cache."""

    NODE = "node"
    SOCKET = "socket"
    EXCLUSIVE = "exclusive"
    CORE_COMPLEX = "core-complex"


@dataclass(frozen=True)
class NumaOptions:
    """A mode, and whether a worker that cannot be bound starts all the same."""

    affinity_mode: AffinityMode
    should_fall_back_if_binding_fails: bool = False
