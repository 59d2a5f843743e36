"""Names, interfaces, ports and peers: every row is facts, and what is found."""

from __future__ import annotations

import pytest

from planaria.base.value import replace
from planaria.doctor.dns import DnsFacts, NameSeen, check_dns
from planaria.doctor.model import Finding
from planaria.doctor.network import NetworkFacts, Nic, Route, check_network
from planaria.doctor.peers import PeerSeen, check_peer
from planaria.doctor.ports import PortFacts, PortSeen, check_ports

OWN = NameSeen("n1", ("10.0.0.1",))
FAR = NameSeen("n0", ("10.0.0.9",))
LO = Nic("lo", True, True, 65536, ("127.0.0.1", "::1"))
ETH = Nic("eth0", True, True, 1500, ("10.0.0.1",))
WAY = Route("n0:29400", "10.0.0.1")


def troubles(found: list[Finding]) -> dict[str, tuple[str, str]]:
    """Return what is not well, by check; each has a remedy, and what is well has none."""
    for one in found:
        assert bool(one.remedy) == (one.verdict != "ok"), one
        assert one.sentence
        assert "\n" not in one.sentence + one.remedy
    return {one.check: (one.verdict, f"{one.sentence} -> {one.remedy}") for one in found if one.verdict != "ok"}


DNS = [
    (DnsFacts(OWN), "", ""),
    (DnsFacts(NameSeen("n1", (), "Name or service not known")), "dns.own-name", "/etc/hosts"),
    (DnsFacts(NameSeen("n1", (), "unknown"), chooses_nic=True), "", ""),
    (DnsFacts(NameSeen("n1", ("127.0.1.1",))), "", ""),
    (DnsFacts(NameSeen("n1", ("127.0.1.1",)), (FAR,)), "dns.loopback", "127.0.1.1"),
    (DnsFacts(NameSeen("n1", ("127.0.1.1",)), (FAR,), chooses_nic=True), "", ""),
    (DnsFacts(NameSeen("n1", ("127.0.1.1", "10.0.0.1")), (FAR,)), "", ""),
    (DnsFacts(replace(OWN, took_s=5.0), searches=6, servers=("10.0.0.53",)), "dns.slow", "6 search domains"),
    (DnsFacts(OWN, reverse_took_s=5.0), "dns.slow", "the name of this machine's address"),
    (DnsFacts(OWN, (NameSeen("n0", (), "Name or service not known"),)), "dns.endpoint", "--rdzv-endpoint"),
    (DnsFacts(OWN, (NameSeen("n0", ("127.0.1.1",)),)), "dns.endpoint", "would look for itself"),
    (DnsFacts(OWN, (NameSeen("localhost", ("127.0.0.1",)), FAR, NameSeen("10.0.0.9", ("10.0.0.9",), "", 0, True))), "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "check", "words"), DNS)
def test_names(facts: DnsFacts, check: str, words: str) -> None:
    found = troubles(check_dns(facts))
    assert list(found) == ([check] if check else [])
    assert words in str(found)


NETWORK = [
    (NetworkFacts((LO, ETH), (WAY,)), "", ""),
    (NetworkFacts((LO,)), "", ""),
    (NetworkFacts((LO, replace(ETH, is_up=False)), (Route("n0:29400", problem="unreachable"),)), "network.route", "ip route"),
    (NetworkFacts((LO, replace(ETH, has_carrier=False)), (WAY,)), "network.route", "through eth0, which has no carrier"),
    (NetworkFacts((LO, replace(ETH, is_up=False)), (WAY,)), "network.interfaces", "eth0 is down"),
    (NetworkFacts((LO, replace(ETH, mtu=576))), "network.mtu", "1280"),
    (NetworkFacts((LO, ETH, Nic("eth1", True, True, 9000, ("10.1.0.1",)))), "network.mtu", "eth0 1500, eth1 9000"),
    (NetworkFacts((LO, ETH, Nic("ib0", True, True, 4092, ("10.1.0.1",)))), "", ""),
    (NetworkFacts((LO, ETH), (WAY,), {"GLOO_SOCKET_IFNAME": "ib0"}), "network.chosen", "set it to one of: lo, eth0"),
    (NetworkFacts((LO, ETH), (WAY,), {"GLOO_SOCKET_IFNAME": "lo"}), "network.chosen", "loopback"),
    (NetworkFacts((LO, replace(ETH, has_carrier=False)), (), {"NCCL_SOCKET_IFNAME": "=eth0"}), "network.chosen", "no carrier"),
    (NetworkFacts((LO, ETH), (WAY,), {"NCCL_SOCKET_IFNAME": "eth", "GLOO_SOCKET_IFNAME": "eth0"}), "", ""),
    (NetworkFacts((LO, ETH), (WAY,), {"NCCL_SOCKET_IFNAME": "=eth"}), "network.chosen", "names no interface"),
    (NetworkFacts((LO, ETH), (WAY,), {"NCCL_SOCKET_IFNAME": "^docker,lo"}), "", ""),
    (NetworkFacts((LO, ETH), (WAY,), {"GLOO_SOCKET_IFNAME": "eth"}), "network.chosen", "names no interface"),
]  # fmt: skip


def test_whatever_interfaces_look_like_a_way_that_the_kernel_knows_is_no_failure() -> None:
    for nics in ((), (LO,), (LO, replace(ETH, has_carrier=False)), (LO, replace(ETH, is_up=False))):
        assert all(one.verdict != "fail" for one in check_network(NetworkFacts(nics, (WAY,))))


def test_no_interface_and_no_way_is_a_failure_and_no_endpoint_is_none() -> None:
    lost = troubles(check_network(NetworkFacts((LO,), (Route("n0:29400", problem="Network is unreachable"),))))
    assert {check: verdict for check, (verdict, _) in lost.items()} == {
        "network.interfaces": "fail",
        "network.route": "fail",
    }
    assert troubles(check_network(NetworkFacts((LO,), (Route("localhost:1", "127.0.0.1"),)))) == {}


@pytest.mark.parametrize(("facts", "check", "words"), NETWORK)
def test_interfaces(facts: NetworkFacts, check: str, words: str) -> None:
    found = troubles(check_network(facts))
    assert (check in found) if check else not found
    assert words in str(found)


def port(state: str, here: bool = False, **more: object) -> PortFacts:
    return PortFacts((PortSeen("n0:29400", here, state, **more),))  # type: ignore[arg-type]


PORTS = [
    (port("free", True), "", ""),
    (port("ours"), "", ""),
    (port("answered"), "", ""),
    (port("unknown", why="no such name"), "", ""),
    (port("taken", True), "ports.endpoint", "ss -ltnp"),
    (port("mute", True), "ports.endpoint", "an agent with TLS"),
    (port("forbidden", True, why="Permission denied"), "ports.endpoint", "above 1023"),
    (port("refused"), "ports.reach", "starts later"),
    (port("silent", is_alive=True), "ports.reach", "firewall drops"),
    (port("silent", why="no answer within 2 s"), "ports.reach", "cannot be reached: no answer within 2 s"),
    (port("unreachable", why="No route to host"), "ports.reach", "No route to host"),
    (PortFacts((), 50000, 50100), "ports.range", "only 101 ports"),
    (PortFacts((PortSeen("n0:40000", True, "free"),)), "ports.range", "ip_local_reserved_ports=40000"),
    (PortFacts((PortSeen("n0:40000", True, "free"),), reserved="39990-40010"), "", ""),
    (PortFacts((PortSeen("n0:40000", False, "ours"),)), "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "check", "words"), PORTS)
def test_ports(facts: PortFacts, check: str, words: str) -> None:
    found = troubles(check_ports(facts))
    assert list(found) == ([check] if check else [])
    assert words in str(found)


def test_a_port_where_nobody_listens_yet_keeps_no_node_from_joining() -> None:
    assert troubles(check_ports(port("refused")))["ports.reach"][0] == "warn"
    assert troubles(check_ports(port("taken")))["ports.endpoint"][0] == "fail"


WELL = PeerSeen("n0:29400", "doctor", "", False, "1.0", "1.0", 0.0002, True, True, 1e9, 1e9, -0.3)
PEERS = [
    (WELL, "", ""),
    (PeerSeen("n0:29400", "refused"), "peers.reach", "planaria doctor --listen --port=29400"),
    (PeerSeen("n0:29400", "stranger", "it does not speak this protocol"), "peers.reach", "another program"),
    (PeerSeen("n0:29400", "peer", "it ended the connection"), "peers.reach", "is no doctor"),
    (PeerSeen("n0:29400", "nobody", "no answer within 5 s", True), "peers.reach", "firewall drops what is sent to port 29400"),
    (PeerSeen("n0:29400", "nobody", "no answer within 5 s"), "peers.reach", "its cable in"),
    (PeerSeen("n0:29400", "nobody", "cannot look up n0"), "peers.reach", "/etc/hosts"),
    (PeerSeen("n0:29400", "token", "it has another token than this end"), "peers.token", "the same secret"),
    (replace(WELL, version="1.1"), "peers.version", "1.1, and this host 1.0"),
    (replace(WELL, round_trip_s=0.05), "peers.round-trip", "50.00 ms"),
    (replace(WELL, large_up=False, large_down=False, up_bytes_s=None), "peers.large", "large ones to n0"),
    (replace(WELL, large_down=False, up_bytes_s=None), "peers.large", "large ones from n0"),
    (replace(WELL, down_bytes_s=1e6), "peers.bandwidth", "ethtool"),
    (replace(WELL, round_trip_s=None, large_up=None, up_bytes_s=None), "peers.round-trip", "fell silent"),
    (replace(WELL, up_bytes_s=None, why="it ended"), "peers.bandwidth", "a stream to n0:29400 stopped: it ended"),
    (replace(WELL, down_bytes_s=None), "peers.bandwidth", "a stream from n0:29400 stopped"),
]  # fmt: skip


@pytest.mark.parametrize(("seen", "check", "words"), PEERS)
def test_peers(seen: PeerSeen, check: str, words: str) -> None:
    found = troubles(check_peer(seen))
    assert list(found) == ([check] if check else [])
    assert words in str(found)


def test_the_clock_of_another_host_is_told_and_never_judged() -> None:
    [clock] = [one for one in check_peer(replace(WELL, clock_ahead_s=86_400.0)) if one.check == "peers.clock"]
    assert clock.verdict == "ok"
    assert "86400.0 s ahead of ours" in clock.sentence
