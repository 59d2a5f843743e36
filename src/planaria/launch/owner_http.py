"""One HTTP request to an agent, through its UNIX socket or over TCP, and its answer. Blocks, but never for long."""

from __future__ import annotations

import _socket as socket  # the `socket` module costs 10 ms to import and adds nothing we use
import errno
import json
import time

from planaria.base.addresses import join_address, look_up_now
from planaria.base.linux import peer_of
from planaria.base.value import Value

TYPE_CHECKING = False

ANSWER_S = 3.0  # for the whole exchange: an agent that is stopped accepts connections and says nothing
LONGEST_ANSWER = 16 << 20
_GONE = (errno.ECONNREFUSED, errno.ENOENT)  # all else may be a moment's trouble of one who is there


class Door(Value):
    """The UNIX socket of an agent, and the user whose process has to listen there."""

    path: str
    owner: int


class Answer(Value):
    """An answer as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes


if TYPE_CHECKING:
    from collections.abc import Mapping

    Target = Door | tuple[str, int]


class NotAnswered(Exception):
    """There was no answer. `is_gone`: nobody is there any more who could give one; `is_silent`: somebody who gave none."""

    def __init__(self, why: str, *, is_gone: bool = False, is_silent: bool = False) -> None:
        super().__init__(why)
        self.is_gone = is_gone
        self.is_silent = is_silent


def ask(target: Target, method: str, path: str, *, body: bytes = b"", token: bytes | None = None) -> tuple[int, object]:
    """Return the status and the content of an answer: decoded where it is JSON, else its text.

    Raises:
        NotAnswered: Nobody is there, or it took too long, or what came was no answer.
    """
    answer = fetch(target, method, path, body=body, token=token)
    if "application/json" not in answer.headers.get("content-type", ""):
        return answer.status, answer.body.decode("utf-8", "replace").strip()
    try:
        return answer.status, json.loads(answer.body)
    except (ValueError, RecursionError) as problem:
        raise NotAnswered("what answers there is no agent of planaria") from problem


def fetch(target: Target, method: str, path: str, *, body: bytes = b"", token: bytes | None = None) -> Answer:
    """Return an answer as it came; names of its headers are in lower case.

    Raises:
        NotAnswered: As above.
    """
    host = "localhost" if isinstance(target, Door) else join_address("127.0.0.1", target[1])
    if token is not None and not all(0x20 < byte != 0x7F for byte in token):
        raise NotAnswered("the token has spaces or control characters, which no header can carry")
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n".encode()
    if token is not None:
        head += b"Authorization: Bearer " + token + b"\r\n"
    try:
        return _read(_exchange(target, head + b"\r\n" + body))
    except (TimeoutError, BlockingIOError) as problem:  # the latter: too many wait there already
        raise NotAnswered(f"no answer within {ANSWER_S:g} s", is_silent=True) from problem
    except OSError as problem:
        raise NotAnswered(problem.strerror or str(problem), is_gone=problem.errno in _GONE) from problem


def pid_behind(door: Door) -> int:
    """Return the pid of the agent behind a door, as the kernel knows it; 0 when it cannot be told."""
    try:
        stream, _ = _connect(door)
    except (OSError, NotAnswered):
        return 0
    try:
        return peer_of(stream)[0]
    finally:
        stream.close()


def is_here(host: str) -> bool:
    """Tell whether a host is this machine: one can listen only at an address of one's own."""
    try:
        family, address = look_up_now(host, 0)[0]
    except OSError:
        return False
    probe = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        probe.bind(address)
    except OSError:
        return False
    else:
        return True
    finally:
        probe.close()


def _connect(target: Target) -> tuple[socket.socket, float]:
    """Return a connection, and the moment at which all has to be said."""
    if isinstance(target, Door):
        family, address = socket.AF_UNIX, target.path
    else:
        family, address = look_up_now(*target)[0]  # type: ignore[assignment]  # the address shape follows the family
    stream = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        until = time.monotonic() + ANSWER_S
        stream.settimeout(ANSWER_S)
        stream.connect(address)
        is_foreign = isinstance(target, Door) and peer_of(stream)[1] != target.owner
    except OSError:
        stream.close()
        raise
    if is_foreign:
        stream.close()
        raise NotAnswered("what listens there is not its owner's")
    return stream, until


def _exchange(target: Target, request: bytes) -> bytes:
    stream, until = _connect(target)
    try:
        stream.settimeout(_left_s(until))
        stream.sendall(request)
        found = b""
        while len(found) < LONGEST_ANSWER:
            stream.settimeout(_left_s(until))
            chunk = stream.recv(1 << 16)
            if not chunk:
                break
            found += chunk
        return found
    finally:
        stream.close()


def _left_s(until: float) -> float:
    left_s = until - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _read(answer: bytes) -> Answer:
    if not answer:
        raise NotAnswered("it hung up")
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *fields = head.split(b"\r\n")
    words = first.split(b" ", 2)
    if not words[0].startswith(b"HTTP/1.") or len(words) < 3 or not words[1].isdigit():
        raise NotAnswered("what answers there is no agent of planaria")
    pairs = (field.decode("latin-1").partition(":") for field in fields)
    return Answer(int(words[1]), {name.lower(): value.strip() for name, _, value in pairs}, body)
