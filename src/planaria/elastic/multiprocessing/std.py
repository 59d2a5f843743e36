"""Which of a worker's two streams is meant: a bit each, for all workers or by local rank."""

from __future__ import annotations

import re
from enum import IntFlag

__all__ = ["Std", "to_map"]

_MAPPING_REGEX = r"^(\d+:[0123],)*(\d+:[0123])$"
_VALUE_REGEX = r"^[0123]$"


class Std(IntFlag):
    """stdout is 1, stderr 2."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = OUT | ERR

    @classmethod
    def from_str(cls, vm: str) -> Std | dict[int, Std]:
        """Read `3`, or `0:3,1:0,10:1` with a mask for each local rank.

        Raises:
            ValueError: It is neither.
        """
        if re.match(_VALUE_REGEX, vm):
            return cls(int(vm))
        if re.match(_MAPPING_REGEX, vm):
            pairs = (pair.split(":") for pair in vm.split(","))
            return {int(rank): cls(int(mask)) for rank, mask in pairs}
        raise ValueError(f"{vm} does not match: <{_VALUE_REGEX}> or <{_MAPPING_REGEX}>")


def to_map(val_or_map: Std | dict[int, Std], local_world_size: int) -> dict[int, Std]:
    """Return a mask for each local rank; a map that leaves one out means none of its streams."""
    if isinstance(val_or_map, Std):
        return dict.fromkeys(range(local_world_size), val_or_map)
    return {rank: val_or_map.get(rank, Std.NONE) for rank in range(local_world_size)}
