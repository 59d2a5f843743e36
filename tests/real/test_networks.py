"""Jobs of several hosts: network namespaces on a bridge, with cables to pull and packets to lose. As root.

The clock is shared by all of them, so the order of what happened on different hosts can be asserted: the workers of a host
that is cut off are dead before anybody else starts the next round.
"""

from __future__ import annotations

import functools
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
from crew import Crew
from harness import is_alive, wait_gone, wait_until
from networks import Network

from planaria.chaos import hosts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from crew import CrewNode
    from harness import Room

FENCE_TTL_S = 3.0  # where a lease has to run out; elsewhere none does within a test
KEPT_TTL_S = 10.0  # where one has to be renewed
PORT = 29400


@functools.cache
def why_not() -> str:
    return hosts.why_not()


@pytest.fixture(autouse=True)
def _able() -> None:
    if why_not():
        pytest.skip(why_not())


pytestmark = pytest.mark.root


@pytest.fixture
def network() -> Iterator[Callable[..., Network]]:
    """Make networks that end with the test."""
    made: list[Network] = []

    def make(count: int, **settings: Any) -> Network:
        made.append(Network(count, **settings))
        return made[-1].__enter__()

    try:
        yield make
    finally:
        for one in made:
            one.close()


def endpoint(network: Network, host: int = 0) -> str:
    return f"{network.hosts[host].address}:{PORT}"


def add(crew: Crew, network: Network, names: str) -> None:
    """Start nodes a, b, c ... on hosts 1, 2, 3 ..."""
    for name in names:
        crew.add(name, host=network.hosts["abcdef".index(name)])


def three(room: Room, network: Network, **settings: Any) -> Crew:
    """Start a job on three hosts; a has the endpoint and leads."""
    crew = Crew(room, "--max-restarts=0", nodes="1:3", endpoint=endpoint(network), **settings)
    add(crew, network, "abc")
    crew.wait_world("a", "b", "c")
    return crew


@pytest.mark.parametrize("order", ["abc", "cba", "bca"])
def test_hosts_with_the_same_command_meet_whoever_comes_first(room: Room, network: Any, order: str) -> None:
    net = network(3)
    crew = Crew(room, "--max-restarts=0", nodes="3", endpoint=endpoint(net))
    add(crew, net, order[0])
    if order[0] != "a":
        crew.nodes[order[0]].wait_said("no leader yet")
    add(crew, net, order[1:])
    world = crew.wait_world("a", "b", "c")
    began = [line["master"] for line in crew.log() if line["what"] == "began"]
    master = next(name for name, ranks in world.ranks.items() if 0 in ranks)
    assert set(began) == {net.hosts["abc".index(master)].address}
    crew.end_well("a", "b", "c")


def has_connection(node: CrewNode, host: hosts.Host) -> bool:
    """Tell whether a node has an open connection with a host."""
    far = socket.inet_aton(host.address)[::-1].hex().upper()
    with open(f"/proc/{node.agent()}/net/tcp") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return any(row[2].startswith(f"{far}:") and row[3] == "01" for row in rows)


# Cables.


@pytest.mark.parametrize("who", ["a", "b"], ids=["leader", "follower"])
def test_a_host_whose_link_is_down_stops_before_the_others_go_on_and_comes_back(
    room: Room, network: Any, who: str
) -> None:
    net = network(3)
    crew = three(room, net, ttl_s=FENCE_TTL_S)
    workers = crew.nodes[who].workers()
    net.hosts["abc".index(who)].cut()
    rest = [name for name in "abc" if name != who]
    crew.wait_world(*rest)
    crew.check_one_world()
    assert not any(map(is_alive, workers))
    assert crew.nodes[who].is_running
    net.hosts["abc".index(who)].mend()
    assert crew.wait_world("a", "b", "c").life == 0
    crew.end_well("a", "b", "c")


def test_a_link_that_is_down_for_a_moment_costs_nothing(room: Room, network: Any) -> None:
    net = network(3)
    crew = three(room, net, ttl_s=30)
    workers = crew.nodes["b"].workers()
    net.hosts[1].cut()
    time.sleep(1.0)  # the moment for which it is down: that is what is tried here
    net.hosts[1].mend()
    crew.end_well("a", "b", "c")
    crew.check_no_newer_world()
    assert not any(map(is_alive, workers))


@pytest.mark.parametrize("majority", ["abc", "bcd"], ids=["with the leader", "without the leader"])
def test_in_a_partition_the_minority_stops_before_the_majority_begins_the_next_round(
    room: Room, network: Any, majority: str
) -> None:
    net = network(5)
    crew = Crew(room, "--max-restarts=0", nodes="1:5", endpoint=endpoint(net), ttl_s=FENCE_TTL_S)
    add(crew, net, "abcde")
    crew.wait_world(*"abcde")
    minority = [name for name in "abcde" if name not in majority]
    workers = [pid for name in minority for pid in crew.nodes[name].workers()]
    sides = [tuple(net.hosts["abcde".index(name)] for name in side) for side in (majority, minority)]
    net.partition(*sides)
    crew.wait_world(*majority)
    crew.check_one_world()
    assert not any(map(is_alive, workers))
    net.heal()
    crew.wait_world(*"abcde")
    crew.end_well(*"abcde")


@pytest.mark.parametrize(("deaf", "unheard"), [("a", "b"), ("b", "a")], ids=["leader is deaf", "follower is deaf"])
def test_a_partition_in_one_direction_is_one(room: Room, network: Any, deaf: str, unheard: str) -> None:
    net = network(3)
    crew = three(room, net, ttl_s=FENCE_TTL_S)
    hosts_by_name = dict(zip("abc", net.hosts, strict=True))
    before = len(crew.worlds())
    hosts_by_name[deaf].drop_from(hosts_by_name[unheard])
    wait_until(lambda: len(crew.worlds()) > before, "a next round")
    crew.check_one_world()
    net.heal()
    wait_until(lambda: crew.worlds()[-1].nodes == {"a", "b", "c"}, "a world of all")
    crew.end_well("a", "b", "c")


def test_two_hosts_that_lose_sight_of_each_other_never_make_two_worlds(room: Room, network: Any) -> None:
    net = network(2)
    crew = Crew(room, "--max-restarts=0", nodes="1:2", endpoint=endpoint(net), ttl_s=FENCE_TTL_S)
    add(crew, net, "ab")
    crew.wait_world("a", "b")
    net.partition((net.hosts[0],), (net.hosts[1],))
    # The leader breaks the tie: it has half of the members, and goes on alone when the other must have stopped.
    assert crew.wait_world("a").life == 0
    crew.nodes["b"].wait_said("killed the workers of this node")
    crew.check_one_world()
    net.heal()
    crew.wait_world("a", "b")
    crew.end_well("a", "b")


# Power.


def test_the_others_go_on_when_the_stores_host_loses_power(room: Room, network: Any) -> None:
    net = network(4)
    crew = three(room, net, ttl_s=FENCE_TTL_S)
    killed = crew.cut_power(net.hosts[0])
    assert {crew.nodes["a"].pid, crew.nodes["a"].agent()} <= set(killed)
    wait_gone(killed)
    crew.wait_world("b", "c")
    crew.check_one_world()
    # A newcomer knows the dead address only; the host that has it again is no new beginning either.
    net.hosts[0].mend()
    crew.add("f", host=net.hosts[0])
    world = crew.wait_world("b", "c", "f")
    assert world.life == 0
    crew.end_well("b", "c", "f")


def test_a_second_endpoint_is_no_second_beginning_for_those_who_were_cut_off(room: Room, network: Any) -> None:
    net = network(3)
    both = f"{endpoint(net)},{endpoint(net, 2)}"
    crew = Crew(room, "--max-restarts=0", nodes="1:3", endpoint=both, ttl_s=FENCE_TTL_S)
    add(crew, net, "ab")
    crew.wait_world("a", "b")
    net.partition(tuple(net.hosts[:1]), tuple(net.hosts[1:]))
    crew.wait_world("a")
    add(crew, net, "c")  # it has the second endpoint, and never hears from the first
    holds = "holding: 1 of 2 members of round 0 are here"

    def hold_together() -> bool:
        is_said = any(holds in crew.nodes[name].err() for name in "bc")  # by the one of them that leads
        return is_said and has_connection(crew.nodes["c"], net.hosts[1])

    wait_until(hold_together, "b and c have met, and hold")
    net.heal()
    assert crew.wait_world("a", "b", "c").life == 0
    crew.end_well("a", "b", "c")


def test_a_survivor_of_two_that_cannot_know_holds_and_a_replacement_at_the_dead_address_holds_with_it(
    room: Room, network: Any
) -> None:
    net = network(2)
    crew = Crew(room, "--max-restarts=0", nodes="1:2", endpoint=endpoint(net), ttl_s=FENCE_TTL_S)
    add(crew, net, "ab")
    crew.wait_world("a", "b")
    workers = crew.nodes["b"].workers()
    crew.cut_power(net.hosts[0])
    crew.nodes["b"].wait_said("holding: ")
    assert not any(map(is_alive, workers))
    # The host is back, and refuses connections to the dead agent. But b had been out of touch: the other may have gone on
    # with a node that b never heard of.
    net.hosts[0].mend()
    crew.add("c", host=net.hosts[0])
    crew.nodes["c"].wait_said("holding: ")
    crew.check_no_newer_world()


def test_a_host_that_refuses_new_connections_is_not_dead_as_long_as_its_old_one_lives(room: Room, network: Any) -> None:
    net = network(3)
    crew = three(room, net, ttl_s=KEPT_TTL_S)
    for other in net.hosts[:1] + net.hosts[2:]:
        net.hosts[1].refuse_new(other)
    crew.nodes["b"].wait_renewal(time.monotonic(), KEPT_TTL_S)
    crew.check_no_newer_world()
    crew.end_well("a", "b", "c")


# Addresses.


def test_hosts_meet_on_ipv6_alone(room: Room, network: Any) -> None:
    net = network(3, ipv4=False)
    crew = Crew(room, "--max-restarts=0", nodes="1:3", endpoint=f"[{net.hosts[0].address6}]:{PORT}")
    add(crew, net, "abc")
    crew.wait_world("a", "b", "c")
    assert {line["master"] for line in crew.log() if line["what"] == "began"} <= {one.address6 for one in net.hosts}
    crew.nodes["a"].kill()
    assert crew.wait_world("b", "c").life == 0
    crew.end_well("b", "c")


def test_addresses_need_no_name_server(room: Room, network: Any) -> None:
    net = network(2)
    for host in net.hosts:
        host.count("-p", "udp", "--dport", "53")
        host.count("-p", "tcp", "--dport", "53")
    crew = Crew(room, nodes="2", endpoint=endpoint(net))
    add(crew, net, "ab")
    crew.wait_world("a", "b")
    crew.end_well("a", "b")
    assert [host.counted() for host in net.hosts] == [0, 0]


def test_of_two_nics_the_one_that_was_named_is_used(room: Room, network: Any) -> None:
    net = network(3, nics=2)
    crew = Crew(room, "--max-restarts=0", nodes="1:3", endpoint=f"{net.hosts[0].second_address}:{PORT}")
    for name, host in zip("abc", net.hosts, strict=True):
        crew.add(name, f"--local-addr={host.second_address}", host=host)
    crew.wait_world("a", "b", "c")
    for host in net.hosts:
        host.cut()  # eth0, which nobody uses
    masters = {line["master"] for line in crew.log() if line["what"] == "began"}
    assert masters <= {host.second_address for host in net.hosts}
    crew.nodes["a"].kill()
    assert crew.wait_world("b", "c").life == 0
    crew.end_well("b", "c")


# Bad lines.


@pytest.mark.timeout(400)
def test_a_job_forms_and_survives_a_kill_on_lines_that_lose_and_delay_packets(room: Room, network: Any) -> None:
    net = network(3)
    for host in net.hosts:
        host.lose(0.3)
        host.delay(0.05)
    crew = Crew(room, "--max-restarts=0", nodes="1:3", endpoint=endpoint(net))
    add(crew, net, "abc")
    patience_s = 100.0  # a packet that is lost three times in a row waits for seven seconds
    crew.wait_world("a", "b", "c", timeout_s=patience_s)
    crew.nodes["b"].kill()
    assert crew.wait_world("a", "c", timeout_s=patience_s).life == 0
    crew.add("d", host=net.hosts[1])
    assert crew.wait_world("a", "c", "d", timeout_s=patience_s).life == 0
    net.heal()
    crew.end_well("a", "c", "d")
