from __future__ import annotations

import pytest

from planaria.agent.settings import Meeting
from planaria.agent.trust import is_here, is_trusting, is_within_host
from planaria.contract.secret import Secret


def held(*endpoints: str, backend: str = "embedded", local_addr: str | None = None) -> Meeting:
    return Meeting(backend, endpoints, "job", 1, 2, local_addr=local_addr)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "a.localhost", "127.0.0.1", "127.9.9.9", "::1"])
def test_what_means_loopback_everywhere_is_here(host: str) -> None:
    assert is_here(host)


@pytest.mark.parametrize("host", ["", "node1", "10.0.0.1", "::", "0.0.0.0", "127.0.0.1.example", "::2"])
def test_whatever_else_may_be_reached_by_strangers(host: str) -> None:
    assert not is_here(host)


def test_a_meeting_is_within_the_host_when_all_its_addresses_are_loopback() -> None:
    assert is_within_host(held("localhost:1", "[::1]:2"))
    assert is_within_host(held("127.0.0.1:1", backend="static", local_addr="127.0.0.2"))


def test_one_address_beyond_loopback_opens_the_door() -> None:
    assert not is_within_host(held("localhost:1", "node2:1"))
    assert not is_within_host(held("localhost:1", local_addr="10.0.0.1"))
    assert not is_within_host(held())


def test_agents_that_meet_through_an_etcd_listen_on_every_address_wherever_it_is() -> None:
    assert not is_within_host(held("localhost:2379", backend="etcd"))


def test_a_token_or_certificates_keep_strangers_out() -> None:
    open_one = held("node1:1")
    assert is_trusting(open_one)
    assert not is_trusting(Meeting("embedded", ("node1:1",), "job", 1, 2, token=Secret(b"a secret of some length")))
    assert not is_trusting(Meeting("embedded", ("node1:1",), "job", 1, 2, options={"tls_cert": "c.pem"}))
