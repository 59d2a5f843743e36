"""What the kernel says a process is doing, from `/proc`."""

from __future__ import annotations

__all__ = ["is_uninterruptible_state", "read_proc_state"]


def read_proc_state(pid: int) -> str | None:
    """Return the letter for a process's state, such as R, S, D or Z; None when there is no telling."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            data = file.read()
    except OSError:
        return None
    # The program's name stands in parentheses and may have some itself: the last one ends it.
    _, found, rest = data.rpartition(b")")
    fields = rest.split()
    return fields[0].decode("ascii", "replace") if found and fields else None


def is_uninterruptible_state(state: str | None) -> bool:
    """Tell whether a state is that of a process stuck in the kernel, where no signal reaches it."""
    return state is not None and state.startswith("D")
