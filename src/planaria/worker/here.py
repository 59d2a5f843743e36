"""What a worker's agent told it: the one place of the worker that reads the environment for it."""

from __future__ import annotations

import os
import sys

from planaria.contract.env import CONTROL


def control() -> str | None:
    """Return the path of the agent's control socket; None where there is no agent."""
    return os.environ.get(CONTROL)  # noqa: TID251  see above


def world_size() -> int:
    """Return how many workers there are, 1 without a launcher."""
    told = os.environ.get("WORLD_SIZE", "")  # noqa: TID251  see above
    return int(told) if told.isdecimal() else 1


def rank() -> int:
    """Return which of the workers this is, 0 without a launcher."""
    told = os.environ.get("RANK", "")  # noqa: TID251  see above
    return int(told) if told.isdecimal() and int(told) < world_size() else 0


def is_waiting() -> bool:
    """Tell whether this is a standby that has not joined: it is nobody's worker yet, and its agent would not listen."""
    waits = getattr(sys, "_planaria_waits", None)
    return waits is not None and waits()
