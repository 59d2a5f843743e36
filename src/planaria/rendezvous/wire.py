"""Messages as bytes: a JSON array that starts with the message's name. Everything that arrives is checked field by field.

Strict on purpose: a peer that sends what no version of ours would send is not one of ours. What arrives is dialled, shown
and put into the environment of workers, so names are short and plain, and an address is one. Lines for people are made so
where they leave: they are composed of what others are called.
"""

from __future__ import annotations

import json

from planaria.base.addresses import join_address, split_address
from planaria.base.text import safe_line
from planaria.base.value import Value
from planaria.rendezvous import messages, model

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.rendezvous.messages import Message

    Check = Callable[[object], object]

LONGEST_TEXT = 1 << 18
LONGEST_LINE = 1024
LONGEST_NAME = 255
MOST_ITEMS = 4096
MOST_DEPUTIES = 64  # far above what a leader names; more would make a message of theirs that nobody can send on
_CUT_AT = 1000  # below LONGEST_LINE: what is cut says so, and how long it was


def encode(message: Message) -> bytes:
    """Return the bytes of a message, with its lines for people cut to what every agent takes."""
    kind = type(message).__name__
    values = (getattr(message, name) for name in type(message)._fields)
    checks = _SCHEMA[kind][1]
    fields = [_cut(value) if check is _line else _plain(value) for check, value in zip(checks, values, strict=True)]
    return json.dumps([kind, *fields], separators=(",", ":")).encode()


def decode(data: bytes) -> Message:
    """Return the message in some bytes.

    Raises:
        ValueError: They are not a message of ours.
    """
    try:
        found = json.loads(data)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    if not isinstance(found, list) or not found or not isinstance(found[0], str):
        raise ValueError("not an array that starts with a name")
    if found[0] not in _SCHEMA:
        raise ValueError(f"no message is called {found[0][:40]!r}")
    kind, checks = _SCHEMA[found[0]]
    if len(found) - 1 != len(checks):
        raise ValueError(f"{found[0]} has {len(checks)} fields, got {len(found) - 1}")
    message: Message = kind(*[check(field) for check, field in zip(checks, found[1:], strict=True)])
    return message


def _plain(item: object) -> object:
    if isinstance(item, Value):
        return [_plain(getattr(item, name)) for name in type(item)._fields]
    if isinstance(item, tuple):
        return [_plain(part) for part in item]
    return item


def _cut(text: str) -> str:
    """Make a line for people one that every agent takes; one that was cut before stays as it is."""
    return text if safe_line(text, LONGEST_LINE) == text else safe_line(text, _CUT_AT)


def _text(field: object) -> str:
    if type(field) is not str or len(field) > LONGEST_TEXT:
        raise ValueError("expected a text")
    return field


def _line(field: object) -> str:
    """Take a line for people."""
    return _safe(field, LONGEST_LINE)


def as_name(field: object) -> str:
    """Return the name of a node, or of something as short and plain. Raises ValueError for anything else."""
    if not field:
        raise ValueError("expected a name")
    return _label(field)


def _label(field: object) -> str:
    """Take a name that may be empty."""
    return _safe(field, LONGEST_NAME)


def _safe(field: object, limit: int) -> str:
    text = _text(field)
    if len(text) > limit or safe_line(text, limit) != text:
        raise ValueError(f"expected at most {limit} plain characters")
    return text


def _run_id(field: object) -> str:
    """Take the name of a run: users may choose any, and it is only compared and, escaped, shown."""
    text = _text(field)
    if len(text) > LONGEST_NAME:
        raise ValueError("expected a run id")
    return text


def as_address(field: object) -> str:
    """Return an address exactly as agents write theirs, so never a path. Raises ValueError for anything else."""
    text = _text(field)
    if join_address(*split_address(text)) != text:
        raise ValueError("expected an address")
    return text


def _whereabouts(field: object) -> str:
    """Take an address, or nothing where nobody is known."""
    return as_address(field) if field != "" else ""


def _count(field: object) -> int:
    if type(field) is not int or not 0 <= field < 1 << 62:
        raise ValueError("expected a number that counts")
    return field


def _integer(field: object) -> int:
    if type(field) is not int or not -1 <= field < 1 << 62:
        raise ValueError("expected an integer")
    return field


def _slot(field: object) -> int | None:
    return None if field is None else _count(field)


def _seconds(field: object) -> float:
    if type(field) not in (int, float) or not -1e12 < field < 1e12:  # type: ignore[operator]  # the type is checked before
        raise ValueError("expected a number of seconds")
    return float(field)  # type: ignore[arg-type]  # as above


def _truth(field: object) -> bool:
    if type(field) is not bool:
        raise ValueError("expected true or false")
    return field


def _many(check: Check, most: int = MOST_ITEMS) -> Check:
    def checked(field: object) -> object:
        if type(field) is not list or len(field) > most:
            raise ValueError("expected a list")
        return tuple(check(item) for item in field)

    return checked


def _record(kind: type[Value], *checks: Check) -> Check:
    def checked(field: object) -> object:
        if type(field) is not list or len(field) != len(checks):
            raise ValueError(f"expected a {kind.__name__}")
        return kind(*[check(item) for check, item in zip(checks, field, strict=True)])

    return checked


_DEPUTIES = _many(_record(model.Deputy, as_name, as_address, _truth), MOST_DEPUTIES)
_STANDING = _record(
    model.Standing,
    *(_label, _count, _integer, _count, _slot, _count, _DEPUTIES, _count, _slot, _integer, _count, _truth),
    *(_integer, _truth, _many(as_name, MOST_DEPUTIES)),
)
_JOIN_WHO = (_run_id, as_name, _label, as_address, _count, _text, _slot)  # the role is compared and never sent on
_JOIN_STATE = (_STANDING, as_name, _count, _truth, _seconds, _seconds, _count)
_RULES = _record(model.Rules, _seconds, _count, _count, _count)
_PLACE_RANKS = (_label, _count, _count, _count, _slot, _count, _count, _count, _count)
_PLACE_ROUND = (_label, _count, _count, _line, _DEPUTIES, _count, _truth, _integer, _truth)
_SCHEMA: dict[str, tuple[type, tuple[Check, ...]]] = {
    "Join": (messages.Join, (*_JOIN_WHO, *_JOIN_STATE, _many(as_name), _many(as_name), _RULES)),
    "Renew": (messages.Renew, (_count, _count)),
    "Stopped": (messages.Stopped, (_count, _count, _truth)),
    "Placed": (messages.Placed, (_count,)),
    "Failed": (messages.Failed, (_count, _many(_text), _many(_seconds), _many(_truth), _truth, _line)),
    "Done": (messages.Done, (_count,)),
    "Departing": (messages.Departing, (_line,)),
    "Leave": (messages.Leave, (_line,)),
    "Quit": (messages.Quit, (_line, _seconds)),
    "Heard": (messages.Heard, ()),
    "Welcome": (messages.Welcome, (_count, as_name)),
    "Ack": (messages.Ack, (_count, _seconds)),
    "Stop": (messages.Stop, (_count, _line, _seconds, _truth)),
    "Place": (
        messages.Place,
        (*_PLACE_RANKS, *_PLACE_ROUND, _many(as_name, MOST_DEPUTIES), _whereabouts, _whereabouts),
    ),
    "Start": (messages.Start, (_count, _seconds)),
    "Waiting": (messages.Waiting, (_line,)),
    "Ended": (messages.Ended, (as_name, _count, _line, _many(_text), _count)),
    "Farewell": (messages.Farewell, ()),
    "Redirect": (messages.Redirect, (_whereabouts, _count, _label)),
    "Refused": (messages.Refused, (_line,)),
    "Ask": (messages.Ask, (_run_id, as_name, _whereabouts, _count, _integer, _truth, _count)),
    "Leads": (messages.Leads, (_run_id, as_name, _whereabouts, _count, _integer, _truth, _truth, _count)),
}
