"""Pickle a value, or say which part of it cannot be pickled. For the private pipe between an agent and its workers only."""

from __future__ import annotations

import pickle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DEEPEST = 6  # levels that are searched for the culprit: deeper, its type alone must do
_PLAIN = (str, bytes, int, float, bool, type(None))


class NotPicklable(Exception):
    """Something cannot be pickled; the text says what, where in it and why."""


def dump(value: object) -> bytes:
    """Pickle by value: what is shared between processes by name or descriptor would be gone with its process.

    Raises:
        NotPicklable: With the path to the part that cannot be pickled.
    """
    return guarded(_dumps, value)


def load(data: bytes | memoryview) -> object:
    """Return what `dump` was given. Raises whatever the classes in it raise."""
    return pickle.loads(data)  # noqa: S301  from a process that we started, over a pipe that nobody else has


def guarded(dumps: Callable[[object], bytes], value: object) -> bytes:
    """Call `dumps`, and turn its many kinds of refusal into one that names the culprit."""
    try:
        return dumps(value)
    except Exception as problem:
        where, culprit = _culprit(dumps, value)
        part = f", whose part {where} is {_name_of(culprit)}," if where else ""
        raise NotPicklable(f"{_name_of(value)}{part} cannot be pickled: {problem}") from problem


def _dumps(value: object) -> bytes:
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def _culprit(dumps: Callable[[object], bytes], value: object) -> tuple[str, object]:
    """Return the path to the smallest part that cannot be pickled by itself, and that part."""
    path = ""
    for _ in range(_DEEPEST):
        for step, part in _parts(value):
            if not _can(dumps, part):
                path, value = path + step, part
                break
        else:
            break
    return path, value


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield f"[{key!r:.60}]", part
    elif isinstance(value, (list, tuple)):
        for at, part in enumerate(value):
            yield f"[{at}]", part
    elif not isinstance(value, type):
        for name, part in getattr(value, "__dict__", {}).items():
            yield f".{name}", part


def _can(dumps: Callable[[object], bytes], value: object) -> bool:
    if isinstance(value, _PLAIN):
        return True
    try:
        dumps(value)
    except Exception:  # noqa: BLE001  any class may refuse in its own way
        return False
    return True


def _name_of(value: object) -> str:
    if callable(value) and hasattr(value, "__qualname__"):
        return (
            f"the function {value.__qualname__}" if not isinstance(value, type) else f"the class {value.__qualname__}"
        )
    return f"a value of type {type(value).__qualname__}"
