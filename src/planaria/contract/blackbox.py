"""The black box: an anonymous file of a Python worker's that its agent can read after any kind of death.

`worker/bootstrap.py` begins it with the moment it began to run, `worker/crash.py` appends records; both are the byte 0x1e, a
JSON object, a newline. A program that ended well leaves a word there: what Python does after it may still have to be killed.
Where standbys are wanted, `worker/learn.py` appends which modules were loaded. Python's fault handler appends stacks as plain
text on a fatal signal and on `DUMP_STACKS`; a start that failed leaves one line of text.
"""

from __future__ import annotations

from planaria.base.value import Value

LIMIT_BYTES = 5 << 20
"""Two texts of `worker.crash.LIMIT_CHARACTERS`, 12 bytes a character, the stacks of 100 threads, `worker.learn.LIMIT_BYTES`."""
LIFELINE = 3
"""The descriptor at which a worker or standby holds its lifeline, where standbys are wanted.

A process that dies closes the lowest descriptors first, and those of a device, which it has opened later, take their time.
"""
DUMP_STACKS = 62
"""SIGRTMAX-2 asks a worker for the stacks of all its threads; it works with the GIL held."""
_RECORD = b"\x1e"
_SIGN = b'{"started":'
_MODULES = b"modules\0"
_JOINS = b"joins\0"
_ENDED = b"ended"
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
    """What was found in a black box: the last record, if any, all text beside the records, whether the program ended well."""

    ending: Ending | None = None
    text: str = ""
    has_ended: bool = False


class Join(Value):
    """That a worker's program has called `join()`, how long after its start, and the file of its main module, if it has one."""

    local_rank: int
    after_s: float
    main: str = ""


class Learned(Value):
    """What a life taught us for a standby: the modules it loaded, by name, and which of its workers have called `join()`."""

    files: tuple[tuple[str, str], ...] = ()
    joins: tuple[Join, ...] = ()


def read(data: bytes) -> BlackBox:
    """Read a black box. Torn or foreign content is never an error: what cannot be read is left out."""
    head, *records = data.split(_RECORD)
    texts = [head]
    ending = None
    has_ended = False
    for record in records:
        line, _, rest = record.partition(b"\n")
        if line == _ENDED:
            has_ended = True
        elif not line.startswith((_SIGN, _MODULES, _JOINS)):
            ending = _ending(line) or ending
        texts.append(rest)
    return BlackBox(ending, b"".join(texts).decode("utf-8", "replace").strip("\0"), has_ended)


def has_records(data: bytes) -> bool:
    """Tell whether there is anything but text in a part of a black box."""
    return _RECORD in data


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


def learned(data: bytes, local_rank: int = 0) -> Learned:
    """Return the modules that a worker has loaded so far, in that order, each with its file: empty for one without a file."""
    found: dict[str, str] = {}
    join: Join | None = None
    for record in data.split(_RECORD)[1:]:
        line, end, _ = record.partition(b"\n")
        if end and line.startswith(_JOINS):
            join = join or _join(line, local_rank)
        if not end or not line.startswith(_MODULES):
            continue
        parts = line[len(_MODULES) :].decode("utf-8", "surrogateescape").split("\0")
        found.update(zip(parts[0::2], parts[1::2], strict=False))
    return Learned(tuple(found.items()), () if join is None else (join,))


def _join(line: bytes, local_rank: int) -> Join | None:
    after, _, main = line[len(_JOINS) :].decode("utf-8", "surrogateescape").partition("\0")
    try:
        after_s = float(after)
    except ValueError:
        return None
    return Join(local_rank, after_s, main) if 0 <= after_s < float("inf") else None


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
