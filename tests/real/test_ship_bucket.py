"""Objects read from S3 with real boto3: moto's S3, and servers that hang up, stay silent or are not there."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from aws_server import aws  # noqa: F401  a fixture
from ports import free_ports

from planaria.errors import FetchFailed
from planaria.ship.bucket import connect, read
from planaria.ship.source import Stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aws_server import Aws

PATIENCE_S = 30
OBJECT = Stored("some-bucket", "x.py")


@pytest.fixture
def here(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Aws:  # noqa: F811  the fixture
    """The variables that a node has, in this process."""
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    return aws


def problem(source: Stored, timeout_s: float = 30.0) -> str:
    with pytest.raises(FetchFailed) as caught:
        fetched(source, timeout_s)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def fetched(source: Stored, timeout_s: float = 30.0) -> bytes:
    client = connect(timeout_s, tries=1)
    try:
        return b"".join(read(client, source))
    finally:
        client.close()


@contextmanager
def server(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Answer one connection after the other with these bytes and hang up; give the address and what was asked."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in answers:
                connection, _ = listener.accept()
                with connection:
                    asked.append(connection.recv(65536))
                    connection.sendall(answer)

        listener.settimeout(PATIENCE_S)
        thread = threading.Thread(target=serve)  # beside the client, which blocks
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        thread.join(2 * PATIENCE_S)
        assert not thread.is_alive()


def head(status: str, length: int, *more: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {length}", 'ETag: "one"', "Connection: close", *more, "", ""]
    return "\r\n".join(lines).encode()


def refusal(status: str, code: str) -> bytes:
    body = f"<Error><Code>{code}</Code><Message>no\u202e</Message></Error>".encode()
    return head(status, len(body)) + body


def test_an_object_is_read_and_its_size_is_known_first(here: Aws) -> None:
    bucket = here.bucket()
    client = here.client("s3")
    content = bytes(range(256)) * 10_000
    client.put_object(Bucket=bucket, Key="a b/é", Body=content)  # type: ignore[attr-defined]
    client.put_object(Bucket=bucket, Key="empty", Body=b"")  # type: ignore[attr-defined]
    client.close()  # type: ignore[attr-defined]
    sizes: list[int] = []
    ours = connect()
    assert b"".join(read(ours, Stored(bucket, "a b/é"), sizes.append)) == content
    assert b"".join(read(ours, Stored(bucket, "empty"), sizes.append)) == b""
    ours.close()
    assert sizes == [len(content), 0]


def test_what_is_not_there_is_named(here: Aws) -> None:
    assert "there is no such object" in problem(Stored(here.bucket(), "nope.py"))
    assert "there is no bucket 'no-such-bucket-anywhere'" in problem(Stored("no-such-bucket-anywhere", "x.py"))


def test_nobody_without_credentials_is_left_in_the_dark(here: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "there are no credentials for AWS" in problem(OBJECT)
    monkeypatch.setenv("AWS_PROFILE", "nope")
    assert "the configuration of AWS cannot be used: " in problem(OBJECT)


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        ("403 Forbidden", "AccessDenied", "access denied (the role needs s3:GetObject"),
        ("403 Forbidden", "ExpiredToken", "S3 does not take these credentials (ExpiredToken)"),
        ("400 Bad Request", "Odd", "S3 answered Odd: no"),
    ],
)
def test_a_refusal_is_one_sentence(
    here: Aws, monkeypatch: pytest.MonkeyPatch, status: str, code: str, said: str
) -> None:
    with server(refusal(status, code)) as (address, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        told = problem(OBJECT)
    assert said in told
    assert "\u202e" not in told


def test_a_server_that_is_not_there_or_says_nothing_is_one_sentence(here: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_ports(1)[0]}")
    assert "no connection to S3" in problem(OBJECT)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert "S3 did not answer in time" in problem(OBJECT, timeout_s=0.3)


def test_a_stream_that_breaks_off_goes_on_where_it_was(here: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    first = head("200 OK", 10) + b"0123"
    second = head("206 Partial Content", 6, "Content-Range: bytes 4-9/10") + b"456789"
    with server(first, second) as (address, asked):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        assert fetched(OBJECT) == b"0123456789"
    assert b"Range: bytes=4-\r\n" in asked[1]
    assert b'If-Match: "one"\r\n' in asked[1]


def test_a_stream_that_breaks_off_again_and_again_is_one_sentence(here: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [head("206 Partial Content", 10 - at, f"Content-Range: bytes {at}-9/10") + b"x" for at in (1, 2, 3)]
    with server(head("200 OK", 10) + b"x", *parts) as (address, asked):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        assert "broke off again and again: " in problem(OBJECT)
    assert len(asked) == 4


def test_a_stream_goes_on_after_a_moment_in_which_nobody_listened(here: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []
    port = free_ports(1)[0]
    with socket.create_server(("127.0.0.1", port)) as listener:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        client = connect(tries=1)
        listener.settimeout(PATIENCE_S)

        def answer(content: bytes) -> None:
            connection, _ = listener.accept()
            with connection:
                listener.shutdown(socket.SHUT_RDWR)  # the port, asked for by its number, stays ours
                connection.recv(65536)
                connection.sendall(content)

        def begin(content: bytes) -> threading.Thread:
            thread = threading.Thread(target=answer, args=(content,))  # beside the client, which blocks
            thread.start()
            return thread

        def again(**_about: object) -> None:
            tries.append("")
            if len(tries) == 3:
                listener.listen()
                threads.append(begin(head("206 Partial Content", 6, "Content-Range: bytes 4-9/10") + b"456789"))

        threads = [begin(head("200 OK", 10) + b"0123")]
        client.meta.events.register("before-call.s3.GetObject", again)
        try:
            assert b"".join(read(client, OBJECT)) == b"0123456789"
        finally:
            client.close()
            for thread in threads:
                thread.join(2 * PATIENCE_S)
    assert len(tries) == 3  # the second one was refused


def test_an_object_that_was_replaced_meanwhile_is_not_mixed(here: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    with server(head("200 OK", 10) + b"0123", refusal("412 Precondition Failed", "PreconditionFailed")) as (address, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        assert "it was replaced while it was read" in problem(OBJECT)
