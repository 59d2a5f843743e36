"""The way from outside to an API server in an enclosure: `python kube_door.py LISTENING-FD HOST PORT`.

A socket belongs to the network it was made in. This program is given one that listens outside, is started inside, and
connects there: connections come in on one side and go on to the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys

CHUNK_BYTES = 1 << 16
AT_ONCE = struct.pack("ii", 1, 0)


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry one direction. Its end is passed on, too; a failure ends both."""
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def serve(listener: socket.socket, host: str, port: int) -> None:
    """Carry connections until the process is ended."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            try:
                far_reader, far_writer = await asyncio.open_connection(host, port)
            except OSError:  # the server is away: the caller's connection is reset
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
                writer.transport.abort()
                return
            await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer))
            far_writer.close()
            writer.close()

    server = await asyncio.start_server(carry, sock=listener)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], int(sys.argv[3])))
