"""What the dashboard answers: files of the page, pictures of runs, logs, evidence, and orders that are passed on.

Looking at a run blocks on sockets and files, so it happens in threads; one look serves all who ask within `FRESH_S`, and a
page that has the newest picture already is told so (`ETag`) instead of being sent it again.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeVar

from planaria.base.text import safe_line
from planaria.base.value import Value, replace
from planaria.dashboard.parcel import Parcel, packed
from planaria.dashboard.rules import FILES, HEADERS, question_in, refusal
from planaria.observe.request import Reply, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planaria.contract.secret import Secret
    from planaria.dashboard.rules import Question
    from planaria.observe.request import Request

    Json = Mapping[str, object]

    class Aside(Protocol):
        """Calls what may block, where it keeps nobody waiting."""

        async def __call__(self, call: Callable[..., T], /, *args: Any) -> T:
            """Return what the call returns."""


T = TypeVar("T")
FRESH_S = 0.5  # pages ask every second
_MOST_KEPT = 64  # answers that are remembered: runs times what is looked at of each
_WORTH_PACKING = 4096
_HERE = os.path.dirname(os.path.abspath(__file__))


class Source(Protocol):
    """Where pictures come from. Everything here may block, and is called in threads, one look at a thing at a time."""

    def runs(self) -> list[Json]:
        """Return the runs that can be seen: `run_id`, `state` and `is_over` of each."""

    def picture(self, run_id: str) -> Json | None:
        """Return the picture of a run; None: there is no such run."""

    def log_tail(self, run_id: str, rank: int, stream: str) -> Json | None:
        """Return `text`, the end of what a rank wrote, or a `why` there is none; None: there is no such rank."""

    def evidence(self, run_id: str, node: str, name: str, file: str) -> BinaryIO | str | None:
        """Open a file of evidence, or say why it cannot be had; None: there is none of that name."""

    def order(self, run_id: str, command: str, node: str) -> tuple[bool, str]:
        """Drain a node, or stop a run; return whether it was told so, and a sentence."""


class _Kept(Value):
    reply: Reply
    at: float


class Answers:
    """The answers of a dashboard. `host` is the name that the page may have in an address bar besides an IP address.

    `aside` calls the source, in a thread unless it is told otherwise.
    """

    def __init__(
        self,
        source: Source,
        token: Secret | None,
        host: str,
        now: Callable[[], float],
        aside: Aside = asyncio.to_thread,
    ) -> None:
        self._source = source
        self._token = token
        self._host = host
        self._now = now
        self._aside = aside
        self._kept: dict[str, _Kept] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def answer(self, request: Request, is_loopback: bool) -> Reply | Parcel:
        """Answer one request."""
        found = await self._answer(request, is_loopback=is_loopback)
        reply = found.reply if isinstance(found, Parcel) else found
        reply = replace(reply, headers=(*HEADERS, *reply.headers))
        return replace(found, reply=reply) if isinstance(found, Parcel) else reply

    async def _answer(self, request: Request, *, is_loopback: bool) -> Reply | Parcel:
        reply = refusal(request, is_loopback=is_loopback, token=self._token, host=self._host)
        if reply is not None:
            return reply
        question = question_in(request.path)
        assert question is not None
        try:
            return await self._reply_to(question, request)
        except Exception as problem:  # noqa: BLE001  a run that cannot be drawn must not take the others along
            return refused(500, f"this is a bug of planaria's: {safe_line(repr(problem))}")

    async def _reply_to(self, question: Question, request: Request) -> Reply | Parcel:
        match question.about:
            case "file":
                return _page_file(question.parts[0])
            case "token":
                return Reply(200, b"that is the token\n")
            case "drain" | "stop":
                node = question.parts[0] if question.parts else ""
                told, sentence = await self._aside(self._source.order, question.run_id, question.about, node)
                return Reply(202 if told else 409, json.dumps({"sentence": sentence}).encode(), "application/json")
            case "evidence":
                node, name, file = question.parts
                content = await self._aside(self._source.evidence, question.run_id, node, name, file)
                return _attachment(file, content)
            case _:
                return _for_reader(await self._looked(request.path, question), request)

    async def _looked(self, path: str, question: Question) -> Reply:
        """Return what a look finds, or found a moment ago."""
        if len(self._kept) >= _MOST_KEPT:
            self._forget()
        async with self._locks.setdefault(path, asyncio.Lock()):
            kept = self._kept.get(path)
            if kept is None or self._now() - kept.at >= FRESH_S:
                kept = _Kept(await self._aside(self._look, question), self._now())
                self._kept[path] = kept
            return kept.reply

    def _forget(self) -> None:
        """Drop what nobody is waiting for, so that made-up names of runs cost nothing."""
        free = [path for path, lock in self._locks.items() if not lock.locked()]
        for path in free:
            self._locks.pop(path)
            self._kept.pop(path, None)

    def _look(self, question: Question) -> Reply:
        found: Json | None
        if question.about == "runs":
            found = {"schema": 1, "takes_orders": self._token is not None, "runs": self._source.runs()}
        elif question.about == "picture":
            found = self._source.picture(question.run_id)
        else:
            rank, stream = question.parts
            found = self._source.log_tail(question.run_id, int(rank), stream)
        if found is None:
            return refused(404, "there is no such run" if question.about == "picture" else "there is no such rank")
        body = json.dumps(found, separators=(",", ":")).encode()
        tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
        return Reply(200, body, "application/json", (("ETag", tag),))


def _for_reader(reply: Reply, request: Request) -> Reply:
    """Return the answer as this reader wants it: nothing where it has it already, else packed where it can unpack."""
    tag = dict(reply.headers).get("ETag")
    if tag is not None and request.headers.get("if-none-match") == tag:
        return Reply(304, headers=reply.headers)
    if len(reply.body) < _WORTH_PACKING or "gzip" not in request.headers.get("accept-encoding", ""):
        return reply
    headers = (*reply.headers, ("Content-Encoding", "gzip"))
    return replace(reply, body=gzip.compress(reply.body, 1), headers=headers)


def _page_file(path: str) -> Reply:
    name, content_type = FILES[path]
    with open(os.path.join(_HERE, "static", name), "rb") as file:
        return Reply(200, file.read(), content_type)


def _attachment(name: str, content: BinaryIO | str | None) -> Reply | Parcel:
    """Return foreign bytes as what they are: something to save, never something that a browser shows as a page."""
    if content is None:
        return refused(404, "there is no such file")
    if isinstance(content, str):
        return refused(503, content)
    plain = "".join(one if one.isascii() and (one.isalnum() or one in "._-") else "_" for one in name)
    return packed(Reply(200, headers=(("Content-Disposition", f'attachment; filename="{plain[:100]}"'),)), content)
