"""The error file of torch's `@record`, in both shapes, and whatever is left of one when its writer died.

    {"message": {"message": "<Type>: <text>", "extraInfo": {"py_callstack": "...", "timestamp": "<s>"}, "errorCode": 1}}
    {"message": "<text>", "timestamp": 1700000000}

It is written by the worker without care for half-written files, so nothing about its content is assumed.
"""

from __future__ import annotations

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIMIT_BYTES = 1 << 20


class ErrorFile(Value):
    """What an error file says. `problem` is not empty when it exists but cannot be read as one."""

    message: str = ""
    traceback: str = ""
    problem: str = ""


def read(data: bytes) -> ErrorFile:
    """Read the content of an error file; never raises. At most `LIMIT_BYTES` of it need be given."""
    found, problem = parse(data)
    if problem:
        return ErrorFile(problem=problem)
    message = found["message"]
    if isinstance(message, str):
        return ErrorFile(message)
    extra = message.get("extraInfo")
    stack = extra.get("py_callstack") if isinstance(extra, dict) else None
    return ErrorFile(str(message.get("message", "")), stack if isinstance(stack, str) else "")


def parse(data: bytes) -> tuple[dict[str, Any], str]:
    """Return the object in an error file and no problem, or an empty one and what is wrong with the file; never raises.

    What is returned has a `message` that is a text or an object; nothing else about it is certain.
    """
    import json

    if not data.strip():
        return {}, "is empty"
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        cut = " (longer than 1 MiB)" if len(data) >= LIMIT_BYTES else ""
        return {}, f"is not whole JSON{cut}; it begins {data[:60]!r}"
    if not isinstance(found, dict) or not isinstance(found.get("message"), (str, dict)):
        return {}, 'has no field "message"'
    return found, ""


def seconds(found: dict[str, Any]) -> int:
    """Return the wall time that an object of `parse` names, in whole seconds as torch writes it; 0 when it names none."""
    message = found["message"]
    extra = message.get("extraInfo") if isinstance(message, dict) else found
    named = extra.get("timestamp") if isinstance(extra, dict) else None
    try:
        return int(named) if isinstance(named, (str, int, float)) else 0
    except (ValueError, OverflowError):  # "soon", NaN, infinity
        return 0


def write(message: str, traceback: str, *, wall_time_s: int, status: int | None = None) -> bytes:
    """Return the content of an error file: a worker's, or with `status` what torchrun leaves at its own path."""
    import json

    extra = {"py_callstack": traceback, "timestamp": str(wall_time_s)}
    told: dict[str, object] = {"message": message, "extraInfo": extra}
    if status is not None:
        told["errorCode"] = status
    return json.dumps({"message": told}).encode()
