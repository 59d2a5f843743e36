"""The endpoint's port: free, ours, or somebody else's; and the range from which the kernel takes ports. Pure."""

from __future__ import annotations

from planaria.base.addresses import split_address
from planaria.base.value import Value
from planaria.doctor.model import fail, ok, warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from planaria.doctor.model import Finding

    State = Literal[
        "free", "taken", "mute", "forbidden", "ours", "answered", "refused", "silent", "unreachable", "unknown"
    ]

FEWEST_PORTS = 1000  # a job takes some for every worker and every pair of nodes; others on the machine do, too


class PortSeen(Value):
    """An endpoint, whether it is on this machine, and what was met there; `why` has the system's word.

    `free`: nobody listens, and we could. `ours`: an agent answers. `answered`: somebody does, and no more was asked.
    `taken`: somebody who is no agent. `mute`: somebody who says nothing. `silent`: no answer in time, though `is_alive` tells
    whether the host answers elsewhere.
    """

    endpoint: str
    is_here: bool
    state: State
    why: str = ""
    is_alive: bool = False


class PortFacts(Value):
    """What was met at the endpoints, and the kernel's own range of ports."""

    seen: tuple[PortSeen, ...] = ()
    first: int = 32768
    last: int = 60999
    reserved: str = ""


def check_ports(facts: PortFacts) -> list[Finding]:
    """Judge the ports."""
    return [*map(_endpoint, facts.seen), _range(facts)]


def _endpoint(seen: PortSeen) -> Finding:
    check, where = "ports.endpoint", seen.endpoint
    match seen.state:
        case "free":
            return ok(check, f"the port of {where} is free on this machine")
        case "ours":
            return ok(check, f"an agent of planaria answers at {where}")
        case "answered":
            return ok(check, f"somebody answers at {where}")
        case "taken":
            return fail(
                check,
                f"another program has the port of {where}" + (f" ({seen.why})" if seen.why else ""),
                "choose another port for --rdzv-endpoint, on all nodes, or end that program: `ss -ltnp` names it",
            )
        case "mute":
            return warn(
                check,
                f"somebody has the port of {where} and does not say who: an agent with TLS, or another program",
                "`ss -ltnp` on its host names it; with TLS all is well",
            )
        case "forbidden":
            return fail(
                check,
                f"this user may not listen at {where}: {seen.why}",
                "choose a port above 1023 for --rdzv-endpoint, on all nodes",
            )
        case _:
            return _elsewhere(seen)


def _elsewhere(seen: PortSeen) -> Finding:
    """Judge an endpoint at which nobody was met. Who should be there may only be late."""
    check, where = "ports.reach", seen.endpoint
    if seen.state == "unknown":
        return ok(check, f"{where} was not tried: {seen.why}")
    if seen.state == "refused":
        return warn(
            check,
            f"nobody listens at {where} yet",
            "all is well if the node with the endpoint starts later; else look whether its launcher runs",
        )
    if seen.state == "silent" and seen.is_alive:
        return fail(
            check,
            f"{where} does not answer, though its host does: a firewall drops what is sent to this port",
            f"allow TCP to port {where.rpartition(':')[2]} between all nodes (security group, iptables, NetworkPolicy)",
        )
    return fail(
        check,
        f"{where} cannot be reached: {seen.why or 'no answer'}",
        "look whether that host is up and in the same network, and whether a firewall lies between",
    )


def _range(facts: PortFacts) -> Finding:
    check, count = "ports.range", facts.last - facts.first + 1
    shown = f"{facts.first} to {facts.last}"
    if count < FEWEST_PORTS:
        return warn(
            check,
            f"the kernel has only {count} ports to give away ({shown})",
            "sysctl -w net.ipv4.ip_local_port_range='32768 60999'",
        )
    for seen in facts.seen:
        port = split_address(seen.endpoint)[1]
        if seen.is_here and facts.first <= port <= facts.last and not _is_reserved(port, facts.reserved):
            return warn(
                check,
                f"the endpoint's port {port} is among those that the kernel gives to any connection ({shown})",
                f"choose one below {facts.first}, or: sysctl -w net.ipv4.ip_local_reserved_ports={port}",
            )
    return ok(check, f"the kernel gives away the ports {shown}")


def _is_reserved(port: int, text: str) -> bool:
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and int(first) <= port <= (int(last) if last.isdigit() else int(first)):
            return True
    return False
