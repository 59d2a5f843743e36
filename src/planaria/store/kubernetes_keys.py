"""The keys of a store as one ConfigMap holds them: an index, the values, and the newest changes. Pure.

`data` has the index as JSON, `binaryData` the values, each under the revision that wrote it. Kubernetes gives a watcher whole
objects and forgets old ones after minutes; because the newest changes are kept beside the keys, whoever sees any version of
the object can tell what has changed since another, or that too much has. The start of all revisions follows from the object's
UID: in an object that was made anew nothing of before matches.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode

from planaria.store.model import (
    Absent,
    Changed,
    Conflict,
    Delete,
    Deleted,
    Denied,
    Entry,
    Found,
    Get,
    List,
    Listed,
    Put,
    Refused,
    Written,
    why_not_listed,
)
from planaria.store.model import LeaseGone as Gone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from planaria.store.model import Reply

    Json = dict[str, Any]
    KeyRequest = Get | List | Put | Delete

INDEX = "planaria.index"
VALUE = "planaria.value."
VERSION = 1
MOST_CHANGES = 256  # that are remembered; one write of the object brings a quarter of them at most
MOST_PAST_BYTES = 128 << 10  # of values that are remembered only for those who watch
SIZE_LIMIT_BYTES = (1 << 20) - (8 << 10)  # a ConfigMap has at most 1 MiB of data, and others may keep some there
_CHANGE_BYTES = 48  # what a change costs in the index beside its key
BROKEN = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)
"""What reading something that is not ours, or no JSON at all, may raise."""


class Keys:
    """What the object says, and what requests make of it. A copy is changed; the object is written from it."""

    def __init__(self, start: int) -> None:
        self.revision = start
        self.forgotten = start
        self.leases: set[int] = set()
        self.history: list[Changed] = []
        self._entries: dict[str, Entry] = {}
        self._size_bytes = 0
        self._past_bytes = 0

    def copy(self) -> Keys:
        """Return one that can be changed without this one."""
        other = Keys(self.revision)
        other.forgotten = self.forgotten
        other.leases = set(self.leases)
        other.history = list(self.history)
        other._entries = dict(self._entries)
        other._size_bytes, other._past_bytes = self._size_bytes, self._past_bytes
        return other

    def perform(self, asked: KeyRequest) -> Reply:
        """Do what is asked, which is within the limits of every store."""
        match asked:
            case Get(key):
                found = self._entries.get(key)
                return Found(found.value, found.revision, found.lease) if found else Absent()
            case List(prefix):
                return self._list(prefix)
            case Put():
                return self._put(asked)
            case Delete(key, expect):
                before = self._entries.get(key)
                if expect is not None and expect != _revision_of(before):
                    return Conflict(_revision_of(before))
                if before is None:
                    return Absent()
                self._remove(before)
                return Deleted()

    def end_leases(self, ended: Iterable[int]) -> bool:
        """Remove leases and the keys that hang on them; tell whether there was any of them."""
        gone = self.leases.intersection(ended)
        for entry in sorted(self._entries.values(), key=lambda one: one.key):
            if entry.lease in gone:
                self._remove(entry)
        self.leases -= gone
        return bool(gone)

    def changes_after(self, revision: int) -> tuple[Changed, ...] | None:
        """Return what has changed since a revision, in order, or None when not all of it is remembered."""
        if not self.forgotten <= revision <= self.revision:
            return None
        return tuple(change for change in self.history if change.revision > revision)

    def entries(self) -> list[Entry]:
        """Return the keys in the order of their bytes."""
        return sorted(self._entries.values(), key=lambda entry: entry.key.encode())

    def load(self, entries: Iterable[Entry], history: Iterable[Changed], leases: Iterable[int], forgotten: int) -> None:
        """Take what an object holds."""
        for entry in entries:
            self._entries[entry.key] = entry
            self._size_bytes += _cost(entry.key, entry.value)
        self.history = list(history)
        self.leases = set(leases)
        self.forgotten = forgotten
        current = {entry.revision for entry in self._entries.values()}
        self._past_bytes = sum(len(change.value or b"") for change in self.history if change.revision not in current)

    def _list(self, prefix: str) -> Reply:
        found = tuple(entry for entry in self.entries() if entry.key.startswith(prefix))
        why = why_not_listed(found)
        return Refused(why) if why else Listed(found, self.revision)

    def _put(self, asked: Put) -> Reply:
        before = self._entries.get(asked.key)
        if asked.expect is not None and asked.expect != _revision_of(before):
            return Conflict(_revision_of(before))
        if asked.lease is not None and asked.lease not in self.leases:
            return Gone()
        saved_bytes = _cost(before.key, before.value) if before else 0
        size_bytes = self._size_bytes + _cost(asked.key, asked.value) - saved_bytes
        if size_bytes > SIZE_LIMIT_BYTES:
            return Denied(f"the store is full: its ConfigMap holds at most {SIZE_LIMIT_BYTES} bytes", by_rights=False)
        self._size_bytes = size_bytes
        self._tell(before, Changed(asked.key, asked.value, self.revision + 1))
        self._entries[asked.key] = Entry(asked.key, asked.value, self.revision, asked.lease)
        return Written(self.revision)

    def _remove(self, entry: Entry) -> None:
        del self._entries[entry.key]
        self._size_bytes -= _cost(entry.key, entry.value)
        self._tell(entry, Changed(entry.key, None, self.revision + 1))

    def _tell(self, before: Entry | None, change: Changed) -> None:
        """Remember a change; the value before it is kept for those who watch, for a while."""
        self.revision += 1
        self.history.append(change)
        if before is not None and before.revision > self.forgotten:
            self._past_bytes += len(before.value)

    def trim(self) -> None:
        """Forget the oldest changes until the rest fits into an object beside the keys."""
        index_bytes = sum(len(change.key.encode()) + _CHANGE_BYTES for change in self.history)
        current = {entry.revision for entry in self._entries.values()}
        drop = 0
        while drop < len(self.history) and (
            len(self.history) - drop > MOST_CHANGES
            or self._past_bytes > MOST_PAST_BYTES
            or self._size_bytes + self._past_bytes + index_bytes > SIZE_LIMIT_BYTES
        ):
            change = self.history[drop]
            index_bytes -= len(change.key.encode()) + _CHANGE_BYTES
            if change.revision not in current:
                self._past_bytes -= len(change.value or b"")
            self.forgotten = change.revision
            drop += 1
        del self.history[:drop]


def read_keys(found: Mapping[str, Any]) -> Keys:
    """Return the keys in a ConfigMap; one that nobody has written to has none.

    Raises:
        ValueError: What is there is not ours.
    """
    keys = Keys(_start(found))
    try:
        index = _index(found)
        if index is None:
            return keys
        values = _Values(found)
        keys.revision = int(index["revision"])
        entries = [
            Entry(str(key), values.of(revision), int(revision), lease)
            for key, (revision, lease) in index["keys"].items()
        ]
        history = [
            Changed(str(key), None if removed else values.of(revision), int(revision))
            for revision, key, removed in index["changes"]
        ]
        keys.load(entries, history, map(int, index["leases"]), int(index["forgotten"]))
    except BROKEN as exc:
        raise not_ours(f"{INDEX} of the ConfigMap", exc) from exc
    return keys


def read_values(found: Mapping[str, Any], wanted: Iterable[str]) -> dict[str, bytes]:
    """Return the values of those of the wanted keys that are in a ConfigMap, and look at no others.

    Raises:
        ValueError: What is there is not ours.
    """
    try:
        index, values = _index(found), _Values(found)
        keys = {} if index is None else index["keys"]
        return {key: values.of(keys[key][0]) for key in wanted if key in keys}
    except BROKEN as exc:
        raise not_ours(f"{INDEX} of the ConfigMap", exc) from exc


def not_ours(what: str, why: Exception) -> ValueError:
    """Return the error that says so. Only a ValueError has a sentence of its own: a KeyError has a bare word."""
    return ValueError(f"{what} is not ours: {why if isinstance(why, ValueError) else repr(why)}")


def write_keys(found: Mapping[str, Any], keys: Keys) -> Json:
    """Return the ConfigMap with these keys; whatever else is in it stays."""
    entries = keys.entries()
    index = {
        "version": VERSION,
        "revision": keys.revision,
        "forgotten": keys.forgotten,
        "leases": sorted(keys.leases),
        "keys": {entry.key: [entry.revision, entry.lease] for entry in entries},
        "changes": [[change.revision, change.key, int(change.value is None)] for change in keys.history],
    }
    values = {change.revision: change.value for change in keys.history if change.value is not None}
    values.update((entry.revision, entry.value) for entry in entries)
    others = {name: text for name, text in (found.get("binaryData") or {}).items() if not name.startswith(VALUE)}
    coded = {f"{VALUE}{revision}": b64encode(value).decode() for revision, value in sorted(values.items())}
    data = {**(found.get("data") or {}), INDEX: json.dumps(index, ensure_ascii=False, separators=(",", ":"))}
    return {**found, "data": data, "binaryData": {**others, **coded}}


def _start(found: Mapping[str, Any]) -> int:
    """Return the revision before the first: 40 bits of a UID, which no other object ever has."""
    uid = str((found.get("metadata") or {}).get("uid", ""))
    digits = "".join(digit for digit in uid if digit in "0123456789abcdef")
    return int(digits[-10:] or "0", 16)


def _index(found: Mapping[str, Any]) -> Json | None:
    text = (found.get("data") or {}).get(INDEX)
    if text is None:
        return None
    index: Json = json.loads(text)
    if index["version"] != VERSION:
        raise ValueError(f"it is of version {index['version']!r}, ours is {VERSION}")
    return index


class _Values:
    """The values in an object, each decoded once, however many keys and changes name its revision."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        self._coded = found.get("binaryData") or {}
        self._known: dict[int, bytes] = {}

    def of(self, revision: object) -> bytes:
        number = int(str(revision))
        if number not in self._known:
            coded = self._coded[f"{VALUE}{number}"] or ""  # nothing at all may come back as null
            self._known[number] = b64decode(coded, validate=True)
        return self._known[number]


def _cost(key: str, value: bytes) -> int:
    return len(key.encode()) + len(value) + _CHANGE_BYTES


def _revision_of(entry: Entry | None) -> int:
    return entry.revision if entry is not None else 0
