"""Messages on the agent's control socket: one JSON object a line, at most `LINE_LIMIT_BYTES` long, both ways.

From a worker:  {"type": "progress", "step": 12, ...numbers}
                {"type": "phase", "phase": "evaluation"}, and with "" when it is over
                {"type": "finished"}: no more steps come, unless one does
                {"type": "stored", "state": 1, "run": 2, "generation": 7, "step": 12, "is_done": false}: this rank writes a
                commit of a state by itself; with true: the parts of all ranks are on disk
                {"type": "witness"}: this connection is that of a thread which only answers "look"
                {"type": "acquire", "id": 7, "scope": "step", "after_s": 60.0, "at": 1234.5}
                {"type": "release", "id": 7}
To a worker:    {"type": "drain", "reason": "SIGTERM", "grace_s": 30.0, "at": 1234.5}
                {"type": "resize", "reason": "node b joined", "grace_s": 10.0, "at": 1234.5}
                {"type": "look", "folder": "/path"}: write there what can be seen from within
Unknown types are ignored, so that old workers and new agents get along.
"""

from __future__ import annotations

from planaria.base.value import Value, as_dict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LINE_LIMIT_BYTES = 16 << 10
INTEGER_LIMIT = 1 << 63
"""Integers lie between minus this and this: more fits in nobody's counter, and far more in no float."""
LONGEST_PHASE = 40
"""Characters of a phase's name."""
START, STEP, CHECKPOINT = "start", "step", "checkpoint"
"""The phases that everybody has; a program may have others."""
_INFINITY = float("inf")


class Progress(Value):
    """How far a rank has come: its step, and any other numbers it cares to report."""

    step: int
    values: tuple[tuple[str, float], ...] = ()


class Phase(Value):
    """What a rank is at from now on; empty: at its steps again."""

    phase: str


class Finished(Value):
    """No more steps come: what a rank does from now on, such as saving a model, has no pace."""


class Stored(Value):
    """A commit that ranks write to a disk by themselves, without the agent: `is_done` when all of it is there.

    Commits are counted from 1: 0 is none, where a life begins from nothing. `state` is a number of the folder: each state of a
    program has one of its own, with runs of its own.
    """

    state: int
    run: int
    generation: int
    step: int
    is_done: bool

    @property
    def is_nothing(self) -> bool:
        """Tell whether there is no commit to begin from."""
        return not self.generation


class Witness(Value):
    """This connection is that of a thread that can look at its process while all others hang; it hears nothing else."""


class Look(Value):
    """Write into this folder what the process knows of its collectives."""

    folder: str


class Drain(Value):
    """Stop soon, in good order: `grace_s` seconds are left, from `at` on the node's monotonic clock."""

    reason: str
    grace_s: float
    at: float | None = None


class Resize(Value):
    """The world is about to change: end by yourself after the next commit, within `grace_s` seconds from `at` on."""

    reason: str
    grace_s: float
    at: float | None = None


class Acquire(Value):
    """A scope begins that must end within `after_s` of `at`, on the node's monotonic clock.

    `id` is new for each scope of a connection, so that scopes of one name nest. They end with the connection at the latest.
    """

    id: int
    scope: str
    after_s: float
    at: float


class Release(Value):
    """The scope with this `id` ended in time."""

    id: int


if TYPE_CHECKING:
    Message = Progress | Phase | Finished | Stored | Witness | Look | Drain | Resize | Acquire | Release


def encode(message: Message) -> bytes:
    """Return the line for a message."""
    import json

    fields: Mapping[str, object]
    if isinstance(message, Progress):
        fields = {**dict(message.values), "type": "progress", "step": message.step}
    elif isinstance(message, (Phase, Finished, Stored, Witness, Look, Acquire, Release)):
        fields = {"type": type(message).__name__.lower(), **as_dict(message)}
    else:
        kind = "drain" if isinstance(message, Drain) else "resize"
        fields = {"type": kind, "reason": message.reason, "grace_s": message.grace_s, "at": message.at}
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
        if type(step) is not int or not all(map(_is_number, (step, *found.values()))):
            raise ValueError("a progress message takes an integer step and numbers, all of 64 bits")
        return Progress(step, tuple(found.items()))
    if kind in ("acquire", "release"):
        return _scope(kind, found)
    if kind in ("phase", "finished", "witness", "look"):
        return _about_hangs(kind, found)
    if kind == "stored":
        return _stored(found)
    if kind in ("drain", "resize"):
        return _notice(Drain if kind == "drain" else Resize, found)
    return None


def _about_hangs(kind: str, found: Mapping[str, Any]) -> Phase | Finished | Witness | Look:
    if kind in ("finished", "witness"):
        return Finished() if kind == "finished" else Witness()
    text = found.get("phase" if kind == "phase" else "folder")
    if type(text) is not str or len(text) > (LONGEST_PHASE if kind == "phase" else LINE_LIMIT_BYTES):
        raise ValueError(f"a {kind} message takes a short text")
    return Phase(text) if kind == "phase" else Look(text)


def _stored(found: Mapping[str, Any]) -> Stored:
    state, run, generation, step = (_count(found.get(name)) for name in ("state", "run", "generation", "step"))
    is_done = found.get("is_done")
    if state is None or run is None or generation is None or step is None or type(is_done) is not bool:
        raise ValueError("a stored message takes four counts of 63 bits, and whether it is done")
    return Stored(state, run, generation, step, is_done)


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < INTEGER_LIMIT else None


def _is_number(value: object) -> bool:
    return type(value) is float or (type(value) is int and -INTEGER_LIMIT <= value < INTEGER_LIMIT)


def _notice(kind: type[Drain | Resize], found: Mapping[str, Any]) -> Drain | Resize:
    at = found.get("at")
    if at is not None and (type(at) is not float or not -_INFINITY < at < _INFINITY):
        raise ValueError(f"a {kind.__name__.lower()} message takes a moment")
    try:
        return kind(str(found.get("reason", "")), float(found.get("grace_s", 0.0)), at)
    except (TypeError, OverflowError) as exc:
        raise ValueError(f"a {kind.__name__.lower()} message takes a number of seconds") from exc


def _scope(kind: str, found: Mapping[str, Any]) -> Acquire | Release:
    number, name = found.get("id"), found.get("scope")
    if type(number) is not int or not _is_number(number):
        raise ValueError("a scope takes an integer id of 64 bits")
    if kind == "release":
        return Release(number)
    after_s, at = found.get("after_s"), found.get("at")
    if type(name) is not str or type(after_s) is not float or type(at) is not float:
        raise ValueError("a scope takes a name, a number of seconds and a moment")
    if not after_s > 0 or not -_INFINITY < at < _INFINITY:  # neither is true of what is not a number
        raise ValueError("a scope takes seconds above 0 and a moment that is over")
    return Acquire(number, name, after_s, at)
