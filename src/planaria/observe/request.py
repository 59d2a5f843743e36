"""HTTP/1.1 as bytes: requests are read strictly, replies written plainly. Pure.

What is refused is answered: `read_head` returns the reply for a head that is no request we would take. There is one way to
say how long a body is (Content-Length), one way to end a line (CRLF), and no second reading of anything.
"""

from __future__ import annotations

from planaria.base.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

HEAD_LIMIT_BYTES = 8192
BODY_LIMIT_BYTES = 4096
_TARGET_LIMIT = 2048
_MOST_FIELDS = 64
_METHODS = ("GET", "HEAD", "POST")
_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_VISIBLE = frozenset(range(0x21, 0x7F))
_IN_A_VALUE = frozenset(range(0x20, 0x7F)) | frozenset(range(0x80, 0x100)) | {0x09}
_ONCE = ("host", "content-length", "authorization", "origin", "transfer-encoding", "expect")
_REASONS = {
    200: "OK",
    202: "Accepted",
    304: "Not Modified",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    413: "Content Too Large",
    414: "URI Too Long",
    417: "Expectation Failed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


class Request(Value):
    """One request. Names of `headers` are in lower case; `query` is what follows a `?` in the target, as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    keeps_alive: bool = True
    length: int = 0
    body: bytes = b""
    query: str = ""


class Reply(Value):
    """One answer. A text of ours ends in a newline, for those who read it in a terminal."""

    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


def refused(status: int, why: str, *headers: tuple[str, str]) -> Reply:
    """Return an answer that says in one line what is wrong."""
    return Reply(status, f"{why}\n".encode("utf-8", "backslashreplace"), headers=headers)


def read_head(head: bytes) -> Request | Reply:
    """Read a request line and its header fields, without the empty line at their end; a Reply says what is wrong."""
    first, *lines = head.split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or not all(words) or not set(words[0]) <= _TOKEN or not set(words[1]) <= _VISIBLE:
        return refused(400, "expected a request line such as GET /livez HTTP/1.1")
    method, target, version = (word.decode("ascii", "replace") for word in words)
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        return refused(505, "expected HTTP/1.1")
    if len(target) > _TARGET_LIMIT:
        return refused(414, f"expected a target of at most {_TARGET_LIMIT} characters")
    if method not in _METHODS:
        return refused(405, f"expected one of {', '.join(_METHODS)}", ("Allow", ", ".join(_METHODS)))
    if not target.startswith("/"):
        return refused(400, "expected a target that begins with /")
    headers = _read_fields(lines)
    return headers if isinstance(headers, Reply) else _framed(method, target, version, headers)


def _framed(method: str, target: str, version: str, headers: dict[str, str]) -> Request | Reply:
    """Find out where the request ends, and whether another may follow."""
    if "host" not in headers and version == "HTTP/1.1":
        return refused(400, "expected a Host header")
    if "transfer-encoding" in headers:
        return refused(501, "expected a Content-Length, got a Transfer-Encoding")
    if "expect" in headers:
        return refused(417, "expected the body without waiting for an answer")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        return refused(400, "expected a number as Content-Length")
    if len(length) > 9 or int(length) > BODY_LIMIT_BYTES:
        return refused(413, f"expected a body of at most {BODY_LIMIT_BYTES} bytes")
    wishes = [wish.strip().lower() for wish in headers.get("connection", "").split(",")]
    keeps_alive = "close" not in wishes and (version == "HTTP/1.1" or "keep-alive" in wishes)
    path, _, query = target.partition("?")
    return Request(method, path, headers, keeps_alive, int(length), query=query)


def _read_fields(lines: list[bytes]) -> dict[str, str] | Reply:
    if len(lines) > _MOST_FIELDS:
        return refused(431, f"expected at most {_MOST_FIELDS} header fields")
    found: dict[str, str] = {}
    for line in lines:
        raw, colon, rest = line.partition(b":")
        if not colon or not raw or not set(raw) <= _TOKEN or not set(rest) <= _IN_A_VALUE:
            return refused(400, "expected header fields such as Host: localhost")
        name, value = raw.decode("ascii").lower(), rest.strip(b" \t").decode("latin-1")
        if name in found and name in _ONCE:
            return refused(400, f"expected one {name} header")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def write_reply(reply: Reply, *, keeps_alive: bool, has_body: bool, length: int = 0) -> bytes:
    """Return the bytes of an answer; `has_body` is False for the answer to a HEAD, which says how long it would be.

    `length` is what follows the body in parts.
    """
    lines = [f"HTTP/1.1 {reply.status} {_REASONS[reply.status]}"]
    fields = [
        ("Content-Type", reply.content_type),
        ("Content-Length", str(len(reply.body) + length)),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        ("Connection", "keep-alive" if keeps_alive else "close"),
        *reply.headers,
    ]
    lines += [f"{name}: {value}" for name, value in fields]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (reply.body if has_body else b"")
