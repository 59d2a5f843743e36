"""The embedded store's language: JSON arrays `[kind, field, ...]`, one a frame, checked field by field.

A client begins with `Hello` and is answered `Welcome` or `Bye`. Then it may send `Ask` (answered by one `Answer`),
`Watch` (answered by `Told` or `Lost`), `Seen` (the last `Told` was handled: send the next) and `Unwatch`. Numbers are
the client's own. A version that one side does not know ends the connection with a sentence, never with a guess.
"""

from __future__ import annotations

import json
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64

from planaria.base.value import Value
from planaria.store import model
from planaria.store.model import Changed, Entry, Reply, Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

VERSION = 1
_LONGEST_WHY = 1000


class Hello(Value):
    """The client's first message."""

    version: int


class Ask(Value):
    """Perform a request."""

    number: int
    request: Request


class Watch(Value):
    """Tell what changes under `prefix` after a revision."""

    number: int
    prefix: str
    after: int


class Seen(Value):
    """The last `Told` of this watch was handled."""

    number: int


class Unwatch(Value):
    """Tell no more of this watch."""

    number: int


class Welcome(Value):
    """The server speaks this version too."""

    version: int


class Answer(Value):
    """The one answer to an `Ask`."""

    number: int
    reply: Reply


class Told(Value):
    """What changed, and the revision up to which nothing is missing."""

    number: int
    changes: tuple[Changed, ...]
    position: int


class Lost(Value):
    """Changes were forgotten before they were told; the watch has ended."""

    number: int


class Bye(Value):
    """The server ends the connection, for this reason."""

    why: str


FromClient = Hello | Ask | Watch | Seen | Unwatch
FromServer = Welcome | Answer | Told | Lost | Bye

# What each field must be. "?" allows null, "*" is a list of records, "request" and "reply" are records of those kinds.
_REQUESTS: dict[str, tuple[type[Value], tuple[str, ...]]] = {
    "get": (model.Get, ("text",)),
    "list": (model.List, ("text",)),
    "put": (model.Put, ("text", "bytes", "int?", "int?")),
    "delete": (model.Delete, ("text", "int?")),
    "grant": (model.Grant, ("seconds",)),
    "renew": (model.Renew, ("int",)),
    "revoke": (model.Revoke, ("int",)),
    "remaining": (model.Remaining, ("int",)),
}
_REPLIES: dict[str, tuple[type[Value], tuple[str, ...]]] = {
    "found": (model.Found, ("bytes", "int", "int?")),
    "absent": (model.Absent, ()),
    "listed": (model.Listed, ("entry*", "int")),
    "written": (model.Written, ("int",)),
    "conflict": (model.Conflict, ("int",)),
    "deleted": (model.Deleted, ()),
    "granted": (model.Granted, ("int", "seconds")),
    "renewed": (model.Renewed, ("seconds",)),
    "gone": (model.LeaseGone, ()),
    "left": (model.Left, ("seconds", "seconds")),
    "refused": (model.Refused, ("why",)),
    "denied": (model.Denied, ("why", "bool")),
}
_FROM_CLIENT: dict[str, tuple[type[Value], tuple[str, ...]]] = {
    "hello": (Hello, ("int",)),
    "ask": (Ask, ("int", "request")),
    "watch": (Watch, ("int", "text", "int")),
    "seen": (Seen, ("int",)),
    "unwatch": (Unwatch, ("int",)),
}
_FROM_SERVER: dict[str, tuple[type[Value], tuple[str, ...]]] = {
    "welcome": (Welcome, ("int",)),
    "answer": (Answer, ("int", "reply")),
    "told": (Told, ("int", "changed*", "int")),
    "lost": (Lost, ("int",)),
    "bye": (Bye, ("why",)),
}
_RECORDS: dict[str, tuple[type[Value], tuple[str, ...]]] = {
    "entry": (Entry, ("text", "bytes", "int", "int?")),
    "changed": (Changed, ("text", "bytes?", "int")),
}
_NESTED = {"request": _REQUESTS, "reply": _REPLIES}
_KINDS = {
    cls: (kind, fields)
    for table in (_REQUESTS, _REPLIES, _FROM_CLIENT, _FROM_SERVER)
    for kind, (cls, fields) in table.items()
}


def encode(message: FromClient | FromServer) -> bytes:
    """Return the frame for a message."""
    return json.dumps(_plain(message), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def decode_from_client(frame: bytes) -> FromClient:
    """Return the message in a client's frame.

    Raises:
        ValueError: The frame is none; the sentence says why.
    """
    message = _record(_parse(frame), _FROM_CLIENT)
    assert isinstance(message, FromClient)
    return message


def decode_from_server(frame: bytes) -> FromServer:
    """Return the message in a server's frame.

    Raises:
        ValueError: The frame is none; the sentence says why.
    """
    message = _record(_parse(frame), _FROM_SERVER)
    assert isinstance(message, FromServer)
    return message


def _plain(item: object) -> object:
    if isinstance(item, Value):
        values = [_plain(getattr(item, name)) for name in type(item)._fields]
        return values if isinstance(item, (Entry, Changed)) else [_KINDS[type(item)][0], *values]
    if isinstance(item, bytes):
        return b2a_base64(item, newline=False).decode()
    if isinstance(item, tuple):
        return [_plain(part) for part in item]
    return item


def _parse(frame: bytes) -> object:
    try:
        return json.loads(frame, parse_constant=_no_constant)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number that can be sent")


def _record(found: object, table: dict[str, tuple[type[Value], tuple[str, ...]]]) -> Value:
    """Read `[kind, field, ...]` by a table of kinds."""
    if not isinstance(found, list) or not found or not isinstance(found[0], str) or found[0] not in table:
        raise ValueError("not a message of this protocol")
    return _fields(found[1:], *table[found[0]])


def _fields(found: list[object], cls: type[Value], wanted: tuple[str, ...]) -> Value:
    if len(found) != len(wanted):
        raise ValueError(f"{cls.__name__} has {len(wanted)} fields, not {len(found)}")
    return cls(*[_field(item, kind) for item, kind in zip(found, wanted, strict=True)])


def _field(item: object, kind: str) -> object:
    if kind.endswith("?"):
        return None if item is None else _field(item, kind[:-1])
    if kind.endswith("*"):
        return _list_of(item, *_RECORDS[kind[:-1]])
    if kind in _NESTED:
        return _record(item, _NESTED[kind])
    match kind, item:
        case "int", int() if type(item) is int and 0 <= item < model.NUMBER_LIMIT:
            return item
        case "seconds", int() | float() if type(item) is not bool and abs(item) < model.NUMBER_LIMIT:
            return float(item)
        case ("text", str()) | ("bool", bool()):
            return item
        case "why", str() if len(item) <= _LONGEST_WHY:
            return item
        case "bytes", str():
            return _bytes(item)
    raise ValueError(f"a field that should be of kind {kind} is not")


def _list_of(found: object, cls: type[Value], wanted: tuple[str, ...]) -> tuple[Value, ...]:
    if not isinstance(found, list) or not all(isinstance(part, list) for part in found):
        raise ValueError(f"not a list of {cls.__name__} records")
    return tuple(_fields(part, cls, wanted) for part in found)


def _bytes(text: str) -> bytes:
    try:
        return a2b_base64(text.encode("ascii"), strict_mode=True)
    except (Base64Error, UnicodeEncodeError) as exc:
        raise ValueError("not base64") from exc
