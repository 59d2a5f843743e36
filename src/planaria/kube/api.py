"""The one door to a Kubernetes API server: plain JSON in, plain JSON out. What goes wrong comes out as one sentence.

Nothing is retried in here: who calls decides from `KubeError.retryable`. Only a server that asks for quiet (429 with
Retry-After) gets it from all callers at once, since each of them would otherwise have to be told by itself. One object may be
exempt, such as a Lease whose renewal is small and cannot wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.http import HttpProcessingError

from planaria.base.text import safe_line
from planaria.base.value import Value
from planaria.errors import KubeError, UsageError
from planaria.kube import shallow
from planaria.kube.resources import CONFIG_MAP, JOB, KINDS, POD, Kind, path
from planaria.kube.watching import TOO_LONG

if TYPE_CHECKING:
    from planaria.kube.model import Json

CALL_S = 15.0  # one call; the server itself gives up after 60
WATCH_S = 60  # a watch ends and goes on where it was: a connection that died unseen costs no more than this
_PAGE, _METADATA_PAGE = 50, 500  # objects of one page of a list, which has to fit into memory
_LARGE_PAGE = 10
_LARGE = (JOB, POD, CONFIG_MAP)  # anybody's: one may have 1.5 MB, and ten times of that when it is read
_LINE_BYTES = 16 << 20  # of a watch: an object has 1.5 MB in etcd, and six times of that where all of it is escaped
_MOST_QUIET_S = 30.0
_GOODBYE_S = 0.25
_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadata{many};g=meta.k8s.io;v=v1"
_MERGE = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"  # JSON is YAML
MANAGER = "planaria"


class Call(Value):
    """One call, told to `before_call` before it is made."""

    method: str
    path: str
    name: str = ""  # of the object that is made, which is not part of the path

    @property
    def writes(self) -> bool:
        """Tell whether the call may change something."""
        return self.method != "GET"


class _Request(Value):
    """All of a call."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: Json | None = None
    accept: str = _JSON
    content: str = _JSON

    @property
    def call(self) -> Call:
        """Return what is told before it is made."""
        made = (self.body or {}).get("metadata", {}) if self.method == "POST" else {}
        return Call(self.method, self.path, str(made.get("name", "")))


class Listed(Value):
    """All objects of a kind at one moment, and the version of that moment."""

    items: tuple[Json, ...]
    version: str


class Change(Value):
    """One change of a watch: ADDED, MODIFIED, DELETED or BOOKMARK."""

    kind: str
    obj: Json


class Api:
    """An API server. `rest` and `token` come from `connect`; `before_call` sees every call and may refuse it by raising."""

    def __init__(
        self,
        host: str,
        rest: Any,
        token: Callable[[], Any],
        before_call: Callable[[Call], None] = lambda _: None,
    ) -> None:
        self.host = host
        self.before_call = before_call
        self._rest = rest
        self._token = token
        self._quiet_until = 0.0
        self.exempt = ""  # the path of an object that is written though the server asks for quiet

    async def close(self) -> None:
        """Close all connections."""
        await self._rest.close()
        await asyncio.sleep(_GOODBYE_S)  # the library says goodbye on TLS connections later, and nobody can wait for it

    async def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        """Return an object; None if there is none."""
        with contextlib.suppress(_Missing):
            return await self._json(_Request("GET", path(kind, namespace, name)))
        return None

    async def list(
        self,
        kind: Kind,
        namespace: str = "",
        *,
        labels: str = "",
        metadata: bool = False,
        keep: Callable[[Json], Json] = lambda obj: obj,
    ) -> Listed:
        """Return all objects of a kind, of one namespace or of all. They come page by page; of each, `keep` says what stays.

        Raises:
            KubeError: Status 410 if it took so long that the server forgot the first page.
        """
        items: list[Json] = []
        limit = _METADATA_PAGE if metadata else _LARGE_PAGE if kind in _LARGE else _PAGE
        query = {"limit": str(limit)} | ({"labelSelector": labels} if labels else {})
        while True:
            page = await self._json(_Request("GET", path(kind, namespace), query, accept=_accept(metadata, many=True)))
            items += map(keep, page.get("items") or ())
            follows = page["metadata"].get("continue")
            if not follows:
                return Listed(tuple(items), page["metadata"]["resourceVersion"])
            query["continue"] = follows

    async def watch(
        self, kind: Kind, namespace: str, version: str, *, labels: str = "", metadata: bool = False
    ) -> AsyncIterator[Change]:
        """Tell what changes after `version`, for about a minute.

        Raises:
            KubeError: Status 410 if the server does not remember that version any more, reason TOO_LONG if a change is too
                long to be read: list again.
        """
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        } | ({"labelSelector": labels} if labels else {})
        asked = _Request("GET", path(kind, namespace), query, accept=_accept(metadata, many=False))
        timeout = aiohttp.ClientTimeout(connect=CALL_S, sock_connect=CALL_S, sock_read=WATCH_S + CALL_S)
        with _translated(asked, self.host):
            reply = await self._send(asked, timeout)
            try:
                await self._check(reply, asked)
                async for line in lines_of(reply.content.iter_any()):
                    yield _change(shallow.read(line), asked)
            finally:
                reply.close()

    async def create(self, obj: Json) -> Json:
        """Make an object.

        Raises:
            KubeError: Status 409 and reason AlreadyExists if there is one of that name.
        """
        kind = KINDS[obj["kind"]]
        return await self._json(_Request("POST", path(kind, obj["metadata"].get("namespace", "")), body=obj))

    async def replace(self, obj: Json, part: str = "") -> Json:
        """Write an object, or only its part `status`, if it is still of the version that `obj` says.

        Raises:
            KubeError: Status 409 if somebody wrote first.
        """
        kind, meta = KINDS[obj["kind"]], obj["metadata"]
        return await self._json(_Request("PUT", path(kind, meta.get("namespace", ""), meta["name"], part), body=obj))

    async def patch(self, kind: Kind, namespace: str, name: str, changes: Json, part: str = "") -> Json:
        """Merge changes into an object; with a resourceVersion among them, only if it is still of that version."""
        return await self._json(_Request("PATCH", path(kind, namespace, name, part), body=changes, content=_MERGE))

    async def apply(self, obj: Json) -> Json:
        """Make an object, or bring it to what `obj` says, by a server-side apply that takes over what others had set."""
        kind, meta = KINDS[obj["kind"]], obj["metadata"]
        query = {"fieldManager": MANAGER, "force": "true"}
        where = path(kind, meta.get("namespace", ""), meta["name"])
        return await self._json(_Request("PATCH", where, query, obj, content=_APPLY))

    async def delete(
        self, kind: Kind, namespace: str, name: str, *, uid: str = "", grace_s: float | None = None
    ) -> Json | None:
        """Delete an object, if it is still the one with that uid; without `grace_s`, a pod has its own grace.

        Return the server's answer: the object as long as it is still to end, else a Status; None if there is none.

        Raises:
            KubeError: Status 409 if it is another one.
        """
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        options |= {"preconditions": {"uid": uid}} if uid else {}
        options |= {"gracePeriodSeconds": max(0, int(grace_s))} if grace_s is not None else {}
        with contextlib.suppress(_Missing):
            return await self._json(_Request("DELETE", path(kind, namespace, name), body=options))
        return None

    async def log(self, namespace: str, pod: str, container: str, query: Mapping[str, str]) -> str:
        """Return what a container printed, as `query` asks for it; never follows."""
        where = path(POD, namespace, pod, "log")
        raw = await self._read(_Request("GET", where, {"container": container, **query}, accept="*/*"))
        return raw.decode("utf-8", "replace")

    async def _json(self, asked: _Request) -> Json:
        found: Json = shallow.read(await self._read(asked))
        return found

    async def _read(self, asked: _Request) -> bytes:
        with _translated(asked, self.host):
            reply = await self._send(asked, aiohttp.ClientTimeout(total=CALL_S))
            try:
                await self._check(reply, asked)
                raw: bytes = await reply.read()
            finally:
                reply.release()
        return raw

    async def _send(self, asked: _Request, timeout: aiohttp.ClientTimeout) -> Any:
        if asked.path != self.exempt:
            await self._quiet()
        headers = {"Accept": asked.accept, "Content-Type": asked.content, "User-Agent": MANAGER}
        token = await self._token()
        if token:
            headers["Authorization"] = token
        self.before_call(asked.call)
        return await self._rest.request(
            asked.method,
            self.host + asked.path,
            query_params=dict(asked.query),
            headers=headers,
            body=asked.body,
            _preload_content=False,
            _request_timeout=timeout,
        )

    async def _quiet(self) -> None:
        while (left := self._quiet_until - time.monotonic()) > 0:
            await asyncio.sleep(left)

    async def _check(self, reply: Any, asked: _Request) -> None:
        try:
            await _check(reply, asked)
        except KubeError as problem:
            if problem.status == 429:
                wait = min(problem.retry_after_s or 1.0, _MOST_QUIET_S)
                self._quiet_until = max(self._quiet_until, time.monotonic() + wait)
            raise


class _Missing(KubeError):
    """Status 404."""


def _accept(metadata: bool, *, many: bool) -> str:
    return _METADATA.format(many="List" if many else "") if metadata else _JSON


def _change(found: Json, asked: _Request) -> Change:
    if found["type"] == "ERROR":
        raise _refusal(asked, int(found["object"].get("code") or 500), found["object"], "")
    return Change(found["type"], found["object"])


async def lines_of(pieces: AsyncIterator[bytes], most_bytes: int = _LINE_BYTES) -> AsyncIterator[bytes]:
    """Split what comes into lines. The library's own reader gives up at 4 MiB, which an object of anybody's may have."""
    line = bytearray()
    async for piece in pieces:
        *ends, rest = piece.split(b"\n")
        for end in ends:
            yield bytes(line + end)
            line.clear()
        line += rest
        if len(line) > most_bytes:
            raise KubeError(f"a watch told of a change in more than {most_bytes} bytes", reason=TOO_LONG)
    if line:
        yield bytes(line)


async def _check(reply: Any, asked: _Request) -> None:
    if 200 <= reply.status <= 299:
        return
    raw = await reply.read()
    try:
        told = json.loads(raw)
    except ValueError:
        told = {"message": raw[:300].decode("utf-8", "replace")}
    raise _refusal(asked, reply.status, told if isinstance(told, dict) else {}, reply.headers.get("Retry-After", ""))


def _refusal(asked: _Request, status: int, told: Json, retry_after: str) -> KubeError:
    """Make one sentence of a refusal."""
    details = told.get("details") or {}
    seconds = retry_after if retry_after.isdigit() else str(details.get("retryAfterSeconds") or 0)
    hint = {
        401: "are the credentials still valid?",
        403: "are the permissions of `planaria operator install` in place?",
    }.get(status, "")
    said = safe_line(str(told.get("message") or "no reason given"))
    return (_Missing if status == 404 else KubeError)(
        f"{asked.method} {asked.path} was refused with {status}: {said}",
        hint=hint,
        status=status,
        reason=str(told.get("reason") or ""),
        said=said,
        retry_after_s=float(seconds),
    )


@contextlib.contextmanager
def _translated(asked: _Request, host: str) -> Any:
    try:
        yield
    except (aiohttp.ClientError, HttpProcessingError, OSError, TimeoutError, ValueError) as problem:
        raise KubeError(
            f"{asked.method} {asked.path}: the API server at {host} did not answer "
            f"({type(problem).__name__}: {safe_line(str(problem))})",
            hint="is it reachable from here?",
        ) from problem


async def connect(
    kubeconfig: str,
    context: str = "",
    *,
    in_cluster: bool = False,
    before_call: Callable[[Call], None] = lambda _: None,
) -> Api:
    """Read the credentials, from a kubeconfig or from where a pod has them, and return the door. Nothing is asked yet.

    Raises:
        UsageError: There are no credentials, or they cannot be read.
    """
    from kubernetes_asyncio import config
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.client.rest import RESTClientObject
    from kubernetes_asyncio.config import kube_config

    if not in_cluster and not any(os.path.exists(os.path.expanduser(name)) for name in kubeconfig.split(os.pathsep)):
        raise UsageError(f"there is no kubeconfig {kubeconfig}", hint="see --kubeconfig")
    settings = Configuration()
    settings.connection_pool_maxsize = 0  # no limit: every watch holds a connection, of every kind in every namespace
    try:
        if in_cluster:
            config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]  # reads the token again every minute
        else:
            await config.load_kube_config(
                config_file=kubeconfig, context=context or None, client_configuration=settings, persist_config=False
            )
        rest = RESTClientObject(settings)
    except (config.ConfigException, OSError, ValueError, KeyError, TypeError) as problem:
        where = "of the pod's ServiceAccount" if in_cluster else f"in {kubeconfig}"
        raise UsageError(
            f"the credentials {where} cannot be used: {safe_line(str(problem))}", hint="see --kubeconfig and --context"
        ) from problem
    finally:
        kube_config._cleanup_temp_files()  # noqa: SLF001  keys that a kubeconfig holds inline pass through files of the library's

    async def token() -> str | None:
        found: str | None = await settings.get_api_key_with_prefix("BearerToken")
        return found

    return Api(str(settings.host).rstrip("/"), rest, token, before_call)
