"""What the API server holds of one kind, kept by a list and a watch. Changes only wake; nobody decides from an event.

A copy is behind by as much as the watch is. Who writes tells the copy (`wrote`, `gone`), so that it does not decide the same
twice, and every write says which version or uid it means: what was decided from an old copy is refused, not done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from planaria.base.value import Value
from planaria.errors import KubeError
from planaria.kube.names import JOB_LABEL

if TYPE_CHECKING:
    from planaria.kube.api import Api, Change
    from planaria.kube.model import Json
    from planaria.kube.resources import Kind

    Key = tuple[str, str]  # namespace and name

_FIRST_S = 0.5
_MOST_S = 30.0
_AWAY_S = 5.0  # while nobody answers: it costs little to ask, and much not to know that the server is back
SILENT_S = 900.0  # a watch ends and begins anew every minute, so it is heard of though nothing changes
_GONE = 410
TOO_LONG = "LineTooLong"  # the reason of a watch that ended for a change that is too long to be read
_MOST_BURIED = 1000  # more than can be gone while an answer is on its way


class Selection(Value):
    """Which objects are watched: a kind, in a few namespaces or in all, by labels; with `metadata`, without what they hold."""

    kind: Kind
    namespaces: tuple[str, ...] = ("",)  # the empty one: all
    labels: str = ""
    metadata: bool = False


def trimmed(obj: Json) -> Json:
    """Drop what nobody reads: the books of server-side apply are often half of an object."""
    obj["metadata"].pop("managedFields", None)
    return obj


class Copy:
    """All objects of one selection. `wake(old, new)` is called for every change, None standing for an object that is not."""

    def __init__(
        self,
        selection: Selection,
        wake: Callable[[Json | None, Json | None], object],
        keep: Callable[[Json], Json] = trimmed,
    ) -> None:
        self.selection = selection
        self.is_synced = asyncio.Event()
        self._unlisted = set(selection.namespaces)
        self.say: Callable[[str], object] = lambda _words: None
        self._wake = wake
        self._keep = keep
        self._objects: dict[Key, Json] = {}
        self._of_job: dict[Key, set[Key]] = {}
        self._written: set[Key] = set()  # by us, since the last list was asked for
        self._buried: dict[
            str, None
        ] = {}  # uids of what is gone, the oldest first: an answer that comes late revives nobody
        self._unread: set[Key] = set()

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Json]:
        return iter(list(self._objects.values()))

    def get(self, key: Key) -> Json | None:
        """Return one object."""
        return self._objects.get(key)

    def of_job(self, job: Key) -> Iterable[Json]:
        """Return the objects that carry a job's label, sorted by name."""
        return [self._objects[key] for key in sorted(self._of_job.get(job, ()))]

    def keep(self, obj: Json) -> Json:
        """Return what stays of an object. Its owner may write what he likes: at worst there is its metadata alone."""
        key = key_of(obj)
        try:
            kept = self._keep(obj)
        except Exception as problem:  # noqa: BLE001  one object must not end the operator of all
            if key not in self._unread:
                self._unread.add(key)
                self.say(f"{self.selection.kind.name} {'/'.join(key)} is not read: {type(problem).__name__}")
            return {"metadata": trimmed(obj)["metadata"]}
        self._unread.discard(key)
        return kept

    def wrote(self, obj: Json) -> None:
        """Take what the server answered to a write of ours; the watch tells it later, or was faster."""
        if obj["metadata"].get("uid") not in self._buried:
            self._written.add(key_of(obj))
            self._put(self.keep(obj))

    def expect(self, namespace: str = "") -> None:
        """Take note that a list is asked for: what is written from now on may not be in it."""
        self._written = {key for key in self._written if not _is_in(key, namespace)}

    def gone(self, key: Key, uid: str) -> None:
        """Take note that an object is not there any more."""
        found = self._objects.get(key)
        if found is not None and found["metadata"].get("uid") == uid:
            self._drop(key)

    def reset(self, items: Iterable[Json], namespace: str = "") -> None:
        """Take a whole list, of which `keep` has seen every object: what is not in it is gone."""
        fresh = {key_of(obj): obj for obj in items}
        for key in [key for key in self._objects if key not in fresh and _is_in(key, namespace)]:
            self._drop(key)
        for obj in fresh.values():
            self._put(obj, is_listed=True)
        self._unlisted.discard(namespace)
        if not self._unlisted:
            self.is_synced.set()

    def take(self, change: Change) -> None:
        """Take one change of the watch."""
        if change.kind == "DELETED":
            uid = change.obj["metadata"].get("uid", "")
            self._bury(uid)
            self.gone(key_of(change.obj), uid)
        elif change.kind in ("ADDED", "MODIFIED"):
            self._put(self.keep(change.obj))

    def _put(self, obj: Json, *, is_listed: bool = False) -> None:
        key = key_of(obj)
        old = self._objects.get(key)
        # A list may be older than all we know, after a server was restored; not than what was written while it was on its way.
        believes = is_listed and key not in self._written
        if old is not None and (_same(old, obj) or (not believes and _is_older(obj, old))):
            return
        if old is not None:
            self._unlist(old)  # its label may be another now
        self._objects[key] = obj
        job = _job(obj)
        if job:
            self._of_job.setdefault(job, set()).add(key)
        self._wake(old, obj)

    def _bury(self, uid: str) -> None:
        self._buried[uid] = None
        if len(self._buried) > _MOST_BURIED:
            del self._buried[next(iter(self._buried))]

    def _drop(self, key: Key) -> None:
        old = self._objects.pop(key)
        self._written.discard(key)
        self._unread.discard(key)
        self._bury(old["metadata"].get("uid", ""))
        self._unlist(old)
        self._wake(old, None)

    def _unlist(self, obj: Json) -> None:
        """Take an object out of those of the job whose label it bears."""
        job = _job(obj)
        if job:
            left = self._of_job.get(job, set())
            left.discard(key_of(obj))
            if not left:
                self._of_job.pop(job, None)


class Watcher:
    """Keeps what a copy has of one namespace: lists, watches, and lists again when the server has forgotten where it was."""

    def __init__(
        self, api: Api, copy: Copy, chance: Callable[[], float], say: Callable[[str], object], namespace: str = ""
    ) -> None:
        self.copy = copy
        self._namespace = namespace
        self.heard_at = time.monotonic()
        self._api = api
        self._chance = chance
        self._say = copy.say = say
        self._version = ""
        self._failures = 0

    async def run(self) -> None:
        """Never returns."""
        while True:
            try:
                await self._follow()
                self._failures = 0
            except KubeError as problem:
                await self._failed(problem)

    async def _follow(self) -> None:
        chosen, namespace = self.copy.selection, self._namespace
        if not self._version:
            self.copy.expect(namespace)
            listed = await self._api.list(
                chosen.kind, namespace, labels=chosen.labels, metadata=chosen.metadata, keep=self.copy.keep
            )
            self.copy.reset(listed.items, namespace)
            self._version = listed.version
            self._heard()
        changes = self._api.watch(chosen.kind, namespace, self._version, labels=chosen.labels, metadata=chosen.metadata)
        async for change in changes:
            self._version = change.obj["metadata"]["resourceVersion"]
            self.copy.take(change)
            self._heard()
        self._heard()

    def _heard(self) -> None:
        self.heard_at = time.monotonic()
        self._failures = 0

    async def _failed(self, problem: KubeError) -> None:
        if problem.status == _GONE and self._version:
            self._version = ""  # forgotten there: what we missed is in a fresh list
            return
        if problem.reason == TOO_LONG:
            self._version = ""  # a list has no lines
        self._failures += 1
        if self._failures == 1 or problem.status:
            self._say(f"the watch of {self.copy.selection.kind.plural} stopped and will be tried again: {problem}")
        most_s = _MOST_S if problem.status else _AWAY_S
        wait = min(most_s, _FIRST_S * 2 ** min(self._failures, 10)) * (0.5 + self._chance() / 2)
        await asyncio.sleep(max(wait, problem.retry_after_s))


def silence(watchers: Iterable[Watcher], now: float) -> str:
    """Say which watches have heard nothing for so long that starting anew may help; "" for none."""
    silent = {watcher.copy.selection.kind.plural: None for watcher in watchers if now - watcher.heard_at > SILENT_S}
    return f"nothing was heard of {', '.join(silent)} for {SILENT_S:g} s" if silent else ""


def key_of(obj: Json) -> Key:
    """Return the namespace and the name of an object."""
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


def _is_in(key: Key, namespace: str) -> bool:
    return not namespace or key[0] == namespace


def _job(obj: Json) -> Key | None:
    meta = obj["metadata"]
    name = (meta.get("labels") or {}).get(JOB_LABEL)
    return (meta.get("namespace", ""), name) if name else None


def _same(old: Json, new: Json) -> bool:
    return old["metadata"].get("uid") == new["metadata"].get("uid") and _version(old) == _version(new)


def _is_older(obj: Json, than: Json) -> bool:
    """Tell whether the watch is behind what we wrote ourselves. Versions that are no numbers are taken as they come."""
    mine, other = _version(than), _version(obj)
    return mine.isdigit() and other.isdigit() and int(other) < int(mine)


def _version(obj: Json) -> str:
    return str(obj["metadata"].get("resourceVersion", ""))
