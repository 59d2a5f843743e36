"""Messages on the agent's control socket: one JSON object a line, at most `LINE_LIMIT_BYTES` long, both ways.

From a worker:  {"type": "progress", "step": 12, ...numbers}
To a worker:    {"type": "drain", "reason": "SIGTERM", "grace_s": 30.0}
                {"type": "resize", "reason": "node b joined", "grace_s": 10.0}
Unknown types are ignored, so that old workers and new agents get along.
"""

from __future__ import annotations

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LINE_LIMIT_BYTES = 16 << 10


class Progress(Value):
    """How far a rank has come: its step, and any other numbers it cares to report."""

    step: int
    values: tuple[tuple[str, float], ...] = ()


class Drain(Value):
    """Stop soon, in good order: `grace_s` seconds are left."""

    reason: str
    grace_s: float


class Resize(Value):
    """The world is about to change: end by yourself after the next commit, within `grace_s` seconds."""

    reason: str
    grace_s: float


if TYPE_CHECKING:
    Message = Progress | Drain | Resize


def encode(message: Message) -> bytes:
    """Return the line for a message."""
    import json

    fields: Mapping[str, object]
    if isinstance(message, Progress):
        fields = {**dict(message.values), "type": "progress", "step": message.step}
    else:
        kind = "drain" if isinstance(message, Drain) else "resize"
        fields = {"type": kind, "reason": message.reason, "grace_s": message.grace_s}
    return json.dumps(fields).encode() + b"\n"


def decode(line: bytes) -> Message | None:
    """Return the message in a line, or None when it is not one we know.

    Raises:
        ValueError: The line is not a JSON object or a field has the wrong type. The peer is broken.
    """
    import json

    try:
        found = json.loads(line)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    kind = found.pop("type", None)
    if kind == "progress":
        step = found.pop("step", None)
        if type(step) is not int or not all(type(value) in (int, float) for value in found.values()):
            raise ValueError("a progress message takes an integer step and numbers")
        return Progress(step, tuple(found.items()))
    if kind in ("drain", "resize"):
        return _notice(Drain if kind == "drain" else Resize, found)
    return None


def _notice(kind: type[Drain | Resize], found: Mapping[str, Any]) -> Drain | Resize:
    try:
        return kind(str(found.get("reason", "")), float(found.get("grace_s", 0.0)))
    except (TypeError, OverflowError) as exc:
        raise ValueError(f"a {kind.__name__.lower()} message takes a number of seconds") from exc
