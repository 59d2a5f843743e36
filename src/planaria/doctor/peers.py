"""Between hosts: what was met at a peer, and what that means. Pure."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.doctor.model import fail, ok, size, warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from planaria.doctor.model import Finding

    Met = Literal["doctor", "peer", "token", "stranger", "refused", "nobody"]

SLOW_TRIP_S = 0.01  # in one building it is a tenth of a millisecond
SLOW_BYTES_S = 12_500_000  # 100 Mbit/s: a link that has agreed on the wrong speed


class PeerSeen(Value):
    """What came of the talk with one peer. `met`: who was there. Where a number is None, it did not come to that.

    `doctor` answers our questions; `peer` is an agent, or another that speaks the protocol and no more; `token`: it has
    another token. `is_alive`: the host answers on other ports.
    """

    peer: str
    met: Met
    why: str = ""
    is_alive: bool = False
    own_version: str = ""
    version: str = ""
    round_trip_s: float | None = None
    large_up: bool | None = None
    large_down: bool | None = None
    up_bytes_s: float | None = None
    down_bytes_s: float | None = None
    clock_ahead_s: float | None = None


def check_peer(seen: PeerSeen) -> list[Finding]:
    """Judge what came of it."""
    found = [_reach(seen)]
    if seen.met == "token":
        found.append(_token(seen))
    if seen.met != "doctor":
        return found
    found += [_version(seen), *_round_trip(seen), *_large(seen), *_bandwidth(seen)]
    return [*found, *_clock(seen)]


def _reach(seen: PeerSeen) -> Finding:
    check, peer = "peers.reach", seen.peer
    port = peer.rpartition(":")[2]
    match seen.met:
        case "doctor" | "token":
            return ok(check, f"{peer} can be reached")
        case "peer":
            return warn(
                check,
                f"{peer} can be reached, and an agent, or another that is no doctor, answers there ({seen.why})",
                "for packets, bandwidth and versions, run `planaria doctor --listen --port=PORT` on a free port there",
            )
        case "stranger":
            return fail(
                check,
                f"another program answers at {peer}: {seen.why}",
                "choose another port: `ss -ltnp` on that host names who has this one",
            )
        case "refused":
            return fail(
                check,
                f"the host of {peer} answers, and nobody listens at that port",
                f"run `planaria doctor --listen --port={port}` there; if it runs, a firewall refuses the port",
            )
        case _:
            return _silence(seen, port)


def _silence(seen: PeerSeen, port: str) -> Finding:
    check, peer = "peers.reach", seen.peer
    if "look up" in seen.why:
        return fail(check, f"{peer}: {seen.why}", "correct the name, add it to /etc/hosts, or use an address in digits")
    if seen.is_alive:
        return fail(
            check,
            f"{peer} does not answer, though its host does: a firewall drops what is sent to port {port}",
            f"allow TCP to port {port} between all nodes (security group, iptables, NetworkPolicy)",
        )
    return fail(
        check,
        f"{peer} does not answer at all: {seen.why}",
        "look whether that host is up, its cable in and its interface up (ip link), and whether a route leads there",
    )


def _token(seen: PeerSeen) -> Finding:
    return fail(
        "peers.token",
        f"{seen.peer} was not talked to: {seen.why}",
        "set PLANARIA_TOKEN, or PLANARIA_TOKEN_FILE, to the same secret on both hosts, or on neither",
    )


def _version(seen: PeerSeen) -> Finding:
    if seen.version == seen.own_version:
        return ok("peers.version", f"{seen.peer} has planaria {seen.version} as well")
    return fail(
        "peers.version",
        f"{seen.peer} has planaria {seen.version}, and this host {seen.own_version}",
        "install one version on all nodes",
    )


def _round_trip(seen: PeerSeen) -> list[Finding]:
    if seen.round_trip_s is None:
        return [
            fail(
                "peers.round-trip",
                f"{seen.peer} greeted us and then fell silent: {seen.why or 'no answer in time'}",
                "run it again; if it stays so, look for lost packets (ip -s link) and at the load of that host",
            )
        ]
    told = f"a round trip to {seen.peer} takes {seen.round_trip_s * 1000:.2f} ms"
    if seen.round_trip_s > SLOW_TRIP_S:
        return [warn("peers.round-trip", told, "run a job in one building; over longer ways, expect slow collectives")]
    return [ok("peers.round-trip", told)]


def _large(seen: PeerSeen) -> list[Finding]:
    if seen.large_up is None:
        return []
    if seen.large_up and seen.large_down:
        return [ok("peers.large", f"large packets arrive at {seen.peer} and from it")]
    way = "from" if seen.large_up else "to"
    return [
        fail(
            "peers.large",
            f"small packets pass, and large ones {way} {seen.peer} are lost: an MTU on the way is smaller than ours",
            "give all interfaces and switches one MTU (ip link set NAME mtu 1400 tries it), or let ICMP "
            "`fragmentation needed` pass the firewalls; sysctl -w net.ipv4.tcp_mtu_probing=1 works around it",
        )
    ]


def _bandwidth(seen: PeerSeen) -> list[Finding]:
    if not (seen.large_up and seen.large_down):  # which explains it
        return []
    if seen.up_bytes_s is None or seen.down_bytes_s is None:
        return [
            fail(
                "peers.bandwidth",
                f"a stream {'from' if seen.up_bytes_s else 'to'} {seen.peer} stopped: {seen.why or 'no answer in time'}",
                "look for lost packets (ip -s link), and at the load of that host",
            )
        ]
    told = f"{seen.peer} takes {size(seen.up_bytes_s)}/s and sends {size(seen.down_bytes_s)}/s, over one connection"
    if min(seen.up_bytes_s, seen.down_bytes_s) < SLOW_BYTES_S:
        return [
            warn(
                "peers.bandwidth",
                told,
                "look at the link's speed (ethtool NAME), at errors (ip -s link), and at who else uses it",
            )
        ]
    return [ok("peers.bandwidth", told)]


def _clock(seen: PeerSeen) -> list[Finding]:
    if seen.clock_ahead_s is None:
        return []
    way = "ahead of" if seen.clock_ahead_s >= 0 else "behind"
    return [
        ok(
            "peers.clock",
            f"its wall clock is {abs(seen.clock_ahead_s):.1f} s {way} ours; nothing of planaria depends on that",
        )
    ]
