"""What the kernel says a process is doing, from `/proc`."""

from __future__ import annotations

from planaria.base import linux

__all__ = ["is_uninterruptible_state", "read_proc_state"]


def read_proc_state(pid: int) -> str | None:
    """Return the letter for a process's state, such as R, S, D or Z; None when there is no telling."""
    fields = linux.stat_fields(pid)
    return fields[0].decode("ascii", "replace") if fields else None


def is_uninterruptible_state(state: str | None) -> bool:
    """Tell whether a state is that of a process stuck in the kernel, where no signal reaches it."""
    return state is not None and state.startswith("D")
