from __future__ import annotations

import socket

import pytest

from planaria.elastic.utils import get_env_variable_or_raise, get_socket_with_port, macros


def test_a_variable_that_is_set_is_returned_even_if_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_NAME", "")
    assert get_env_variable_or_raise("SOME_NAME") == ""


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_NAME", raising=False)
    with pytest.raises(ValueError, match="Environment variable SOME_NAME expected, but not set"):
        get_env_variable_or_raise("SOME_NAME")


def test_a_socket_listens_at_a_port_of_its_own() -> None:
    with get_socket_with_port() as first, get_socket_with_port() as second:
        assert first.getsockname()[1] != second.getsockname()[1]
        socket.create_connection(("localhost", first.getsockname()[1]), timeout=30).close()


def test_no_address_of_localhost_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: [])
    with pytest.raises(RuntimeError, match="Failed to create a socket"):
        get_socket_with_port()


def test_the_macro_is_replaced_and_nothing_else_is() -> None:
    args = ["--rank=${local_rank}", "$$", "$HOME", "$local_rank", 7, None]
    assert macros.substitute(args, "3") == ["--rank=3", "$$", "$HOME", "$local_rank", 7, None]
    assert macros.substitute([macros.local_rank], "12") == ["12"]
