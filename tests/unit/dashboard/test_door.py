from __future__ import annotations

import asyncio
from io import BytesIO
from typing import TYPE_CHECKING

import pytest

from planaria.dashboard import door as doors
from planaria.dashboard.door import Door
from planaria.dashboard.parcel import PART_BYTES, Parcel, packed
from planaria.observe.request import Reply, Request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

HEAD = b"GET /%d HTTP/1.1\r\nHost: localhost\r\n%s\r\n"


async def echo(request: Request, is_loopback: bool) -> Reply:
    status = 304 if request.path == "/304" else 200
    return Reply(status, f"{request.method} {request.path} {request.body.decode()} {is_loopback}".encode())


def talk(
    script: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    answer: Callable[[Request, bool], Awaitable[Reply | Parcel]] = echo,
) -> None:
    async def run() -> None:
        door = Door(answer)
        port = await door.open("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await script(reader, writer)
        finally:
            writer.close()
            await door.close()

    asyncio.run(asyncio.wait_for(run(), 60))


async def answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:"))
    return head, await reader.readexactly(0 if b" 304 " in head else length)


def test_several_requests_of_one_connection_are_answered_one_by_one() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD % (1, b"") + HEAD % (2, b"Content-Length: 3\r\n") + b"abc" + HEAD % (3, b""))
        assert [(await answer(reader))[1] for _ in range(3)] == [b"GET /1  True", b"GET /2 abc True", b"GET /3  True"]

    talk(script)


def test_what_has_not_changed_has_no_body() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD % (304, b"") + HEAD % (2, b""))
        assert (await answer(reader))[0].startswith(b"HTTP/1.1 304 Not Modified")
        assert (await answer(reader))[1] == b"GET /2  True"

    talk(script)


class Counted(BytesIO):
    """A file that notes how much was asked of it at once, and whether it is closed."""

    most = 0

    def read(self, size: int | None = -1, /) -> bytes:
        assert size is not None
        self.most = max(self.most, size)
        return super().read(size)


def test_a_file_is_sent_in_parts_and_closed() -> None:
    content = bytes(range(256)) * 4096
    files: list[Counted] = []

    async def send(_: Request, is_here: bool) -> Parcel:
        assert is_here
        files.append(Counted(content))
        return packed(Reply(200), files[-1])

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            writer.write(HEAD % (1, b""))
            assert (await answer(reader))[1] == content
        writer.write((HEAD % (1, b"")).replace(b"GET", b"HEAD"))
        assert b"Content-Length: %d\r\n" % len(content) in await reader.readuntil(b"\r\n\r\n")

    talk(script, send)
    assert [one.most for one in files] == [PART_BYTES, PART_BYTES, 0]
    assert all(one.closed for one in files)


def test_a_file_that_becomes_shorter_ends_the_connection() -> None:
    async def send(_: Request, is_here: bool) -> Parcel:
        assert is_here
        return Parcel(Reply(200), BytesIO(b"abc"), 9)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD % (1, b""))
        assert (await reader.read()).endswith(b"\r\n\r\nabc")
        assert not writer.is_closing()

    talk(script, send)


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"nonsense\r\n\r\n", 400), (b"GET /1 HTTP/1.1\r\nX: %s" % (b"x" * 9000), 431), (b"PUT / HTTP/1.1\r\n\r\n", 405)],
)
def test_nonsense_is_answered_and_hung_up_on(sent: bytes, status: int) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        head, _ = await answer(reader)
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert b"Connection: close" in head
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1)

    talk(script)


def test_who_drips_a_request_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "READ_S", 0.01)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HT")
        assert await reader.read() == b""

    talk(script)


def test_strangers_who_hold_all_their_places_keep_nobody_of_ours_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(doors, "MOST_STRANGERS", 2)
    ours: list[bool] = []

    async def run() -> None:
        door = Door(echo, lambda _client, _server: ours[-1])
        port = await door.open("127.0.0.1", 0)
        held = []
        ours.append(False)
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            held.append(writer)
            writer.write(HEAD % (1, b""))
            if len(held) < 3:
                assert (await answer(reader))[1] == b"GET /1  False"
            else:
                assert await reader.read() == b"", "one stranger too many"
        ours.append(True)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD % (2, b""))
        assert (await answer(reader))[1] == b"GET /2  True"
        for one in (*held, writer):
            one.close()
        await door.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_one_connection_too_many_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "MOST_CONNECTIONS", 0)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b""
        assert not writer.is_closing()

    talk(script)
