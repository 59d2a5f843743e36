from __future__ import annotations

import pytest

from planaria.elastic.rendezvous.utils import _parse_rendezvous_config, parse_rendezvous_endpoint


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        (None, "localhost", 123),
        ("  ", "localhost", 123),
        ("head", "head", 123),
        (" head:1 ", "head", 1),
        ("10.0.0.1:0", "10.0.0.1", 0),
        ("[::1]", "::1", 123),
        ("[2001:db8::1]:65535", "2001:db8::1", 65535),
    ],
)
def test_an_endpoint_is_a_host_and_perhaps_a_port(text: str | None, host: str, port: int) -> None:
    assert parse_rendezvous_endpoint(text, 123) == (host, port)


@pytest.mark.parametrize("text", ["head:", "head:x", "head:65536", "head:123456", "head:-1"])
def test_a_port_is_a_number_below_65536(text: str) -> None:
    with pytest.raises(
        ValueError,
        match=f"^The port number of the rendezvous endpoint '{text}' must be an integer between 0 and 65536.$",
    ):
        parse_rendezvous_endpoint(text, 123)


@pytest.mark.parametrize("text", ["a b", "me@head:1", "http://x/y", ":1"])
def test_a_host_has_the_letters_of_one(text: str) -> None:
    with pytest.raises(ValueError, match=r"^The (hostname|port number) of the rendezvous endpoint "):
        parse_rendezvous_endpoint(text, 123)


def test_settings_are_pairs() -> None:
    assert _parse_rendezvous_config("  ") == {}
    assert _parse_rendezvous_config(" a = 1 ,b=x=y") == {"a": "1", "b": "x=y"}
    with pytest.raises(ValueError, match=r"must be in format <key1>=<value1>,...,<keyN>=<valueN>.$"):
        _parse_rendezvous_config("=1")
    with pytest.raises(ValueError, match=r"^The rendezvous configuration option 'a' must have a value specified.$"):
        _parse_rendezvous_config("a")
