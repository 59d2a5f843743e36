"""A small HTTP server of a few browsers, on asyncio. What it answers is asked of `answer`, which may wait.

Whoever connects is a stranger: it has a few seconds for a request of a few kilobytes, and for taking its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from planaria.base.value import replace
from planaria.dashboard.parcel import PART_BYTES, Parcel
from planaria.observe.http import is_loopback
from planaria.observe.request import HEAD_LIMIT_BYTES, Reply, Request, read_head, refused, write_reply

if TYPE_CHECKING:
    from planaria.dashboard.peers import Address

    Answer = Callable[
        [Request, bool], Awaitable[Reply | Parcel]
    ]  # the request, and whether one of ours on this machine asks
    IsOurs = Callable[[Address, Address], bool]

READ_S = 5.0  # from the first byte of a request to its last
IDLE_S = 30.0  # between two requests of a page, which asks every second
TAKE_S = 10.0  # to take an answer
MOST_CONNECTIONS = 64  # of ours, and as many of whom nobody knows yet whose they are
MOST_STRANGERS = 32  # apart from ours: other users of this machine, and other machines, must not take our places
_END = b"\r\n\r\n"


class Door:
    """Reads requests and writes answers.

    `is_ours` tells, by both ends of a connection within this machine, whether it is one of ours; without it, all of them are.
    """

    def __init__(self, answer: Answer, is_ours: IsOurs | None = None) -> None:
        self._answer = answer
        self._is_ours = is_ours
        self._server: asyncio.Server | None = None
        self._talks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._whose: dict[asyncio.Task[None], bool | None] = {}  # ours, a stranger's, or not known yet

    async def open(self, host: str, port: int) -> int:
        """Listen; return the port. 0 is a free one.

        Raises:
            OSError: The address cannot be had.
        """
        self._server = await asyncio.start_server(self._meet, host, port, limit=HEAD_LIMIT_BYTES)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def close(self) -> None:
        """Listen no more, and hang up."""
        if self._server is not None:
            self._server.close()
        for writer in self._talks.values():
            writer.transport.abort()
        await asyncio.gather(*self._talks, return_exceptions=True)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        self._talks[talk] = writer
        try:
            if not self._has_room(talk, None, MOST_CONNECTIONS):
                return
            here = await self._is_here(writer)
            if self._has_room(talk, here, MOST_CONNECTIONS if here else MOST_STRANGERS):
                while await self._speak(reader, writer, here=here):
                    pass
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            return  # whoever asked has gone, or asks nothing
        finally:
            self._talks.pop(talk)
            self._whose.pop(talk, None)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _has_room(self, talk: asyncio.Task[None], whose: bool | None, most: int) -> bool:
        """Count a connection among its like; tell whether there is room for it."""
        self._whose[talk] = whose
        return sum(one is whose for one in self._whose.values()) <= most

    async def _is_here(self, writer: asyncio.StreamWriter) -> bool:
        client, server = (writer.get_extra_info(name)[:2] for name in ("peername", "sockname"))
        if self._is_ours is None or not is_loopback(client[0]):
            return is_loopback(client[0])
        return await asyncio.to_thread(self._is_ours, client, server)  # the kernel's list may be long

    async def _speak(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, here: bool) -> bool:
        """Answer one request; tell whether another may follow."""
        found = await _read(reader)
        if isinstance(found, Reply):
            reply, keeps_alive, has_body = found, False, True
        else:
            answer = await self._answer(found, here)
            if isinstance(answer, Parcel):
                return await _send(answer, writer, found)
            reply = answer
            keeps_alive, has_body = found.keeps_alive, found.method != "HEAD" and reply.status != 304
        writer.write(write_reply(reply, keeps_alive=keeps_alive, has_body=has_body))
        async with asyncio.timeout(TAKE_S):
            await writer.drain()
        return keeps_alive


async def _send(parcel: Parcel, writer: asyncio.StreamWriter, request: Request) -> bool:
    """Send a file, the next part once the last one was taken; tell whether another request may follow."""
    keeps_alive, left = request.keeps_alive, parcel.length if request.method != "HEAD" else 0
    with parcel.file as file:
        writer.write(write_reply(parcel.reply, keeps_alive=keeps_alive, has_body=False, length=parcel.length))
        while left:
            part = await asyncio.to_thread(file.read, min(left, PART_BYTES))
            if not part:
                return False  # it has become shorter meanwhile: hanging up is the only way to say so
            writer.write(part)
            left -= len(part)
            async with asyncio.timeout(TAKE_S):
                await writer.drain()
    return keeps_alive


async def _read(reader: asyncio.StreamReader) -> Request | Reply:
    async with asyncio.timeout(IDLE_S):
        first = await reader.readexactly(1)
    async with asyncio.timeout(READ_S):
        try:
            head = first + await reader.readuntil(_END)
        except asyncio.LimitOverrunError:
            return refused(431, f"expected a head of at most {HEAD_LIMIT_BYTES} bytes")
        found = read_head(head[: -len(_END)])
        if isinstance(found, Reply) or not found.length:
            return found
        return replace(found, body=await reader.readexactly(found.length))
