"""Tell when strangers can reach the doors of a job, and what to say then. Pure."""

from __future__ import annotations

from planaria.rendezvous.addresses import is_localhost, is_loopback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.agent.settings import Meeting

_REMEDY = "set the same secret in PLANARIA_TOKEN or PLANARIA_TOKEN_FILE on every node"
OPEN_DOOR = f"no token and no TLS: whoever reaches the ports of these nodes can join or stop the job; {_REMEDY}"
OPEN_STORE = f"no token: whoever reaches port %s of this host can read and change what is in its store; {_REMEDY}"


def is_here(host: str) -> bool:
    """Tell whether a host was written as loopback: nobody else can reach what listens there."""
    return is_localhost(host) or is_loopback(host)


def is_within_host(meeting: Meeting) -> bool:
    """Tell whether all nodes of a meeting are on this host, so that they listen on loopback alone."""
    if meeting.backend not in ("embedded", "static"):
        return False  # wherever the store is, the agents listen for each other on every address
    hosts = [endpoint.rpartition(":")[0].strip("[]") for endpoint in meeting.endpoints]
    if meeting.local_addr is not None:
        hosts.append(meeting.local_addr)
    return bool(hosts) and all(is_here(host) for host in hosts)


def is_trusting(meeting: Meeting) -> bool:
    """Tell whether whoever comes is let in: agents know each other by a token or by certificates, or not at all."""
    return meeting.token is None and "tls_cert" not in meeting.options
