"""Requests are read strictly: what no honest client sends is answered with what is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.observe.request import BODY_LIMIT_BYTES, Reply, Request, read_head, refused, write_reply

CAREFUL = settings(max_examples=200, database=None)


def head(first: str = "GET /livez HTTP/1.1", *fields: str, host: str = "Host: localhost") -> bytes:
    return "\r\n".join([first, *([host] if host else []), *fields]).encode("latin-1")


def status_of(found: Request | Reply) -> int:
    assert isinstance(found, Reply), found
    assert found.body.endswith(b"\n")
    assert found.body.count(b"\n") == 1
    return found.status


def test_a_request_is_read() -> None:
    found = read_head(head("POST /v1/stop?x=1 HTTP/1.1", "Content-Length: 12", "ACCEPT:\t*/* "))
    assert isinstance(found, Request)
    assert (found.method, found.path, found.length, found.keeps_alive) == ("POST", "/v1/stop", 12, True)
    assert found.headers == {"host": "localhost", "content-length": "12", "accept": "*/*"}


@pytest.mark.parametrize(
    ("first", "field", "keeps"),
    [
        ("GET / HTTP/1.1", "Connection: close", False),
        ("GET / HTTP/1.1", "Connection: Upgrade, Close", False),
        ("GET / HTTP/1.1", "Connection: keep-alive", True),
        ("GET / HTTP/1.0", "Accept: */*", False),
        ("GET / HTTP/1.0", "Connection: Keep-Alive", True),
    ],
)
def test_a_connection_is_kept_as_the_client_wishes(first: str, field: str, keeps: bool) -> None:
    found = read_head(head(first, field))
    assert isinstance(found, Request)
    assert found.keeps_alive == keeps


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"", 400),
        (b"GET", 400),
        (b"GET /", 400),
        (b"GET  / HTTP/1.1\r\nHost: x", 400),
        (b"GET / HTTP/1.1 \r\nHost: x", 400),
        (b"G(T / HTTP/1.1\r\nHost: x", 400),
        (b"GET /\x00 HTTP/1.1\r\nHost: x", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: x", 400),
        (b"GET / HTTP/2.0\r\nHost: x", 505),
        (b"GET / http/1.1\r\nHost: x", 505),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"PUT / HTTP/1.1\r\nHost: x", 405),
        (b"get / HTTP/1.1\r\nHost: x", 405),
        (b"GET http://x/ HTTP/1.1\r\nHost: x", 400),
        (b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\nHost: x", 414),
        (b"GET / HTTP/1.1", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y", 400),
        (b"GET / HTTP/1.1\r\nHost : x", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n folded: y", 400),
        (b"GET / HTTP/1.1\r\nHost: x\nX: y", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n: y", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nno colon", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: a\x00b", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +1", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x1", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: \xb2", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999", 413),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d" % (BODY_LIMIT_BYTES + 1), 413),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked", 501),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked", 501),
        (b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue", 417),
        (b"GET / HTTP/1.1\r\nHost: x" + b"\r\nX: y" * 64, 431),
    ],
)
def test_what_is_no_request_is_answered_with_what_is_wrong(raw: bytes, status: int) -> None:
    assert status_of(read_head(raw)) == status


def test_a_method_that_is_not_taken_says_which_are() -> None:
    found = read_head(head("DELETE / HTTP/1.1"))
    assert isinstance(found, Reply)
    assert found.headers == (("Allow", "GET, HEAD, POST"),)


@CAREFUL
@given(st.binary(max_size=200))
def test_whatever_comes_is_a_request_or_a_reply(raw: bytes) -> None:
    assert isinstance(read_head(raw), Request | Reply)
    assert isinstance(read_head(b"GET / HTTP/1.1\r\nHost: x\r\n" + raw), Request | Reply)


def test_a_reply_says_how_long_it_is_and_what_becomes_of_the_connection() -> None:
    written = write_reply(refused(405, "no", ("Allow", "GET")), keeps_alive=False, has_body=True)
    first, _, body = written.partition(b"\r\n\r\n")
    assert body == b"no\n"
    assert first.split(b"\r\n")[0] == b"HTTP/1.1 405 Method Not Allowed"
    assert {b"Content-Length: 3", b"Connection: close", b"Allow: GET", b"Cache-Control: no-store"} <= set(
        first.split(b"\r\n")
    )


def test_the_reply_to_a_head_has_no_body_and_the_same_length() -> None:
    written = write_reply(Reply(200, b"abc"), keeps_alive=True, has_body=False)
    assert written.endswith(b"\r\n\r\n")
    assert b"Content-Length: 3\r\n" in written
    assert b"Connection: keep-alive\r\n" in written
