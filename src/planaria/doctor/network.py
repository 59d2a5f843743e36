"""Network interfaces, the way to the endpoints, and the variables that choose an interface. Pure."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.doctor.dns import is_loopback
from planaria.doctor.model import fail, ok, warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.doctor.model import Finding

LEAST_MTU = 1280  # what IPv6 needs of every link
_EXACT = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_PREFIXES = ("NCCL_SOCKET_IFNAME",)


class Nic(Value):
    """A network interface. `is_up`: it was switched on; `has_carrier`: there is somebody at the other end of its cable."""

    name: str
    is_up: bool
    has_carrier: bool
    mtu: int
    addresses: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        """Tell whether it can be used."""
        return self.is_up and self.has_carrier


class Route(Value):
    """The way to an endpoint: the address we would come from, or why there is none."""

    endpoint: str
    source: str = ""
    problem: str = ""


class NetworkFacts(Value):
    """All interfaces, the ways to the endpoints, and the variables."""

    nics: tuple[Nic, ...]
    routes: tuple[Route, ...] = ()
    variables: Mapping[str, str] = {}


def check_network(facts: NetworkFacts) -> list[Finding]:
    """Judge the interfaces."""
    return [_interfaces(facts), *(_route(facts, one) for one in facts.routes), _mtu(facts), *_chosen(facts)]


def _far(facts: NetworkFacts) -> list[Nic]:
    return [nic for nic in facts.nics if nic.name != "lo"]


def _interfaces(facts: NetworkFacts) -> Finding:
    usable = [nic for nic in _far(facts) if nic.works and nic.addresses]
    if usable:
        shown = ", ".join(f"{nic.name} ({nic.addresses[0]}, MTU {nic.mtu})" for nic in usable[:4])
        return ok("network.interfaces", f"up: {shown}{', ...' if len(usable) > 4 else ''}")
    down = [nic for nic in _far(facts) if not nic.works]
    why = ", ".join(f"{nic.name} {'has no carrier' if nic.is_up else 'is down'}" for nic in down[:4])
    told = "no network interface but the loopback one can be used" + (f": {why}" if why else "")
    remedy = "plug in the cable, or switch one on: ip link set NAME up"
    if any(one.source and not is_loopback(one.source) for one in facts.routes):
        return warn("network.interfaces", f"{told}; yet there is a way to the endpoint", remedy)
    if any(one.problem for one in facts.routes):
        return fail("network.interfaces", told, remedy)
    return ok("network.interfaces", f"{told}; no matter on one node")


def _route(facts: NetworkFacts, route: Route) -> Finding:
    """Judge a way. Where the kernel has one, it may lead elsewhere than through the interface with our address on it."""
    if route.problem:
        return fail(
            "network.route",
            f"there is no way to the endpoint {route.endpoint}: {route.problem}",
            "look at `ip route` and `ip link`: is the right interface up, has it an address, is there a default route?",
        )
    nic = next((one for one in facts.nics if route.source in one.addresses), None)
    through = f" through {nic.name}" if nic is not None else ""
    if nic is not None and not nic.works:
        return warn(
            "network.route",
            f"the way to the endpoint {route.endpoint} seems to lead{through}, which "
            + ("has no carrier" if nic.is_up else "is down"),
            f"plug in its cable, or: ip link set {nic.name} up",
        )
    return ok("network.route", f"the endpoint {route.endpoint} is reached{through} from {route.source}")


def _mtu(facts: NetworkFacts) -> Finding:
    usable = [nic for nic in _far(facts) if nic.works and nic.addresses]
    small = [nic for nic in usable if nic.mtu < LEAST_MTU]
    if small:
        return warn(
            "network.mtu",
            f"the MTU of {small[0].name} is {small[0].mtu}, less than the {LEAST_MTU} that IPv6 needs",
            f"ip link set {small[0].name} mtu 1500, unless a tunnel needs less",
        )
    for kind in {_kind(nic.name) for nic in usable}:
        alike = [nic for nic in usable if _kind(nic.name) == kind]
        if len({nic.mtu for nic in alike}) > 1:
            shown = ", ".join(f"{nic.name} {nic.mtu}" for nic in alike[:6])
            return warn(
                "network.mtu",
                f"interfaces of one kind have different MTUs: {shown}",
                "give all of them, on all nodes and switches, one MTU; planaria doctor --peer finds packets that are lost",
            )
    return ok("network.mtu", "interfaces of one kind have one MTU")


def _kind(name: str) -> str:
    """Return an interface's name without what counts it: `eth` of eth0, `enp` of enp134s0."""
    return name[: next((at for at, letter in enumerate(name) if letter.isdigit()), len(name))]


def _chosen(facts: NetworkFacts) -> list[Finding]:
    found = [_variable(facts, name) for name in (*_EXACT, *_PREFIXES) if facts.variables.get(name)]
    return found or [ok("network.chosen", "no variable chooses an interface")]


def _variable(facts: NetworkFacts, variable: str) -> Finding:
    value = facts.variables[variable]
    check = "network.chosen"
    if variable in _PREFIXES and value.startswith("^"):
        return ok(check, f"{variable}={value} leaves interfaces out")
    words = [word for word in value.removeprefix("=").split(",") if word]
    exact = variable in _EXACT or value.startswith("=")
    nics = [
        nic for nic in facts.nics if any(nic.name == word if exact else nic.name.startswith(word) for word in words)
    ]
    here = ", ".join(nic.name for nic in facts.nics)
    if not nics:
        return fail(check, f"{variable}={value} names no interface of this machine", f"set it to one of: {here}")
    if not any(nic.works for nic in nics):
        state = "has no carrier" if nics[0].is_up else "is down"
        return fail(
            check,
            f"{variable}={value} names {nics[0].name}, which {state}",
            f"plug in its cable, switch it on (ip link set {nics[0].name} up), or set it to another of: {here}",
        )
    is_far = any(one.source and not is_loopback(one.source) for one in facts.routes)
    if is_far and all(nic.name == "lo" for nic in nics):
        return fail(
            check,
            f"{variable}={value} names the loopback interface, and the endpoint is on another machine",
            f"set it to one of: {', '.join(nic.name for nic in _far(facts)) or 'another interface'}",
        )
    return ok(check, f"{variable}={value} is {', '.join(nic.name for nic in nics)}")
