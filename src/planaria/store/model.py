"""What can be asked of a store and what it answers. The meaning is etcd v3's, cut to one key at a time.

Revisions and lease numbers are opaque: compare them for equality, and hand them back. Zero is the revision of a key that
does not exist. Times are seconds on the store's own clock; no moment of it ever leaves the store, only ages do.
"""

from __future__ import annotations

from planaria.base.value import Value

KEY_LIMIT_BYTES = 512
VALUE_LIMIT_BYTES = 64 << 10
LISTING_LIMIT_BYTES = 640 << 10
"""How much one `Listed` may hold; in base64 and JSON it still fits into one frame of 1 MiB."""
ENTRY_COST_BYTES = 32
"""What an entry costs beside its key and value, so that many small ones count too."""
TTL_LIMIT_S = 30 * 86400.0
NUMBER_LIMIT = 1 << 63
"""Revisions and leases are 64-bit numbers, as in etcd."""


class Get(Value):
    """Read one key: `Found` or `Absent`."""

    key: str


class List(Value):
    """Read every key that begins with `prefix`, at one moment: `Listed`."""

    prefix: str


class Put(Value):
    """Write a key if its revision is `expect` (None: whatever it is; 0: it does not exist): `Written` or `Conflict`.

    `lease`: the key goes when the lease ends; `LeaseGone` when there is no such lease. A Put without one detaches the key.
    """

    key: str
    value: bytes
    expect: int | None = None
    lease: int | None = None


class Delete(Value):
    """Remove a key if its revision is `expect`: `Deleted`, `Conflict`, or `Absent` when there was nothing to remove."""

    key: str
    expect: int | None = None


class Grant(Value):
    """Make a lease: `Granted`, with the time it was really given, which is never shorter."""

    ttl_s: float


class Renew(Value):
    """Let a lease run for its whole time again, from now on the store's clock: `Renewed` or `LeaseGone`."""

    lease: int


class Revoke(Value):
    """End a lease and remove its keys: `LeaseGone`, also when it had ended before."""

    lease: int


class Remaining(Value):
    """Ask how long a lease was given for and how much is left: `Left` or `LeaseGone`.

    A key that was written when its lease was granted, and not renewed since, is `granted_s - remaining_s` old.
    """

    lease: int


class Entry(Value):
    """One key of a listing."""

    key: str
    value: bytes
    revision: int
    lease: int | None = None


class Found(Value):
    """The key, as it is."""

    value: bytes
    revision: int
    lease: int | None = None


class Absent(Value):
    """There is no such key."""


class Listed(Value):
    """Entries in the order of their keys, all of one moment. `revision` is that moment: a watch may go on after it."""

    entries: tuple[Entry, ...]
    revision: int


class Written(Value):
    """Done; this is the key's revision now."""

    revision: int


class Conflict(Value):
    """Not done: the key's revision is another, 0 when it does not exist."""

    revision: int


class Deleted(Value):
    """Done: the key is gone."""


class Granted(Value):
    """A new lease."""

    lease: int
    ttl_s: float


class Renewed(Value):
    """The lease runs for `ttl_s` again."""

    ttl_s: float


class LeaseGone(Value):
    """There is no such lease, and none of its keys."""


class Left(Value):
    """What is left of a lease, to the second."""

    granted_s: float
    remaining_s: float


class Refused(Value):
    """The store will never do this, for the reason given. Nothing was changed."""

    why: str


class Denied(Value):
    """The store does not do this as things are. Nothing was changed; it may be asked again once somebody has seen to it.

    `by_rights`: we were not let in, or may not do this; else the store has no room.
    """

    why: str
    by_rights: bool


class Unavailable(Value):
    """No answer in time. `maybe_done`: the request may have been performed, now or a little later; read to find out."""

    why: str
    maybe_done: bool


class Changed(Value):
    """A watched key was written, or removed when `value` is None."""

    key: str
    value: bytes | None
    revision: int


class Resumed(Value):
    """The watch was cut off and goes on. Nothing was missed, if the store is the one that it was before.

    A store that cannot tell itself from one that was set up anew says so; whoever has to be sure lists again.
    """


class WatchLost(Value):
    """Changes were missed and this watch has ended: list again, and watch after that listing."""


Request = Get | List | Put | Delete | Grant | Renew | Revoke | Remaining
Reply = (
    Found
    | Absent
    | Listed
    | Written
    | Conflict
    | Deleted
    | Granted
    | Renewed
    | LeaseGone
    | Left
    | Refused
    | Denied
    | Unavailable
)
Event = Changed | Resumed | WatchLost

_REPEATABLE = (Get, List, Renew, Revoke, Remaining)


def is_repeatable(asked: Request) -> bool:
    """Tell whether performing a request twice is as good as once, so that one without an answer may be sent again."""
    return isinstance(asked, _REPEATABLE)


def why_refused(asked: Request) -> str | None:
    """Return the sentence that says why no store takes this request, or None when it is in order."""
    match asked:
        case Get(key) | Delete(key):
            return _why_not_key(key)
        case Put(key, value):
            return _why_not_key(key) or _why_not_value(value)
        case List(prefix):
            return why_not_prefix(prefix)
        case Grant(ttl_s):
            return (
                None if 0 < ttl_s <= TTL_LIMIT_S else f"a lease lasts more than 0 s and at most 30 days, not {ttl_s} s"
            )
        case _:
            return None


def why_not_prefix(prefix: str) -> str | None:
    """Return the sentence that says why nothing can be listed or watched under `prefix`, or None."""
    return _why_not_key(prefix) if prefix else None


def why_not_listed(entries: tuple[Entry, ...]) -> str | None:
    """Return the sentence that says why a listing is too long to be answered, or None."""
    size = sum(len(entry.key.encode()) + len(entry.value) + ENTRY_COST_BYTES for entry in entries)
    if size <= LISTING_LIMIT_BYTES:
        return None
    return f"{len(entries)} keys begin like this, more than a listing of {LISTING_LIMIT_BYTES} bytes holds: use a longer prefix"


def _why_not_key(key: str) -> str | None:
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "a key is text that UTF-8 can carry"
    if not 0 < size <= KEY_LIMIT_BYTES:
        return f"a key has 1 to {KEY_LIMIT_BYTES} bytes, not {size}"
    if any(character < " " or character == "\x7f" for character in key):
        return "a key has no control characters"
    return None


def _why_not_value(value: bytes) -> str | None:
    if len(value) > VALUE_LIMIT_BYTES:
        return f"a value has at most {VALUE_LIMIT_BYTES} bytes, not {len(value)}"
    return None
