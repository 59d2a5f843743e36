"""Read what others wrote: a value of the wrong kind counts as none. Pure."""

from __future__ import annotations

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeGuard


MOST = 1 << 53  # beyond it a number is nobody's: it has no exact neighbour as a float, and no calendar has such a day


class Told(Value):
    """An event of a journal. `node` is where it was found, `at` its moment on that node's monotonic clock."""

    name: str
    timestamp: int
    host: str
    at: float
    node: str
    data: Mapping[str, object]
    round: int | None = None
    gist: tuple[int, ...] = ()
    """Of progress the first and the last step of any rank; of a commit what grows from one to the next."""


def told(event: Mapping[str, object], node: str) -> Told | None:
    """Return an event; None for what is none."""
    name, data = text(event, "name"), part(event, "metadata")
    timestamp = integer(event, "timestamp")
    if not name or timestamp is None:
        return None
    gist = _GISTS[name](data) if name in _GISTS else ()
    return Told(
        name, timestamp, text(data, "host"), number(data, "at") or 0.0, node, data, integer(data, "round"), gist
    )


def age_of(stamp: Mapping[str, object]) -> tuple[int, ...]:
    """Return what grows from one commit to the next; agents of older versions did not tell the run."""
    return tuple(integer(stamp, key) or 0 for key in ("run", "round", "generation"))


def _steps(data: Mapping[str, object]) -> tuple[int, ...]:
    """Return the first and the last step that progress tells, by any rank; nothing where it tells none."""
    begun, done = [], []
    ranks = part(data, "ranks")
    for key in ranks:
        rank = part(ranks, key)
        step, first = integer(rank, "step"), integer(rank, "first")
        if step is not None:
            begun.append(step if first is None else min(first, step))
            done.append(step)
    return (min(begun), max(done)) if done else ()


_GISTS = {"planaria.progress": _steps, "planaria.commit": age_of}


def part(found: object, *names: str) -> Mapping[str, object]:
    """Return the object at the end of these names; an empty one when there is none."""
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def text(found: Mapping[str, object], name: str) -> str:
    """Return a text, or an empty one."""
    value = found.get(name)
    return value if isinstance(value, str) else ""


def integer(found: Mapping[str, object], name: str) -> int | None:
    """Return a whole number of a size that one can reckon with."""
    value = found.get(name)
    return value if type(value) is int and -MOST < value < MOST else None


def _is_whole(value: object) -> TypeGuard[int]:
    return type(value) is int and -MOST < value < MOST


def number(found: Mapping[str, object], name: str) -> float | None:
    """Return a number that is finite, and of a size that one can reckon with."""
    value = found.get(name)
    if type(value) is not float and type(value) is not int:
        return None
    return float(value) if -MOST < value < MOST else None  # what is no number is not between them, either


def objects(found: Mapping[str, object], name: str) -> tuple[Mapping[str, object], ...]:
    """Return the objects of a list."""
    value = found.get(name)
    return tuple(one for one in value if isinstance(one, dict)) if isinstance(value, (list, tuple)) else ()


def texts(found: Mapping[str, object], name: str) -> tuple[str, ...]:
    """Return the texts of a list."""
    value = found.get(name)
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, (list, tuple)) else ()


def integers(found: Mapping[str, object], name: str) -> tuple[int, ...]:
    """Return the whole numbers of a list."""
    value = found.get(name)
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(one for one in value if _is_whole(one))
