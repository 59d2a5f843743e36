"""Requests as bodies for etcd's JSON gateway, and its answers as replies. Pure; etcd 3.4 and later.

The gateway speaks protobuf's JSON: bytes are base64, 64-bit numbers are strings, and what is zero or empty is left out.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from math import ceil

from planaria.store.model import (
    Absent,
    Changed,
    Conflict,
    Delete,
    Deleted,
    Entry,
    Found,
    Get,
    Grant,
    Granted,
    LeaseGone,
    Left,
    List,
    Listed,
    Put,
    Refused,
    Remaining,
    Renew,
    Renewed,
    Revoke,
    Written,
    why_not_listed,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from planaria.store.model import Reply, Request

    Body = dict[str, object]

_LEASE_PATHS: Mapping[type, str] = {Renew: "/lease/keepalive", Revoke: "/lease/revoke", Remaining: "/lease/timetolive"}
_MALFORMED = (LookupError, TypeError, AttributeError)
_MOST_LISTED = 20_000  # no listing within its limit of bytes has as many keys


def body_of(asked: Request) -> tuple[str, Body]:
    """Return the gateway's path for a request and what to post there."""
    match asked:
        case Get(key):
            return "/kv/range", {"key": _b64(key)}
        case List(prefix):
            return "/kv/range", {**span(prefix), "limit": _MOST_LISTED}
        case Put(key, _, None):
            return "/kv/put", _put_body(asked)
        case Put(key, _, expect):
            return "/kv/txn", _if_revision(key, expect, {"request_put": _put_body(asked)})
        case Delete(key, None):
            return "/kv/deleterange", {"key": _b64(key)}
        case Delete(key, expect):
            return "/kv/txn", _if_revision(key, expect, {"request_delete_range": {"key": _b64(key)}})
        case Grant(ttl_s):
            return "/lease/grant", {"TTL": ceil(ttl_s)}
        case Renew(lease) | Revoke(lease) | Remaining(lease):
            return _LEASE_PATHS[type(asked)], {"ID": lease}


def reply_of(asked: Request, answer: Mapping[str, object]) -> Reply:
    """Return the reply in the gateway's answer to a request.

    Raises:
        ValueError: This is not an answer of etcd.
    """
    try:
        match asked:
            case Get() | List():
                return _range_reply(asked, answer)
            case Put() | Delete():
                return _write_reply(asked, answer)
            case Grant():
                return Granted(int(_at(answer, "ID")), float(_at(answer, "TTL")))
            case Renew():
                ttl_s = int(_at(_at(answer, "result"), "TTL", default="0"))
                return Renewed(float(ttl_s)) if ttl_s > 0 else LeaseGone()
            case Revoke():
                return LeaseGone()
            case Remaining():
                left_s = int(_at(answer, "TTL", default="0"))
                return Left(float(_at(answer, "grantedTTL")), float(left_s)) if left_s >= 0 else LeaseGone()
    except _MALFORMED as exc:
        raise ValueError(f"etcd's answer lacks a field: {exc}") from exc


def span(prefix: str) -> Body:
    """Return the range of every key that begins with `prefix`: up to the first that does not."""
    start = prefix.encode()
    if not start:
        return {"key": _b64("\0"), "range_end": _b64("\0")}  # etcd's way to say "all keys"
    return {"key": _b64(prefix), "range_end": b64encode(start[:-1] + bytes([start[-1] + 1])).decode()}


def changes_of(answer: Mapping[str, object]) -> tuple[Changed, ...]:
    """Return the changes in one message of a watch.

    Raises:
        ValueError: This is not a message of etcd's.
    """
    try:
        return tuple(_change(event) for event in _at(answer, "events", default=[]))
    except _MALFORMED as exc:
        raise ValueError(f"etcd's event lacks a field: {exc}") from exc


def revision_of(answer: Mapping[str, object]) -> int:
    """Return the store's revision when it answered.

    Raises:
        ValueError: This is not an answer of etcd.
    """
    try:
        return int(_at(answer, "header", "revision"))
    except _MALFORMED as exc:
        raise ValueError(f"etcd's answer lacks a field: {exc}") from exc


def _put_body(asked: Put) -> Body:
    body: Body = {"key": _b64(asked.key), "value": b64encode(asked.value).decode()}
    return body if asked.lease is None else {**body, "lease": asked.lease}


def _if_revision(key: str, expect: int | None, act: Body) -> Body:
    """Return a transaction: act if the key's revision is `expect` (0 when there is no key), else read it."""
    compare = {"key": _b64(key), "target": "MOD", "result": "EQUAL", "mod_revision": expect}
    return {"compare": [compare], "success": [act], "failure": [{"request_range": {"key": _b64(key)}}]}


def _range_reply(asked: Get | List, answer: Mapping[str, object]) -> Reply:
    entries = tuple(_entry(found) for found in _at(answer, "kvs", default=[]))
    if isinstance(asked, Get):
        return Found(entries[0].value, entries[0].revision, entries[0].lease) if entries else Absent()
    why = why_not_listed(entries)
    return Refused(why) if why else Listed(entries, revision_of(answer))


def _write_reply(asked: Put | Delete, answer: Mapping[str, object]) -> Reply:
    outcome = answer
    if asked.expect is not None:
        responses = _at(answer, "responses")
        if not answer.get("succeeded"):
            found = _at(responses[0], "response_range", "kvs", default=[])
            return Conflict(_entry(found[0]).revision if found else 0)
        outcome = responses[0].get("response_delete_range", {})
    if isinstance(asked, Put):
        return Written(revision_of(answer))
    return Deleted() if int(_at(outcome, "deleted", default="0")) else Absent()


def _entry(found: Mapping[str, str]) -> Entry:
    lease = int(found.get("lease", "0"))
    return Entry(_text(found["key"]), b64decode(found.get("value", "")), int(found["mod_revision"]), lease or None)


def _change(event: Mapping[str, Any]) -> Changed:
    found = event["kv"]
    value = None if event.get("type") == "DELETE" else b64decode(found.get("value", ""))
    return Changed(_text(found["key"]), value, int(found["mod_revision"]))


def _b64(text: str) -> str:
    return b64encode(text.encode()).decode()


def _text(coded: str) -> str:
    # Other users of the same etcd may have keys that are not UTF-8; ours always are.
    return b64decode(coded).decode(errors="replace")


def _at(found: object, *path: str, default: object = KeyError) -> Any:
    """Return what lies at the end of a path of names; every step but the last may be left out when there is a default."""
    for name in path:
        if not isinstance(found, dict):
            raise TypeError(f"{name} of what is not an object")
        if name not in found:
            if default is KeyError:
                raise KeyError(name)
            return default
        found = found[name]
    return found
