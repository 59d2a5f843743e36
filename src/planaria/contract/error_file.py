"""The error file of torch's `@record`, in both shapes, and whatever is left of one when its writer died.

    {"message": {"message": "<Type>: <text>", "extraInfo": {"py_callstack": "...", "timestamp": "<s>"}, "errorCode": 1}}
    {"message": "<text>", "timestamp": 1700000000}

It is written by the worker without care for half-written files, so nothing about its content is assumed.
"""

from __future__ import annotations

from planaria.base.value import Value

LIMIT_BYTES = 1 << 20


class ErrorFile(Value):
    """What an error file says. `problem` is not empty when it exists but cannot be read as one."""

    message: str = ""
    traceback: str = ""
    problem: str = ""


def read(data: bytes) -> ErrorFile:
    """Read the content of an error file; never raises. At most `LIMIT_BYTES` of it need be given."""
    import json

    if not data.strip():
        return ErrorFile(problem="is empty")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        cut = " (longer than 1 MiB)" if len(data) >= LIMIT_BYTES else ""
        return ErrorFile(problem=f"is not whole JSON{cut}; it begins {data[:60]!r}")
    message = found.get("message") if isinstance(found, dict) else None
    if isinstance(message, str):
        return ErrorFile(message)
    if not isinstance(message, dict):
        return ErrorFile(problem='has no field "message"')
    extra = message.get("extraInfo")
    stack = extra.get("py_callstack") if isinstance(extra, dict) else None
    return ErrorFile(str(message.get("message", "")), stack if isinstance(stack, str) else "")


def write(message: str, traceback: str, *, status: int, wall_time_s: int) -> bytes:
    """Return the content of an error file in the shape torchrun leaves at its own TORCHELASTIC_ERROR_FILE."""
    import json

    extra = {"py_callstack": traceback, "timestamp": str(wall_time_s)}
    return json.dumps({"message": {"message": message, "extraInfo": extra, "errorCode": status}}).encode()
