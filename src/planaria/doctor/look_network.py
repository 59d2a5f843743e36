"""Gather facts about names, interfaces, ways and ports. Nothing is judged here."""

from __future__ import annotations

import errno
import os
import select
import socket
import sys
import time
from functools import partial

from planaria.base.addresses import numeric, split_address
from planaria.base.channel import NONCE_BYTES, Channel
from planaria.base.linux import read_file
from planaria.base.value import replace
from planaria.doctor.dns import DnsFacts, NameSeen
from planaria.doctor.network import NetworkFacts, Nic, Route
from planaria.doctor.ports import PortFacts, PortSeen
from planaria.doctor.together import together

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from planaria.base.addresses import Target
    from planaria.doctor.ports import State

LOOK_UP_S = 6.0  # a resolver gives up on a name server that is gone after 5 s and asks the next
KNOCK_S = 2.0
ENDPOINT_S = 13.0  # one look-up, and a connection or two
OTHER_PORTS = (22, 1, 9)  # ssh, and two where nobody listens: any answer, even a refusal, is a sign of life
_SIOCGIFFLAGS, _SIOCGIFADDR, _SIOCGIFMTU = 0x8913, 0x8915, 0x8921
_IFF_UP, _IFF_RUNNING = 0x1, 0x40
_MOST_ADDRESSES = 4
_MOST_FIRST = ("answered", "forbidden", "free", "refused", "silent", "unreachable")


def dns_facts(endpoints: Sequence[str], variables: Mapping[str, str]) -> DnsFacts:
    """Look up this machine's name, and those of the endpoints, all at once."""
    lines = [line.split() for line in read_file("/etc/resolv.conf").decode("utf-8", "replace").splitlines()]
    hosts = [split_address(endpoint)[0] for endpoint in endpoints]
    own, *seen = look_up_all([os.uname().nodename, *dict.fromkeys(hosts)])
    return DnsFacts(
        own,
        tuple(seen),
        _reverse_took_s(own.addresses[0]) if own.addresses else 0.0,
        max((len(words) - 1 for words in lines if words and words[0] == "search"), default=0),
        tuple(words[1] for words in lines if len(words) > 1 and words[0] == "nameserver"),
        bool(variables.get("GLOO_SOCKET_IFNAME")),
    )


def look_up_all(names: Sequence[str]) -> list[NameSeen]:
    """Return what the resolver says about each name; one that it leaves without an answer holds up no other."""
    found, late = together({name: partial(look_up, name) for name in names}, LOOK_UP_S)
    silence = f"no answer within {LOOK_UP_S:g} s"
    return [NameSeen(name, (), silence, LOOK_UP_S) if name in late else found[name] for name in names]


def look_up(name: str) -> NameSeen:
    """Return what the resolver says about a name, and how long it took."""
    began = time.monotonic()
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        why = getattr(problem, "strerror", None) or str(problem)
        return NameSeen(name, (), why, time.monotonic() - began)
    addresses = tuple(dict.fromkeys(str(address[0]) for *_, address in found))
    return NameSeen(name, addresses, "", time.monotonic() - began, bool(numeric(name, 0)))


def _reverse_took_s(address: str) -> float:
    began = time.monotonic()
    together({address: lambda: _reverse(address)}, LOOK_UP_S)
    return time.monotonic() - began


def _reverse(address: str) -> str:
    try:
        return socket.gethostbyaddr(address)[0]
    except OSError:
        return ""


def network_facts(endpoints: Sequence[str], variables: Mapping[str, str]) -> NetworkFacts:
    """Look at the interfaces, and ask the kernel for the ways to the endpoints. Nothing is sent."""
    found, late = together({one: partial(_route, one) for one in endpoints}, LOOK_UP_S)
    routes = [route for one in endpoints if one not in late and (route := found[one]) is not None]
    return NetworkFacts(nics(), tuple(routes), variables)


def nics() -> tuple[Nic, ...]:
    """Return the interfaces that this process has. `/sys` shows those of whoever mounted it, which may be another's."""
    sixes = _addresses6()
    return tuple(_nic(name, sixes.get(name, ())) for name in sorted(name for _, name in socket.if_nameindex()))


def _nic(name: str, sixes: tuple[str, ...]) -> Nic:
    flags = int.from_bytes(_asked(name, _SIOCGIFFLAGS)[:2], sys.byteorder)
    four = _asked(name, _SIOCGIFADDR)[4:8]
    addresses = ((socket.inet_ntoa(four),) if four else ()) + sixes
    mtu = int.from_bytes(_asked(name, _SIOCGIFMTU)[:4], sys.byteorder)
    return Nic(name, bool(flags & _IFF_UP), bool(flags & _IFF_RUNNING), mtu, addresses)


def _asked(name: str, question: int) -> bytes:
    """Return what the kernel answers about an interface, behind the name; empty where it has no answer."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            return fcntl.ioctl(asked.fileno(), question, name.encode()[:15].ljust(40, b"\0"))[16:]
        except OSError:
            return b""


def _word(path: str) -> str:
    return read_file(path, 100).decode("ascii", "replace").strip()


def _addresses6() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for line in read_file("/proc/net/if_inet6").decode("ascii", "replace").splitlines():
        digits, *_, name = line.split()
        found[name] = (*found.get(name, ()), socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return found


def _route(endpoint: str) -> Route | None:
    """Ask the kernel for the way to an endpoint; None where its name has no address, which `dns` tells."""
    host, port = split_address(endpoint)
    try:
        found = socket.getaddrinfo(host, port or 9, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return None
    problem = ""
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as asked:
                asked.connect(address)
                return Route(endpoint, str(asked.getsockname()[0]))
        except OSError as trouble:
            problem = trouble.strerror or str(trouble)
    return Route(endpoint, problem=problem)


def port_facts(endpoints: Sequence[str], token: bytes | None, *, is_ours: bool) -> PortFacts:
    """Knock at the endpoints; `is_ours`: agents listen there, so whoever answers is asked whether it is one."""
    words = _word("/proc/sys/net/ipv4/ip_local_port_range").split()
    first, last = (int(words[0]), int(words[1])) if len(words) == 2 else (32768, 60999)
    reserved = read_file("/proc/sys/net/ipv4/ip_local_reserved_ports", 4096).decode("ascii", "replace").strip()
    found, late = together({one: partial(_port, one, token, is_ours=is_ours) for one in endpoints}, ENDPOINT_S)
    silence = f"no answer within {ENDPOINT_S:g} s"
    seen = [PortSeen(one, False, "silent", silence) if one in late else found[one] for one in endpoints]
    return PortFacts(tuple(seen), first, last, reserved)


def _port(endpoint: str, token: bytes | None, *, is_ours: bool) -> PortSeen:
    """Look at every address of an endpoint; what says most about it counts."""
    host, port = split_address(endpoint)
    [name] = look_up_all([host])
    targets = [target for address in name.addresses for target in numeric(address, port)][:_MOST_ADDRESSES]
    if not targets:
        return PortSeen(endpoint, False, "unknown", name.problem or "no such name")
    met, late = together({target: partial(_meet, endpoint, target) for target in targets}, 2 * KNOCK_S)
    silent = PortSeen(endpoint, False, "silent", f"no answer within {2 * KNOCK_S:g} s")
    found = [silent if target in late else met[target] for target in targets]
    best = min(found, key=lambda seen: _MOST_FIRST.index(seen.state))
    if best.state == "silent":
        return replace(best, is_alive=is_alive(targets[found.index(best)][1][0]))
    if best.state == "answered" and is_ours:
        return replace(best, state=_greet(targets[found.index(best)], token))
    return best


def _meet(endpoint: str, target: Target) -> PortSeen:
    return _bind(endpoint, target) or _knock(endpoint, target)


def _bind(endpoint: str, target: Target) -> PortSeen | None:
    """Return what an endpoint on this machine lets us do; None for one elsewhere, or where somebody listens."""
    family, address = target
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)  # and no more: whoever comes for the port in this moment gets it
    except OSError as trouble:
        is_forbidden = trouble.errno == errno.EACCES
        return PortSeen(endpoint, True, "forbidden", trouble.strerror or "") if is_forbidden else None
    return PortSeen(endpoint, True, "free")


def _knock(endpoint: str, target: Target) -> PortSeen:
    family, address = target
    is_here = any(address[0] in nic.addresses for nic in nics())
    with socket.socket(family, socket.SOCK_STREAM) as door:
        door.settimeout(KNOCK_S)
        try:
            door.connect(address)
        except TimeoutError:
            return PortSeen(endpoint, is_here, "silent", f"no answer within {KNOCK_S:g} s")
        except OSError as trouble:
            if trouble.errno == errno.ECONNREFUSED:
                return PortSeen(endpoint, is_here, "refused")
            return PortSeen(endpoint, is_here, "unreachable", trouble.strerror or str(trouble))
    return PortSeen(endpoint, is_here, "answered")


def _greet(target: Target, token: bytes | None) -> State:
    """Say hello, and return whether the other end begins as every program of planaria does, otherwise, or not at all."""
    family, address = target
    hello = Channel(token=token, dials=True, nonce=os.urandom(NONCE_BYTES)).opening()
    with socket.socket(family, socket.SOCK_STREAM) as door:
        door.settimeout(KNOCK_S)
        try:
            door.connect(address)
            door.sendall(hello)
            answer = door.recv(6)
        except OSError:
            return "mute"
    return "mute" if not answer else "ours" if hello.startswith(answer) else "taken"


def is_alive(host: str) -> bool:
    """Tell whether a host, by its address, answers anything at all on other ports."""
    targets = [target for port in OTHER_PORTS for target in numeric(host, port)]
    tried = [socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) for family, _ in targets]
    try:
        waiting = select.poll()
        for one, (_, address) in zip(tried, targets, strict=True):
            if one.connect_ex(address) == errno.ECONNREFUSED:
                return True
            waiting.register(one, select.POLLOUT)
        deadline = time.monotonic() + KNOCK_S / 2
        by_number = {one.fileno(): one for one in tried}
        while by_number and (left_s := deadline - time.monotonic()) > 0:
            for number, _ in waiting.poll(left_s * 1000):
                waiting.unregister(number)
                if by_number.pop(number).getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in (0, errno.ECONNREFUSED):
                    return True
        return False
    finally:
        for one in tried:
            one.close()
