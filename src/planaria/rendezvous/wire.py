"""Messages as bytes: a JSON array that starts with the message's name. Everything that arrives is checked field by field.

Strict on purpose: a peer that sends what no version of ours would send is not one of ours.
"""

from __future__ import annotations

import json

from planaria.base.value import Value
from planaria.rendezvous import messages, model

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from planaria.rendezvous.messages import Message

    Check = Callable[[object], object]

LONGEST_TEXT = 1 << 18
MOST_ITEMS = 4096


def encode(message: Message) -> bytes:
    """Return the bytes of a message."""
    kind = type(message).__name__
    fields = [_plain(getattr(message, name)) for name in type(message)._fields]
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


def _text(field: object) -> str:
    if type(field) is not str or len(field) > LONGEST_TEXT:
        raise ValueError("expected a text")
    return field


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


def _many(check: Check) -> Check:
    def checked(field: object) -> object:
        if type(field) is not list or len(field) > MOST_ITEMS:
            raise ValueError("expected a list")
        return tuple(check(item) for item in field)

    return checked


def _record(kind: type[Value], *checks: Check) -> Check:
    def checked(field: object) -> object:
        if type(field) is not list or len(field) != len(checks):
            raise ValueError(f"expected a {kind.__name__}")
        return kind(*[check(item) for check, item in zip(checks, field, strict=True)])

    return checked


_DEPUTIES = _many(_record(model.Deputy, _text, _text, _truth))
_STANDING = _record(
    model.Standing, _text, _count, _integer, _count, _slot, _count, _DEPUTIES, _count, _slot, _integer, _count, _truth
)
_JOIN = (_text, _text, _text, _text, _count, _text, _slot, _STANDING, _text, _count, _truth, _seconds, _seconds, _count)
_PLACE = (_text, _count, _count, _count, _slot, _count, _count, _count, _count, _text, _count, _count, _text, _DEPUTIES)
_SCHEMA: dict[str, tuple[type, tuple[Check, ...]]] = {
    "Join": (messages.Join, (*_JOIN, _many(_text), _many(_text))),
    "Renew": (messages.Renew, (_count, _count)),
    "Stopped": (messages.Stopped, (_count, _count, _truth)),
    "Placed": (messages.Placed, (_count,)),
    "Failed": (messages.Failed, (_count, _many(_text), _many(_seconds), _many(_truth), _truth)),
    "Done": (messages.Done, (_count,)),
    "Departing": (messages.Departing, (_text,)),
    "Leave": (messages.Leave, (_text,)),
    "Heard": (messages.Heard, ()),
    "Welcome": (messages.Welcome, (_count, _text, _seconds)),
    "Ack": (messages.Ack, (_count, _seconds)),
    "Stop": (messages.Stop, (_count, _text, _seconds)),
    "Place": (messages.Place, (*_PLACE, _count, _truth)),
    "Start": (messages.Start, (_count, _seconds)),
    "Waiting": (messages.Waiting, (_text,)),
    "Ended": (messages.Ended, (_text, _count, _text, _many(_text), _count)),
    "Farewell": (messages.Farewell, ()),
    "Redirect": (messages.Redirect, (_text, _count, _text)),
    "Refused": (messages.Refused, (_text,)),
    "Ask": (messages.Ask, (_text, _text, _text, _count, _integer, _truth)),
    "Leads": (messages.Leads, (_text, _text, _text, _count, _integer, _truth, _truth)),
}
