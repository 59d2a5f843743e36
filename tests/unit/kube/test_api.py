"""The door to an API server, against a server that answers as it is told: for what a real one does when it likes to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from planaria.errors import KubeError, UsageError
from planaria.kube.api import Api, Call, connect, lines_of
from planaria.kube.resources import JOB, LEASE, NODE, POD, path
from planaria.kube.watching import Copy, Selection, Watcher

Answer = tuple[int, object, str]  # status, JSON or lines of it, more headers
CUT: Answer = (0, None, "")


class Server:
    """Answers requests in order; the last answer again and again."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []

    async def meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                method, target, _ = head[0].split(" ")
                self.asked.append((method, target, fields, body))
                status, told, more = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if not status:
                    break
                lines = told if isinstance(told, list) else [told]
                text = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(text)}\r\n{more}\r\n".encode() + text)
        writer.close()


def speak(tmp_path: Path, server: Server, story: Callable[[Api], Awaitable[None]], token: str = "") -> None:
    async def whole() -> None:
        async with listening(server) as port, door(tmp_path, port, token) as api:
            await story(api)

    asyncio.run(whole())


@contextlib.asynccontextmanager
async def listening(server: Server) -> AsyncIterator[int]:
    serving = await asyncio.start_server(server.meet, "127.0.0.1", 0)
    async with serving:
        yield serving.sockets[0].getsockname()[1]


@contextlib.asynccontextmanager
async def door(tmp_path: Path, port: int, token: str) -> AsyncIterator[Api]:
    config = {
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": f"http://127.0.0.1:{port}/"}}],
        "users": [{"name": "x", "user": {"token": token} if token else {}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    api = await connect(str(tmp_path / "kubeconfig"))
    try:
        yield api
    finally:
        await api.close()


def status(code: int, reason: str = "", **more: Any) -> Answer:
    return code, {"kind": "Status", "code": code, "reason": reason, "message": "told so", **more}, ""


def test_what_is_not_there_is_none_and_deleting_it_is_no_error(tmp_path: Path) -> None:
    async def story(api: Api) -> None:
        assert await api.get(POD, "n", "p") is None
        assert await api.delete(POD, "n", "p", uid="u") is None

    speak(tmp_path, Server(status(404)), story)


@pytest.mark.parametrize(
    ("code", "retryable"), [(400, False), (403, False), (409, True), (422, False), (429, True), (503, True)]
)
def test_a_refusal_is_one_sentence_that_says_whether_trying_again_helps(
    tmp_path: Path, code: int, retryable: bool
) -> None:
    async def story(api: Api) -> None:
        with pytest.raises(KubeError) as refused:
            await api.create({"kind": "Pod", "metadata": {"name": "p", "namespace": "n"}})
        problem = refused.value
        assert problem.message == f"POST /api/v1/namespaces/n/pods was refused with {code}: told so"
        assert problem.said == "told so"
        assert (problem.status, problem.reason, problem.retryable) == (code, "Why", retryable)

    speak(tmp_path, Server(status(code, "Why")), story)


def test_nobody_who_answers_is_a_sentence_too(tmp_path: Path) -> None:
    async def story(api: Api) -> None:
        with pytest.raises(KubeError, match="did not answer") as refused:
            await api.get(POD, "n", "p")
        assert (refused.value.status, refused.value.retryable) == (0, True)

    speak(tmp_path, Server(CUT), story)


def test_an_answer_that_is_no_json_is_no_answer(tmp_path: Path) -> None:
    async def story(api: Api) -> None:
        with pytest.raises(KubeError, match="was refused with 502: <html>"):
            await api.get(POD, "n", "p")

    speak(tmp_path, Server((502, b"<html>", "")), story)


def test_a_server_that_asks_for_quiet_gets_it_from_every_caller(tmp_path: Path) -> None:
    async def story(api: Api) -> None:
        with pytest.raises(KubeError) as refused:
            await api.get(POD, "n", "p")
        assert refused.value.retry_after_s == 25.0
        assert 20 < api._quiet_until - time.monotonic() <= 25
        api._quiet_until = quiet_until = time.monotonic() + 0.05
        await api.get(LEASE, "n", "other")
        assert time.monotonic() >= quiet_until

    speak(tmp_path, Server((429, {}, "Retry-After: 25\r\n"), (200, {}, "")), story)


def test_one_object_is_exempt_from_the_quiet(tmp_path: Path) -> None:
    server = Server((429, {}, "Retry-After: 30\r\n"), (200, {}, ""))

    async def story(api: Api) -> None:
        api.exempt = path(LEASE, "n", "ours")
        with pytest.raises(KubeError):
            await api.get(POD, "n", "p")
        others = [asyncio.ensure_future(api.get(kind, "n", "x")) for kind in (POD, LEASE)]
        for _ in range(3):
            await api.get(LEASE, "n", "ours")
        assert not any(other.done() for other in others)
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    speak(tmp_path, server, story)
    assert [target.rpartition("/")[2] for _, target, _, _ in server.asked] == ["p", "ours", "ours", "ours"]


def test_a_watch_that_is_told_to_be_quiet_quiets_everybody(tmp_path: Path) -> None:
    server = Server((429, {}, "Retry-After: 30\r\n"), (200, {}, ""))

    async def story(api: Api) -> None:
        with pytest.raises(KubeError):
            async for _ in api.watch(POD, "n", "5"):
                pass
        other = asyncio.ensure_future(api.get(POD, "n", "p"))
        api.exempt = path(LEASE, "n", "ours")
        await api.get(LEASE, "n", "ours")
        assert not other.done()
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)

    speak(tmp_path, server, story)
    assert len(server.asked) == 2


def test_a_list_is_read_page_by_page(tmp_path: Path) -> None:
    pages = (
        (200, {"metadata": {"resourceVersion": "7", "continue": "more"}, "items": [{"a": 1}]}, ""),
        (200, {"metadata": {"resourceVersion": "7"}, "items": [{"b": 2}]}, ""),
    )
    server = Server(*pages)

    async def story(api: Api) -> None:
        listed = await api.list(POD, "n", labels="x=y", metadata=True, keep=lambda obj: {**obj, "kept": True})
        assert (listed.items, listed.version) == (({"a": 1, "kept": True}, {"b": 2, "kept": True}), "7")
        await api.list(POD, "n")
        await api.list(NODE)

    speak(tmp_path, server, story)
    assert [target.partition("?")[2] for _, target, _, _ in server.asked] == [
        "limit=500&labelSelector=x%3Dy",
        "limit=500&labelSelector=x%3Dy&continue=more",
        "limit=10",  # whole objects, which may be large
        "limit=50",  # those of an administrator
    ]
    assert server.asked[0][2]["accept"] == "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def test_one_object_that_is_nested_too_deep_hides_no_others(tmp_path: Path) -> None:
    deep = b'{"metadata":{"name":"deep","resourceVersion":"8"},"spec":' + b"[" * 5000 + b"]" * 5000 + b"}"
    page = b'{"metadata":{"resourceVersion":"7"},"items":[' + deep + b',{"metadata":{"name":"plain"}}]}'
    server = Server((200, page, ""), (200, [b'{"type":"ADDED","object":' + deep + b"}"], ""))

    async def story(api: Api) -> None:
        listed = await api.list(JOB, "n")
        assert [obj["metadata"]["name"] for obj in listed.items] == ["deep", "plain"]
        changes = [change async for change in api.watch(JOB, "n", listed.version)]
        assert [change.obj["metadata"]["resourceVersion"] for change in changes] == ["8"]

    speak(tmp_path, server, story)


def test_a_delete_says_which_object_it_means_and_how_long_it_may_take(tmp_path: Path) -> None:
    server = Server((200, {"kind": "Pod"}, ""))

    async def story(api: Api) -> None:
        assert await api.delete(POD, "n", "p", uid="u", grace_s=0) == {"kind": "Pod"}

    speak(tmp_path, server, story)
    told = json.loads(server.asked[0][3])
    assert (told["preconditions"], told["gracePeriodSeconds"]) == ({"uid": "u"}, 0)


def test_every_call_is_told_before_it_is_made_and_may_be_refused(tmp_path: Path) -> None:
    server = Server((200, {}, ""))
    told: list[Call] = []

    async def story(api: Api) -> None:
        api.before_call = told.append
        await api.get(JOB, "n", "j")

        def refuse(call: Call) -> None:
            raise KubeError(f"no {call.method}")

        api.before_call = refuse
        with pytest.raises(KubeError, match="no PUT"):
            await api.replace({"kind": "Pod", "metadata": {"name": "p", "namespace": "n"}})

    speak(tmp_path, server, story, token="secret")
    assert told == [Call("GET", "/apis/training.kubedl.io/v1alpha1/namespaces/n/pytorchjobs/j")]
    assert [not call.writes for call in told] == [True]
    assert len(server.asked) == 1
    assert server.asked[0][2]["authorization"] == "Bearer secret"


def pod(name: str, version: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": version}}


def test_a_watch_that_was_forgotten_lists_again_and_misses_nothing(tmp_path: Path) -> None:
    """Listed at 5, one change, the watch ends, goes on at 6, is refused, goes on at 6, is told 410, lists again."""
    server = Server(
        (200, {"metadata": {"resourceVersion": "5"}, "items": [pod("a", "1")]}, ""),
        (200, [{"type": "ADDED", "object": pod("b", "6")}], ""),
        status(500),
        (200, [{"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}], ""),
        (200, {"metadata": {"resourceVersion": "9"}, "items": [pod("b", "6"), pod("c", "8")]}, ""),
        (200, [{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "11"}}}], ""),
        (200, [{"type": "DELETED", "object": pod("b", "12")}], ""),
        CUT,
    )
    said: list[str] = []

    async def story(api: Api) -> None:
        async with followed(api, said) as (copy, changes):
            for _ in range(5):
                await changes.get()
        assert [obj["metadata"]["name"] for obj in copy] == ["c"]

    speak(tmp_path, server, story)
    versions = [target.partition("resourceVersion=")[2].partition("&")[0] for _, target, _, _ in server.asked]
    assert versions[:7] == ["", "5", "6", "6", "", "9", "11"]
    assert "the watch of pods stopped" in said[0]


def large(name: str, version: str, letters: int) -> dict[str, Any]:
    return pod(name, version) | {"spec": {"containers": [{"name": "x" * letters}]}}


@contextlib.asynccontextmanager
async def followed(api: Api, said: list[str]) -> AsyncIterator[tuple[Copy, asyncio.Queue[Any]]]:
    """Watch the pods of a namespace; yield the copy, and where its changes come."""
    changes = asyncio.Queue[Any]()
    copy = Copy(Selection(POD, ("n",)), lambda old, new: changes.put_nowait((old, new)))
    running = asyncio.ensure_future(Watcher(api, copy, lambda: 0.0, said.append, "n").run())
    try:
        async with asyncio.timeout(60):
            yield copy, changes
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_a_change_of_many_megabytes_is_read_as_every_other(tmp_path: Path) -> None:
    told = [{"type": "ADDED", "object": large("b", "6", 10 << 20)}, {"type": "ADDED", "object": pod("c", "7")}]
    server = Server(
        (200, {"metadata": {"resourceVersion": "5"}, "items": []}, ""),
        (200, told, ""),
        (200, [{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}], ""),
    )

    async def story(api: Api) -> None:
        async with followed(api, []) as (copy, changes):
            while len(copy) < 2:
                await changes.get()
            assert len(copy.get(("n", "b"))["spec"]["containers"][0]["name"]) == 10 << 20  # type: ignore[index]  # it is there

    speak(tmp_path, server, story)


def test_a_change_that_is_too_long_to_be_read_is_found_by_another_list(tmp_path: Path) -> None:
    server = Server(
        (200, {"metadata": {"resourceVersion": "5"}, "items": [pod("a", "1")]}, ""),
        (200, [{"type": "ADDED", "object": large("b", "6", 17 << 20)}], ""),
        (200, {"metadata": {"resourceVersion": "6"}, "items": [pod("a", "1"), pod("b", "6")]}, ""),
        (200, [{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}], ""),
    )
    said: list[str] = []

    async def story(api: Api) -> None:
        async with followed(api, said) as (copy, changes):
            while len(copy) < 2:
                await changes.get()

    speak(tmp_path, server, story)
    assert "a watch told of a change in more than 16777216 bytes" in said[0]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_lines_are_split_wherever_their_pieces_are(size: int) -> None:
    text = b'{"a": 1}\n\n{"b": "x"}\n{"c"'

    async def pieces() -> AsyncIterator[bytes]:
        for first in range(0, len(text), size):
            yield text[first : first + size]

    async def story() -> list[bytes]:
        return [line async for line in lines_of(pieces())]

    assert asyncio.run(story()) == text.split(b"\n")


def test_so_many_watches_as_there_are_leave_a_connection_for_every_other_call(tmp_path: Path) -> None:
    """15 namespaces are more than a hundred of them."""
    server = Server(status(404))
    count, watched = 150, asyncio.Event()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"watch=1" not in await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 404 X\r\nContent-Length: 2\r\n\r\n{}")
        server.asked.append(("", "", {}, b""))
        if len(server.asked) == count:
            watched.set()
        await reader.read()
        writer.close()

    async def watch(api: Api) -> None:
        async for _ in api.watch(POD, "n", "1"):
            pass

    async def story(api: Api) -> None:
        watches = [asyncio.ensure_future(watch(api)) for _ in range(count)]
        async with asyncio.timeout(60):
            await watched.wait()
            assert await api.get(POD, "n", "a") is None
        for one in watches:
            one.cancel()
        await asyncio.gather(*watches, return_exceptions=True)

    server.meet = meet  # type: ignore[method-assign]  # it holds what the other one answers
    speak(tmp_path, server, story)


def test_credentials_that_cannot_be_used_are_a_sentence_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no kubeconfig .*none"):
        asyncio.run(connect(str(tmp_path / "none")))
    (tmp_path / "half").write_text("{}")
    with pytest.raises(UsageError, match=r"the credentials in .*half cannot be used"):
        asyncio.run(connect(str(tmp_path / "half")))
