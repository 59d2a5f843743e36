"""Say where an agent listens, which endpoint is its own, and under which address the others reach it.

Decided from the kernel's routes and from forward look-ups, never from a reverse one. The `/etc/hosts` of many systems maps
the host's own name to 127.0.1.1: that shows whose name it is, and is never handed to another host.
"""

from __future__ import annotations

import _socket as socket

from planaria.base.value import Value, replace
from planaria.contract.burial import life

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Protocol

    class Network(Protocol):
        """What a host knows about its own network."""

        def source_towards(self, address: str) -> str | None:
            """Return the own address that packets to `address` would carry, without sending one; None: no route."""

        def interfaces(self) -> tuple[str, ...]:
            """Return the addresses of the host's interfaces."""


OUTWARD = (
    "192.0.2.1",
    "2001:db8::1",
)  # kept for documentation by RFC 5737 and 3849: only the default route leads there
_LOCALHOST = ("localhost", "ip6-localhost", "ip6-loopback")
_LOOPBACKS = ("127.0.0.1", "::1")


class Endpoint(Value):
    """One endpoint as the user wrote it; `addresses` is None until its name was looked up."""

    host: str
    port: int
    addresses: tuple[str, ...] | None = None

    @property
    def is_loopback(self) -> bool:
        """Tell whether it was written as loopback; a name that only this host's files map there was not."""
        return is_localhost(self.host) or is_loopback(self.host)


class Reach(Value):
    """Where an agent listens and is reached: hosts to bind ("" for all addresses), and the one to tell others."""

    owned: int | None
    listen: tuple[str, ...]
    host: str
    warning: str = ""


def node_id(hostname: str, random: bytes, pod_uid: str = "") -> str:
    """Return the name of an agent: readable, and never the same twice."""
    return f"{hostname}-{life(pod_uid, random)}"


def is_numeric(host: str) -> bool:
    """Tell whether `host` is an address, so that nothing has to be looked up."""
    return bool(_packed(host))


def is_loopback(address: str) -> bool:
    """Tell whether `address` only leads back to the host it is used on."""
    packed = _packed(address)
    return packed[:1] == b"\x7f" if len(packed) == 4 else packed == b"\0" * 15 + b"\1"


def is_localhost(host: str) -> bool:
    """Tell whether `host` is a name that means loopback everywhere."""
    return host.lower() in _LOCALHOST or host.lower().endswith(".localhost")


def known(endpoint: Endpoint) -> Endpoint:
    """Fill in the addresses that no look-up is needed for."""
    if is_numeric(endpoint.host):
        return replace(endpoint, addresses=(endpoint.host,))
    return replace(endpoint, addresses=_LOOPBACKS) if is_localhost(endpoint.host) else endpoint


def spread(endpoints: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
    """Replace names that stand for several hosts by one endpoint an address, in an order all hosts agree on.

    The name itself stays behind them: who is looked up later may have joined it since.
    """
    return tuple(one for endpoint in endpoints for one in _spread(endpoint))


def reach(endpoints: Sequence[Endpoint], hostname: str, local_addr: str | None, network: Network) -> Reach:
    """Decide where an agent listens and what it tells the others; `endpoints` as `spread` returned them."""
    owned = next((index for index, one in enumerate(endpoints) if _is_own(one, hostname, network)), None)
    return reach_owning(owned, endpoints, local_addr, network, local=all(one.is_loopback for one in endpoints))


def reach_owning(
    owned: int | None, endpoints: Sequence[Endpoint], local_addr: str | None, network: Network, *, local: bool
) -> Reach:
    """Do as `reach` does when it is known which endpoint is the agent's own; `local`: all agents are on this host.

    A store on loopback says nothing about the agents: on each host there may be a member or a proxy of it.
    """
    host = local_addr or next(_candidates(endpoints, network, local=local), _LOOPBACKS[0])
    loops = is_loopback(host) or is_localhost(host)
    if local and loops:
        listen = (endpoints[owned].addresses or ()) if owned is not None else (host,)
        return Reach(owned, _bindable(listen, network) or (host,), host)
    return Reach(owned, ("",), host, _loopback_warning(host, endpoints) if loops else "")


def _packed(host: str) -> bytes:
    """Return the bytes of an address, none for a name. A zone (`fe80::1%eth0`) is no part of it."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_pton(family, host.partition("%")[0])
        except (OSError, ValueError):  # ValueError: a zero character inside
            continue
    return b""


def _is_any(address: str) -> bool:
    return is_numeric(address) and not any(_packed(address))


def _spread(endpoint: Endpoint) -> tuple[Endpoint, ...]:
    addresses = endpoint.addresses or ()
    families = [len(_packed(address)) for address in addresses]
    if endpoint.is_loopback or max((families.count(size) for size in (4, 16)), default=0) < 2:
        return (endpoint,)  # one host: its name is better than its address, which a replacement may not inherit
    ordered = sorted(addresses, key=_packed)
    return (*(Endpoint(address, endpoint.port, (address,)) for address in ordered), replace(endpoint, addresses=()))


def _is_own(endpoint: Endpoint, hostname: str, network: Network) -> bool:
    """A host sends to its own addresses from exactly these; one that cannot look its name up still knows it."""
    if endpoint.addresses is None:
        return endpoint.host == hostname
    return any(
        is_loopback(address) or _is_any(address) or network.source_towards(address) == address
        for address in endpoint.addresses
    )


def _candidates(endpoints: Sequence[Endpoint], network: Network, *, local: bool) -> Iterator[str]:
    """Give the addresses worth telling others, best first: what the endpoints see, the default route's, any."""
    towards = [address for one in endpoints for address in one.addresses or () if not _is_any(address)]
    if local:
        yield from (address for address in towards if network.source_towards(address))
    for address in (*towards, *OUTWARD):
        source = network.source_towards(address)
        if source is not None and not is_loopback(source) and ("%" in address or not _is_link_local(source)):
            yield source
    yield from (address for address in network.interfaces() if not is_loopback(address) and not _is_link_local(address))


def _is_link_local(address: str) -> bool:
    packed = _packed(address)
    return packed[:2] == b"\xa9\xfe" if len(packed) == 4 else packed[:1] == b"\xfe" and packed[1] & 0xC0 == 0x80


def _bindable(addresses: Sequence[str], network: Network) -> tuple[str, ...]:
    """Leave out the family that this host lacks."""
    return tuple(address for address in addresses if network.source_towards(address) is not None)


def _loopback_warning(host: str, endpoints: Sequence[Endpoint]) -> str:
    others = [one.host for one in endpoints if not one.is_loopback]
    although = f", although {others[0]} may be another host" if others else ""
    return (
        f"other nodes are told to reach this one at {host}, which only leads back to whoever uses it{although}: "
        "--local-addr=ADDRESS names an address that they can reach"
    )


class Routes:
    """The network of this host, as its kernel knows it."""

    def source_towards(self, address: str) -> str | None:
        """Ask the routing table, by a datagram socket that is connected and never used."""
        try:
            probe = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        except OSError:  # no such family on this host
            return None
        try:
            probe.connect((address, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return None
        finally:
            probe.close()

    def interfaces(self) -> tuple[str, ...]:
        """Read the local addresses from `/proc/net`; the standard library has no other way to list them."""
        return tuple(dict.fromkeys((*local_v4(_lines("/proc/net/fib_trie")), *local_v6(_lines("/proc/net/if_inet6")))))


def local_v4(lines: Sequence[str]) -> Iterator[str]:
    """Read the kernel's tree of IPv4 routes: an address is the line before `/32 host LOCAL`."""
    address = ""
    for line in lines:
        mark, _, rest = line.strip().partition(" ")
        if mark == "|--":
            address = rest
        elif line.split() == ["/32", "host", "LOCAL"]:
            yield address


def local_v6(lines: Sequence[str]) -> Iterator[str]:
    """Read the kernel's list of IPv6 addresses: 32 hex digits come first in a line."""
    for line in lines:
        yield socket.inet_ntop(socket.AF_INET6, bytes.fromhex(line[:32]))


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii") as file:
            return file.readlines()
    except OSError:  # a sandbox without it: routes have to do
        return []
