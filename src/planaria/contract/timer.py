"""Lines of torch's file timers: how a worker tells the agent, through a named pipe, how long it may stay in a scope.

    {"version": 1, "pid": 4711, "scope_id": "train.py#12", "expiration_time": 1700000000.5, "signal": 9}

One JSON object a line. A line is written in one piece, since it is no longer than `LINE_LIMIT_BYTES`: lines of many workers
never mix. A negative expiration time releases the scope.
"""

from __future__ import annotations

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeGuard

VERSION = 1
LINE_LIMIT_BYTES = 4096  # PIPE_BUF on Linux; its newline included
_LAST_SIGNAL = 64


class TimerLine(Value):
    """What one line says. `expires_at` is on the wall clock of the node, negative for a release.

    `signal` is what the process is to be sent when its time is over; 0 or less: nothing.
    """

    pid: int
    scope: str
    expires_at: float
    signal: int = 0

    @property
    def is_release(self) -> bool:
        """Tell whether the scope ended in time."""
        return self.expires_at < 0


def as_json(line: TimerLine) -> str:
    """Return the text of a line, field by field as torch's own client writes them."""
    import json

    fields = {
        "version": VERSION,
        "pid": line.pid,
        "scope_id": line.scope,
        "expiration_time": line.expires_at,
        "signal": line.signal,
    }
    return json.dumps(fields)


def encode(line: TimerLine) -> bytes:
    """Return a line as it goes into a pipe, its end included.

    Raises:
        ValueError: It is longer than what a pipe takes in one piece.
    """
    text = as_json(line).encode() + b"\n"
    if len(text) > LINE_LIMIT_BYTES:
        raise ValueError(f"{len(text)} bytes are more than the {LINE_LIMIT_BYTES} that a pipe takes in one piece")
    return text


def decode(text: bytes) -> TimerLine:
    """Read a line, with or without its newline. Fields that a later version may add are passed over.

    Raises:
        ValueError: It is not such a line; the text says what is wrong with it.
    """
    import json

    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise ValueError("not JSON") from exc
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    pid, scope, signal = found.get("pid"), found.get("scope_id"), found.get("signal")
    expires_at = found.get("expiration_time")
    if type(pid) is not int or not 0 < pid < 1 << 31:
        raise ValueError("pid is not the number of a process")
    if type(scope) is not str:
        raise ValueError("scope_id is not a text")
    if not _is_moment(expires_at):
        raise ValueError("expiration_time is not a number")
    if type(signal) is not int or signal > _LAST_SIGNAL:
        raise ValueError("signal is not the number of a signal")
    return TimerLine(pid, scope, float(expires_at), signal)


def _is_moment(item: object) -> TypeGuard[float]:
    """Tell whether this is a time, which may be infinitely far."""
    if type(item) is float:
        return item == item  # noqa: PLR0124  only what is not a number is not itself
    return type(item) is int and abs(item) < 1 << 63
