"""One HTTP request to an agent, through its UNIX socket or over TCP, and its answer. Blocks, but never for long."""

from __future__ import annotations

import _socket as socket  # the `socket` module costs 10 ms to import and adds nothing we use
import errno
import json

from planaria.base.addresses import join_address, look_up_now

TYPE_CHECKING = False
if TYPE_CHECKING:
    Target = str | tuple[str, int]

ANSWER_S = 3.0  # an agent that is stopped accepts connections and says nothing
LONGEST_ANSWER = 16 << 20
_GONE = (errno.ECONNREFUSED, errno.ENOENT, errno.ECONNRESET, errno.EPIPE, errno.ENOTDIR)


class NotAnswered(Exception):
    """There was no answer. `is_gone`: nobody is there any more who could give one."""

    def __init__(self, why: str, *, is_gone: bool = False) -> None:
        super().__init__(why)
        self.is_gone = is_gone


def ask(target: Target, method: str, path: str, *, body: bytes = b"", token: bytes | None = None) -> tuple[int, object]:
    """Return the status and the content of an answer: decoded where it is JSON, else its text.

    Raises:
        NotAnswered: Nobody is there, or it took too long, or what came was no answer.
    """
    host = "localhost" if isinstance(target, str) else join_address("127.0.0.1", target[1])
    if token is not None and not all(0x20 < byte != 0x7F for byte in token):
        raise NotAnswered("the token has spaces or control characters, which no header can carry")
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n".encode()
    if token is not None:
        head += b"Authorization: Bearer " + token + b"\r\n"
    try:
        return _read(_exchange(target, head + b"\r\n" + body))
    except TimeoutError as problem:
        raise NotAnswered(f"no answer within {ANSWER_S:g} s") from problem
    except OSError as problem:
        raise NotAnswered(problem.strerror or str(problem), is_gone=problem.errno in _GONE) from problem


def _exchange(target: Target, request: bytes) -> bytes:
    if isinstance(target, str):
        family, address = socket.AF_UNIX, target
    else:
        family, address = look_up_now(*target)[0]  # type: ignore[assignment]  # the address shape follows the family
    stream = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        stream.settimeout(ANSWER_S)
        stream.connect(address)
        stream.sendall(request)
        found = b""
        while (chunk := stream.recv(1 << 16)) and len(found) < LONGEST_ANSWER:
            found += chunk
        return found
    finally:
        stream.close()


def _read(answer: bytes) -> tuple[int, object]:
    if not answer:
        raise NotAnswered("it hung up", is_gone=True)
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if not words[0].startswith(b"HTTP/1.") or len(words) < 3 or not words[1].isdigit():
        raise NotAnswered("what answers there is no agent of planaria")
    if b"application/json" not in head:
        return int(words[1]), body.decode("utf-8", "replace").strip()
    try:
        return int(words[1]), json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise NotAnswered("what answers there is no agent of planaria") from problem
