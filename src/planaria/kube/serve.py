"""What others may ask an operator over HTTP: /healthz, /readyz and /metrics. It changes nothing and is asked by anybody.

A request is answered on the operator's own loop: one that is stuck does not answer, and the probe restarts it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from planaria.observe.metrics import CONTENT_TYPE
from planaria.observe.request import HEAD_LIMIT_BYTES, Reply, Request, read_head, refused, write_reply

if TYPE_CHECKING:
    from planaria.observe.metrics import Registry

    Probe = Callable[[], str]  # what is wrong, in one sentence; empty if nothing is

_READ_S = 5.0
_MOST_CONNECTIONS = 64
_END = b"\r\n\r\n"


class Door:
    """The answers. `alive` and `ready` say what is wrong, or nothing."""

    def __init__(self, alive: Probe, ready: Probe, registry: Registry) -> None:
        self._alive = alive
        self._ready = ready
        self._registry = registry
        self._open = 0

    def answer(self, request: Request) -> Reply:
        """Answer one request."""
        if request.method not in ("GET", "HEAD"):
            return refused(405, "expected GET", ("Allow", "GET, HEAD"))
        match request.path:
            case "/healthz" | "/livez":
                return _probed(self._alive())
            case "/readyz":
                return _probed(self._ready())
            case "/metrics":
                return Reply(200, self._registry.expose().encode(), CONTENT_TYPE)
            case _:
                return refused(404, "expected /healthz, /readyz or /metrics")

    async def serve(self, host: str, port: int) -> asyncio.Server:
        """Listen. Port 0 is a free one.

        Raises:
            OSError: The address cannot be had.
        """
        return await asyncio.start_server(self._meet, host or None, port, limit=HEAD_LIMIT_BYTES)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of a connection and close it: probes come one by one."""
        self._open += 1
        try:
            if self._open <= _MOST_CONNECTIONS:
                async with asyncio.timeout(_READ_S):
                    await self._speak(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            return  # whoever asked has gone, or asks nothing
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _speak(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(_END)
        except asyncio.LimitOverrunError:
            found: Request | Reply = refused(431, f"expected a head of at most {HEAD_LIMIT_BYTES} bytes")
        else:
            found = read_head(head[: -len(_END)])
        reply = self.answer(found) if isinstance(found, Request) else found
        has_body = not (isinstance(found, Request) and found.method == "HEAD")
        writer.write(write_reply(reply, keeps_alive=False, has_body=has_body))
        await writer.drain()


def _probed(problem: str) -> Reply:
    return refused(503, problem) if problem else Reply(200, b"ok\n")
