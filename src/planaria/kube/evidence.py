"""What the policy remembers, as JSON and back, so that the next operator decides as this one would have. Pure.

Every field is always there and none is null: whether the status is replaced or merged, nothing old stays behind. Whole floats
may come back as integers, which is how the API server writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import TypeVar, get_args

from planaria.kube.scaling_model import (
    Batch,
    Cause,
    Condition,
    Corrupt,
    ElasticScaling,
    Evidence,
    Figure,
    Mark,
    Source,
    Timed,
)

VERSION = 1
FIGURE_LIMIT = 32  # sizes; a search that doubles meets 14 of them up to 10,000 Workers
WINDOW_LIMIT = 100  # the most samples that a policy can ask for, and the most that it can leave out
TEXT_LIMIT = 512
STEP_LIMIT = 1 << 53  # what every JSON reader takes for a whole number
SIZE_LIMIT_BYTES = 16_384  # of the JSON: every update of the status carries it
RATES = (1e-15, 1e15)  # throughput that somebody can have; quotients of two of them are numbers
NONE = -1

Kind = TypeVar("Kind")
Chosen = TypeVar("Chosen", bound=str)
Read = Callable[[object], Kind]


def encode(evidence: Evidence) -> dict[str, object]:
    """Return the evidence as JSON, at most `SIZE_LIMIT_BYTES` of it."""
    block = evidence.elastic
    return {
        "version": VERSION,
        "start": evidence.start,
        "good": evidence.good,
        "current": block.current,
        "last": _or_none(block.last),
        "condition": block.condition,
        "continue": block.goes_on,
        "message": block.message,
        "since": block.since_s,
        "reason": evidence.reason,
        "changed": evidence.changed_s,
        "ready": _or_none(evidence.ready_s),
        "source": evidence.source,
        "batch": evidence.batch,
        "figures": [[figure.size, figure.rate, figure.at_s] for figure in evidence.figures],
        "window": [[*map(_or_none, entry[:2]), entry[2]] for entry in evidence.window],
        "skip": evidence.skip,
        "skipped": [[*map(_or_none, mark)] for mark in evidence.skipped],
        "refused": _or_none(evidence.refused),
        "cause": evidence.cause,
        "failures": evidence.failures,
        "refusedAt": evidence.refused_s,
        "room": evidence.has_room,
    }


def _or_none(value: float | None) -> float:
    return NONE if value is None else value


def decode(kept: object) -> Evidence | Corrupt | None:
    """Return the evidence that `status.scaling` holds; None for none. Whatever else is there is Corrupt, never an exception."""
    if kept is None or kept == {}:
        return None
    if not isinstance(kept, Mapping):
        return Corrupt("it is not an object")
    if kept.get("version") != VERSION:
        return Corrupt("it is of another version")
    try:
        return _decoded(kept)
    except ValueError as exc:
        return Corrupt(f"{exc.args[0]!r} is missing or is not what it should be")


def _get(kept: Mapping[object, object], name: str, read: Read[Kind]) -> Kind:
    try:
        return read(kept[name])
    except (KeyError, ValueError):
        raise ValueError(name) from None


def _decoded(kept: Mapping[object, object]) -> Evidence:
    current = _get(kept, "current", _size)
    good = _get(kept, "good", _size)
    if good > current:
        raise ValueError("good")
    return Evidence(
        start=_get(kept, "start", _count),
        good=good,
        elastic=ElasticScaling(
            condition=_get(kept, "condition", _one_of(get_args(Condition))),
            goes_on=_get(kept, "continue", _flag),
            current=current,
            last=_get(kept, "last", _maybe(_size)),
            message=_get(kept, "message", _text),
            since_s=_get(kept, "since", _number),
        ),
        reason=_get(kept, "reason", _text),
        changed_s=_get(kept, "changed", _number),
        ready_s=_get(kept, "ready", _maybe(_number)),
        source=_get(kept, "source", _one_of(get_args(Source))),
        batch=_get(kept, "batch", _one_of(get_args(Batch))),
        figures=_get(kept, "figures", _list(_figure, FIGURE_LIMIT)),
        window=_get(kept, "window", _list(_timed, WINDOW_LIMIT)),
        skip=_get(kept, "skip", _count),
        skipped=_get(kept, "skipped", _list(_mark, WINDOW_LIMIT)),
        refused=_get(kept, "refused", _maybe(_size)),
        cause=_get(kept, "cause", _one_of(get_args(Cause))),
        failures=_get(kept, "failures", _count),
        refused_s=_get(kept, "refusedAt", _number),
        has_room=_get(kept, "room", _flag),
    )


def _flag(field: object) -> bool:
    if not isinstance(field, bool):
        raise ValueError
    return field


def _count(field: object) -> int:
    if isinstance(field, bool) or not isinstance(field, int) or not 0 <= field <= STEP_LIMIT:
        raise ValueError
    return field


def _size(field: object) -> int:
    if (size := _count(field)) < 1:
        raise ValueError
    return size


def _number(field: object) -> float:
    if isinstance(field, bool) or not isinstance(field, (int, float)) or not isfinite(field) or abs(field) > 1e300:
        raise ValueError
    return float(field)


def _rate(field: object) -> float:
    if not RATES[0] <= (rate := _number(field)) <= RATES[1]:
        raise ValueError
    return rate


def _text(field: object) -> str:
    if not isinstance(field, str) or len(field) > TEXT_LIMIT:
        raise ValueError
    return field


def _maybe(read: Read[Kind]) -> Read[Kind | None]:
    return lambda field: None if field == NONE else read(field)


def _one_of(choices: tuple[Chosen, ...]) -> Read[Chosen]:
    def read(field: object) -> Chosen:
        for choice in choices:
            if field == choice:
                return choice
        raise ValueError

    return read


def _list(read: Read[Kind], limit: int) -> Read[tuple[Kind, ...]]:
    def read_all(field: object) -> tuple[Kind, ...]:
        if not isinstance(field, list) or len(field) > limit:
            raise ValueError
        return tuple(map(read, field))

    return read_all


def _row(field: object, length: int) -> list[object]:
    if not isinstance(field, list) or len(field) != length:
        raise ValueError
    return field


def _figure(field: object) -> Figure:
    size, rate, at_s = _row(field, 3)
    return Figure(_size(size), _rate(rate), _number(at_s))


def _mark(field: object) -> Mark:
    epoch, step = _row(field, 2)
    return _maybe(_count)(epoch), _maybe(_count)(step)


def _timed(field: object) -> Timed:
    epoch, step, rate = _row(field, 3)
    return (*_mark([epoch, step]), _rate(rate))
