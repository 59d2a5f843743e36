"""Names: this machine's own, and those of the endpoints. Pure."""

from __future__ import annotations

from planaria.base.value import Value
from planaria.doctor.model import fail, ok, warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.doctor.model import Finding

SLOW_S = 1.0  # a resolver that waits for a server that is gone gives up on it after 5 s
_FAR_LOOK = "set GLOO_SOCKET_IFNAME to this node's network interface"


class NameSeen(Value):
    """A name and its addresses, or why there are none, and how long that took; `is_digits`: it was an address already."""

    name: str
    addresses: tuple[str, ...] = ()
    problem: str = ""
    took_s: float = 0.0
    is_digits: bool = False


class DnsFacts(Value):
    """What the resolver says. `searches` counts the domains that are tried behind a name without a dot."""

    own: NameSeen
    endpoints: tuple[NameSeen, ...] = ()
    reverse_took_s: float = 0.0
    searches: int = 0
    servers: tuple[str, ...] = ()
    chooses_nic: bool = False
    """GLOO_SOCKET_IFNAME is set, so nobody needs our own name."""


def is_loopback(address: str) -> bool:
    """Tell whether nobody but this machine reaches an address."""
    return address.startswith(("127.", "::ffff:127.")) or address in ("::1", "localhost")


def check_dns(facts: DnsFacts) -> list[Finding]:
    """Judge what the resolver says."""
    return [_own(facts), *_loopback(facts), _slow(facts), *map(_endpoint, facts.endpoints)]


def _own(facts: DnsFacts) -> Finding:
    own = facts.own
    if own.addresses:
        return ok("dns.own-name", f"this machine's name {own.name} is {', '.join(own.addresses)}")
    if facts.chooses_nic:
        return ok("dns.own-name", f"this machine's name {own.name} cannot be looked up, and GLOO_SOCKET_IFNAME is set")
    return warn(
        "dns.own-name",
        f"this machine's own name {own.name} cannot be looked up ({own.problem}): Gloo would use the loopback address",
        f"add a line ADDRESS {own.name} to /etc/hosts, or {_FAR_LOOK}",
    )


def _loopback(facts: DnsFacts) -> list[Finding]:
    own = facts.own
    if not own.addresses:
        return []
    if facts.chooses_nic or not all(map(is_loopback, own.addresses)):
        return [ok("dns.loopback", "other nodes reach the address of this machine's name")]
    is_far = any(not all(map(is_loopback, one.addresses)) for one in facts.endpoints if one.addresses)
    told = f"this machine's name {own.name} is only {', '.join(own.addresses)}, which other nodes cannot reach"
    if not is_far:
        return [ok("dns.loopback", f"{told}: no matter on one node")]
    remedy = f"give {own.name} its real address in /etc/hosts instead of 127.0.1.1, or {_FAR_LOOK}"
    return [warn("dns.loopback", f"{told}: Gloo would listen there", remedy)]


def _slow(facts: DnsFacts) -> Finding:
    slow = [one for one in (facts.own, *facts.endpoints) if one.took_s > SLOW_S]
    if not slow and facts.reverse_took_s <= SLOW_S:
        return ok("dns.slow", "names are looked up at once")
    what = f"looking up {slow[0].name} took {slow[0].took_s:.1f} s" if slow else ""
    what = what or f"finding the name of this machine's address took {facts.reverse_took_s:.1f} s"
    servers = f" ({', '.join(facts.servers)})" if facts.servers else ""
    search = f", and shorten its list of {facts.searches} search domains" if facts.searches > 3 else ""
    return warn(
        "dns.slow", what, f"look at the name servers in /etc/resolv.conf{servers}: one of them may be gone{search}"
    )


def _endpoint(one: NameSeen) -> Finding:
    if one.problem:
        return fail(
            "dns.endpoint",
            f"the endpoint's name {one.name} cannot be looked up: {one.problem}",
            "correct --rdzv-endpoint, or use an address in digits; on Kubernetes a new service's name may need half a minute",
        )
    if one.is_digits:
        return ok("dns.endpoint", f"the endpoint {one.name} is an address")
    if all(map(is_loopback, one.addresses)) and one.name != "localhost":
        return warn(
            "dns.endpoint",
            f"the endpoint's name {one.name} is {', '.join(one.addresses)} here: this node would look for itself",
            f"give {one.name} its real address in /etc/hosts, or use an address in digits for --rdzv-endpoint",
        )
    return ok("dns.endpoint", f"the endpoint's name {one.name} is {', '.join(one.addresses)}")
