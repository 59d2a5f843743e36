"""Connections under TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from certificates import Certificate, make_certificate
from net_ends import TOKENS, Client, Server, until

from planaria.base.channel import PEER, STRANGER
from planaria.base.loop import Loop

if TYPE_CHECKING:
    import ssl


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A self-signed certificate for 127.0.0.1 and localhost, and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls"), "planaria-test", names="IP:127.0.0.1,DNS:localhost")


def contexts(certificate: Certificate) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    import ssl

    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate)
    return server, ssl.create_default_context(cafile=certificate[0])


@pytest.mark.parametrize("token", TOKENS)
def test_tls_carries_messages_of_every_size(loop: Loop, certificate: Certificate, token: bytes | None) -> None:
    ours, theirs = contexts(certificate)
    server = Server(loop, token=token, tls=ours)
    sent = [b"first", b"", b"x" * 900_000, b"last"]
    client = Client(loop, server.address, *sent, token=token, tls=theirs)
    until(loop, lambda: len(client.heard) == len(sent))
    assert client.heard == [b"echo " + payload for payload in sent]
    assert client.connection is not None
    client.connection.close()
    until(loop, lambda: server.lost)
    assert server.lost == ["it ended the connection"]
    assert server.lines == []


def test_a_certificate_that_nobody_vouched_for_is_refused_and_named_at_both_ends(
    loop: Loop, certificate: Certificate
) -> None:
    import ssl

    ours, _ = contexts(certificate)
    server = Server(loop, tls=ours)
    client = Client(loop, server.address, tls=ssl.create_default_context())
    until(loop, lambda: client.lost and server.lines)
    assert "its TLS certificate is not accepted: self" in client.lost[0][0]
    assert client.lost[0][1] == STRANGER
    assert "it broke TLS" in server.lines[0]
    assert server.connections == []


def test_a_certificate_for_somebody_else_is_refused(loop: Loop, certificate: Certificate) -> None:
    ours, theirs = contexts(certificate)
    server = Server(loop, ("127.0.0.2", 0), tls=ours)
    client = Client(loop, f"127.0.0.2:{server.listener.port}", tls=theirs)
    until(loop, lambda: client.lost)
    assert "its TLS certificate is not accepted" in client.lost[0][0]


def test_plain_words_to_a_tls_port_are_refused_with_a_line(loop: Loop, certificate: Certificate) -> None:
    server = Server(loop, tls=contexts(certificate)[0])
    client = Client(loop, server.address, b"hi")
    until(loop, lambda: server.lines and client.lost)
    assert "it broke TLS" in server.lines[0]
    assert server.heard == []


def test_tls_to_a_plain_port_is_a_loss(loop: Loop, certificate: Certificate) -> None:
    server = Server(loop)
    client = Client(loop, server.address, tls=contexts(certificate)[1])
    until(loop, lambda: server.lines and client.lost)
    assert "does not speak this protocol" in server.lines[0]
    assert client.lost[0][1] == STRANGER


def test_a_wrong_token_under_tls_is_named_at_both_ends(loop: Loop, certificate: Certificate) -> None:
    ours, theirs = contexts(certificate)
    server = Server(loop, token=b"one", tls=ours)
    client = Client(loop, server.address, token=b"two", tls=theirs)
    until(loop, lambda: server.lines and client.lost)
    assert "another token" in server.lines[0]
    assert "another token" in client.lost[0][0]
    assert client.lost[0][1] == PEER
