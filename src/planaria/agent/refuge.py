"""What people are told about where commits are kept, and what these outlive there. Pure."""

from __future__ import annotations

_ON_DISK = "--snapshot-dir keeps them on disk too"


class Refuge:
    """Where the commits of a node go: to a buddy or not, which rounds decide, and to a `directory` or, None, to none."""

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._had_buddy: bool | None = None

    def line(self, *, has_buddy: bool) -> str:
        """Return what is to be said in a round with or without a buddy; empty when it was said, or nobody has to know."""
        before, self._had_buddy = self._had_buddy, has_buddy
        if before == has_buddy or (before is None and has_buddy and self._directory is not None):
            return ""
        since = "" if before is None else " from now on"
        if has_buddy:
            text = f"commits are kept in the memory of two agents{since}: they outlive the loss of one node, not of two"
        elif self._directory is None:
            text = f"commits are kept in this agent's memory{since}: they outlive the workers, not the agent"
        else:
            text = (
                f"commits are kept in this agent's memory{since}: they outlive the workers; the agent's death goes back to "
                f"the newest in {self._directory}"
            )
        return f"{text} ({_ON_DISK})" if before is None and self._directory is None else text
