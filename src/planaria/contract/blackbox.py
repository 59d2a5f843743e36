"""The black box: an anonymous file of a Python worker's that its agent can read after any kind of death.

`worker/bootstrap.py` begins it with the moment it began to run, `worker/crash.py` appends records; both are the byte 0x1e, a
JSON object, a newline. Python's fault handler appends stacks as plain text on a fatal signal and on `DUMP_STACKS`; a start
that failed leaves one line of text.
"""

from __future__ import annotations

from planaria.base.value import Value

LIMIT_BYTES = (
    4 << 20
)  # two texts of `worker.crash.LIMIT_CHARACTERS`, 12 bytes a character, and the stacks of 100 threads
DUMP_STACKS = 62
"""SIGRTMAX-2 asks a worker for the stacks of all its threads; it works with the GIL held."""
_RECORD = b"\x1e"
_SIGN = b'{"started":'
SIGN_BYTES = 64
"""How much of a black box's beginning holds a sign of life."""


class Ending(Value):
    """How a worker's main program ended, in its own words. Ages are on the node's monotonic clock."""

    kind: str
    type: str
    bases: tuple[str, ...]
    message: str
    traceback: str
    where: str
    at: float


class BlackBox(Value):
    """What was found in a black box: the last record, if any, and all text beside the records."""

    ending: Ending | None = None
    text: str = ""


def read(data: bytes) -> BlackBox:
    """Read a black box. Torn or foreign content is never an error: what cannot be read is left out."""
    head, *records = data.split(_RECORD)
    texts = [head]
    ending = None
    for record in records:
        line, _, rest = record.partition(b"\n")
        if not line.startswith(_SIGN):
            ending = _ending(line) or ending
        texts.append(rest)
    return BlackBox(ending, b"".join(texts).decode("utf-8", "replace").strip("\0"))


def started_at(data: bytes) -> float | None:
    """Return when the start-up file began to run, in the node's monotonic seconds; None: it has not said so."""
    line, end, _ = data.partition(b"}\n")
    if not end or not line.startswith(_RECORD + _SIGN):
        return None
    try:
        at = float(line[len(_RECORD + _SIGN) :])
    except ValueError:
        return None
    return at if 0 <= at < float("inf") else None


def _ending(line: bytes) -> Ending | None:
    import json

    try:
        found = json.loads(line)
        return Ending(
            kind=str(found["kind"]),
            type=str(found["type"]),
            bases=tuple(map(str, found["bases"])),
            message=str(found["message"]),
            traceback=str(found["traceback"]),
            where=str(found["where"]),
            at=float(found["at"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
