"""Where an agent listens and what it tells others, on hosts of every kind."""

from __future__ import annotations

import os

import pytest

from planaria.rendezvous.addresses import (
    Endpoint,
    Routes,
    is_loopback,
    is_numeric,
    known,
    local_v4,
    local_v6,
    node_id,
    reach,
    reach_owning,
    spread,
)


class FakeNetwork:
    """A host with some addresses of its own, and routes: by prefix, the address that packets leave with."""

    def __init__(self, *own: str, routes: dict[str, str] | None = None) -> None:
        self.own = own
        self.routes = routes or {}
        self.asked: list[str] = []

    def source_towards(self, address: str) -> str | None:
        self.asked.append(address)
        if address in self.own:
            return address
        if is_loopback(address):
            return address if address == "::1" else "127.0.0.1"
        return next((source for prefix, source in self.routes.items() if address.startswith(prefix)), None)

    def interfaces(self) -> tuple[str, ...]:
        return ("127.0.0.1", *self.own)


TWO_NICS = FakeNetwork(
    "10.0.0.5", "192.168.7.5", routes={"10.": "10.0.0.5", "192.168.7.": "192.168.7.5", "": "10.0.0.5"}
)


def at(host: str, *addresses: str, port: int = 29400) -> Endpoint:
    return known(Endpoint(host, port, addresses or None))


def test_a_node_id_is_the_host_and_eight_hex_digits() -> None:
    assert node_id("gpu-7", bytes.fromhex("00ff12ab99")) == "gpu-7-00ff12ab"


@pytest.mark.parametrize(
    ("address", "loops"),
    [
        ("127.0.0.1", True),
        ("127.0.1.1", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("gpu", False),
    ],
)
def test_loopback_addresses_are_known(address: str, loops: bool) -> None:
    assert is_loopback(address) is loops


def test_numeric_addresses_and_localhost_are_never_looked_up() -> None:
    assert known(Endpoint("10.0.0.1", 1)).addresses == ("10.0.0.1",)
    assert known(Endpoint("fd00::1", 1)).addresses == ("fd00::1",)
    assert known(Endpoint("localhost", 1)).addresses == ("127.0.0.1", "::1")
    assert known(Endpoint("gpu-0", 1)).addresses is None
    assert not is_numeric("10.0.0")
    assert not is_numeric("a\0b")


def test_the_address_towards_the_endpoint_is_told_to_others() -> None:
    found = reach((at("192.168.7.1"),), "me", None, TWO_NICS)
    assert (found.owned, found.listen, found.host, found.warning) == (None, ("",), "192.168.7.5", "")


def test_an_endpoint_at_an_own_address_is_owned() -> None:
    found = reach((at("192.168.7.1"), at("192.168.7.5")), "me", None, TWO_NICS)
    assert (found.owned, found.host) == (1, "192.168.7.5")


def test_the_first_of_two_own_endpoints_counts() -> None:
    assert reach((at("192.168.7.5"), at("10.0.0.5")), "me", None, TWO_NICS).owned == 0


def test_the_own_name_in_etc_hosts_shows_whose_it_is_and_is_not_told() -> None:
    found = reach((at("gpu-0", "127.0.1.1"),), "gpu-0", None, TWO_NICS)
    assert (found.owned, found.listen, found.host, found.warning) == (0, ("",), "10.0.0.5", "")


def test_the_own_name_in_etc_hosts_without_a_default_route_falls_back_on_an_interface() -> None:
    found = reach((at("gpu-0", "127.0.1.1"),), "gpu-0", None, FakeNetwork("169.254.3.3", "10.9.9.9"))
    assert found.host == "10.9.9.9"


def test_a_host_with_nothing_but_loopback_says_so_once() -> None:
    found = reach((at("gpu-0", "127.0.1.1"),), "gpu-0", None, FakeNetwork())
    assert found.host == "127.0.0.1"
    assert "--local-addr" in found.warning
    assert "gpu-0" in found.warning


def test_a_loopback_endpoint_stays_on_loopback() -> None:
    found = reach((at("127.0.0.1"),), "me", None, TWO_NICS)
    assert (found.owned, found.listen, found.host, found.warning) == (0, ("127.0.0.1",), "127.0.0.1", "")


def test_localhost_listens_on_both_families_where_there_are_two() -> None:
    assert reach((at("localhost"),), "me", None, TWO_NICS).listen == ("127.0.0.1", "::1")


def test_an_endpoint_on_all_addresses_is_owned_and_the_outward_address_is_told() -> None:
    found = reach((at("0.0.0.0"),), "me", None, TWO_NICS)
    assert (found.owned, found.listen, found.host) == (0, ("",), "10.0.0.5")


def test_local_addr_wins() -> None:
    found = reach((at("192.168.7.1"),), "me", "203.0.113.9", TWO_NICS)
    assert (found.host, found.warning) == ("203.0.113.9", "")


def test_a_loopback_local_addr_beside_another_host_is_warned_about() -> None:
    found = reach((at("192.168.7.1"),), "me", "localhost", TWO_NICS)
    assert found.host == "localhost"
    assert "192.168.7.1" in found.warning


def test_an_ipv6_only_host_needs_nothing_else() -> None:
    network = FakeNetwork("fd00::5", routes={"fd00:": "fd00::5"})
    found = reach((at("fd00::1"),), "me", None, network)
    assert (found.owned, found.host) == (None, "fd00::5")
    assert reach((at("fd00::5"),), "me", None, network).owned == 0


def test_a_name_with_both_families_uses_the_one_that_has_a_route() -> None:
    network = FakeNetwork("fd00::5", routes={"fd00:": "fd00::5"})
    assert reach((at("gpu-0", "10.0.0.1", "fd00::1"),), "me", None, network).host == "fd00::5"


def test_a_link_local_address_is_not_told() -> None:
    network = FakeNetwork("fe80::5", "10.0.0.5", routes={"fd00:": "fe80::5"})
    assert reach((at("fd00::1"),), "me", None, network).host == "10.0.0.5"


def test_without_a_name_server_a_host_still_knows_its_own_name() -> None:
    assert reach((at("gpu-0"),), "gpu-0", None, TWO_NICS).owned == 0
    assert reach((at("gpu-0"),), "gpu-1", None, TWO_NICS).owned is None


def test_a_name_that_stands_for_many_hosts_becomes_one_endpoint_each_in_the_same_order_everywhere() -> None:
    one = spread((at("workers", "10.0.0.9", "10.0.0.10", "10.0.0.5"),))
    other = spread((at("workers", "10.0.0.5", "10.0.0.9", "10.0.0.10"),))
    assert [endpoint.host for endpoint in one] == ["10.0.0.5", "10.0.0.9", "10.0.0.10", "workers"]
    assert one == other
    assert reach(one, "me", None, TWO_NICS).owned == 0
    assert reach(one, "me", None, FakeNetwork("10.0.0.10")).owned == 2


def test_a_name_of_one_host_keeps_its_name() -> None:
    endpoints = (at("gpu-0", "10.0.0.1", "fd00::1"), at("localhost"))
    assert spread(endpoints) == endpoints


def test_a_static_run_is_told_which_endpoint_is_its_own() -> None:
    assert reach_owning(0, (at("a-service", "10.96.0.1"),), None, TWO_NICS, local=False).owned == 0
    assert reach_owning(0, (at("not-known-yet"),), None, TWO_NICS, local=False).host == "10.0.0.5"


def test_a_store_on_loopback_does_not_keep_the_agents_there() -> None:
    found = reach_owning(None, (at("127.0.0.1", port=2379),), None, TWO_NICS, local=False)
    assert (found.owned, found.listen, found.host) == (None, ("",), "10.0.0.5")
    assert "--local-addr" in reach_owning(None, (at("127.0.0.1"),), None, FakeNetwork(), local=False).warning
    assert reach_owning(None, (), None, TWO_NICS, local=False).host == "10.0.0.5"


def test_the_kernel_lists_are_read() -> None:
    tree = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 10.0.0.0
        /24 link UNICAST
     |-- 10.0.0.5
        /32 host LOCAL
     |-- 10.0.0.255
        /32 link BROADCAST
"""
    assert list(local_v4(tree.splitlines())) == ["10.0.0.5"]
    assert list(local_v6(["fd000000000000000000000000000005 02 40 00 80 eth0\n"])) == ["fd00::5"]


def test_this_host_knows_its_own_loopback() -> None:
    routes = Routes()
    assert routes.source_towards("127.0.0.1") == "127.0.0.1"
    assert routes.source_towards("not an address") is None
    if os.path.exists("/proc/net/fib_trie"):  # some sandboxes have none
        assert "127.0.0.1" in routes.interfaces()
