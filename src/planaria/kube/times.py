"""Times as the Kubernetes API writes them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def seconds(text: str) -> float:
    """Return a time as seconds since 1970."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def stamp(wall_s: float) -> str:
    """Return seconds since 1970 as the API writes them, in whole seconds."""
    return datetime.fromtimestamp(wall_s, UTC).strftime(_FORMAT)
