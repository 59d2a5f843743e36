"""Failures as they travel between nodes: one JSON text each, short enough to send and checked when they arrive.

The first of a node may be the first cause of the whole job, so it travels with its evidence. The others are there to be
counted and compared, and bring one line. Logs and error files stay where they are: their paths mean this node's.
"""

from __future__ import annotations

import json
import math

from planaria.base.value import as_dict, replace
from planaria.contract.failure import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

LIMIT_CHARACTERS = 1 << 18  # of a text that arrives; ours have at most a third of it, with every character escaped
_EVIDENCE_CHARACTERS = 6_000
_LINE_CHARACTERS = 300
_LONGEST_NUMBER = 1 << 63
_KINDS = ("exception", "exit", "signal", "spawn", "watchdog")
_KILLERS = ("", "us", "oom", "other")


def failures_as_json(failures: Iterable[Failure]) -> tuple[str, ...]:
    """Return the texts of one node's failures, which come first cause first."""
    return tuple(
        json.dumps(as_dict(_with_evidence(one) if place == 0 else _in_a_line(one)))
        for place, one in enumerate(failures)
    )


def _with_evidence(failure: Failure) -> Failure:
    return replace(
        failure,
        message=_cut(failure.message, _EVIDENCE_CHARACTERS),
        traceback=_cut(failure.traceback, _EVIDENCE_CHARACTERS),
        stderr_tail=_cut(failure.stderr_tail, _EVIDENCE_CHARACTERS),
    )


def _in_a_line(failure: Failure) -> Failure:
    short = replace(failure, message=_cut(failure.message, _LINE_CHARACTERS), traceback="", stderr_tail="")
    return replace(short, error_file="", log_files=())


def _cut(text: str, limit: int) -> str:
    """Keep the beginning and, since the error itself is there, more of the end."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 3]}\n... {len(text) - limit} characters left out ...\n{text[limit // 3 - limit :]}"


def failure_from_json(text: str) -> Failure:
    """Read the text of one failure. Fields that a later version may add are passed over.

    Raises:
        ValueError: It is too long, not a JSON object, or a field is missing or not what it should be.
    """
    if len(text) > LIMIT_CHARACTERS:
        raise ValueError(f"a failure of {len(text)} characters")
    try:
        found = json.loads(text)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    for name, is_right in _FIELDS.items():
        if name not in found or not is_right(found[name]):
            raise ValueError(f"a failure without a proper {name!r}")
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value := found[name], list) else value for name in _FIELDS
    }
    return Failure(**fields)


def _is_whole(item: object) -> bool:
    return type(item) is int and abs(item) < _LONGEST_NUMBER


def _is_time(item: object) -> bool:
    return (type(item) is float and math.isfinite(item)) or _is_whole(item)


def _is_text(item: object) -> bool:
    return type(item) is str


def _are_texts(item: object) -> bool:
    return type(item) is list and all(map(_is_text, item))


def _is_flag(item: object) -> bool:
    return type(item) is bool


def _is_whole_or_none(item: object) -> bool:
    return item is None or _is_whole(item)


_FIELDS: dict[str, Callable[[object], bool]] = {
    "rank": _is_whole,
    "local_rank": _is_whole,
    "host": _is_text,
    "pid": _is_whole,
    "status": _is_whole,
    "at": _is_time,
    "age_s": _is_time,
    "kind": lambda item: item in _KINDS,
    "type": _is_text,
    "bases": _are_texts,
    "message": _is_text,
    "traceback": _is_text,
    "where": _is_text,
    "killer": lambda item: item in _KILLERS,
    "stopped_for": _is_whole_or_none,
    "stderr_tail": _is_text,
    "error_file": _is_text,
    "log_files": _are_texts,
    "progressed": _is_flag,
}
