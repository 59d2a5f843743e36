"""Who may ask what over HTTP. Pure.

Probes and metrics are everybody's. What can be read below `/v1` is this machine's, or needs the token. What changes the job
needs the token, or the owner's door. Whatever is below `/v1` is refused to browsers: a page of somebody else's must not speak
through one, neither as itself (`Origin`) nor under a name that it has pointed here (`Host`).
"""

from __future__ import annotations

from _operator import _compare_digest  # what `hmac.compare_digest` is

from planaria.observe.request import refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from planaria.contract.secret import Secret
    from planaria.observe.http import Peer
    from planaria.observe.request import Reply, Request

LIVENESS = ("/livez", "/")
_READ = ("GET", "HEAD")
ROUTES = {
    "/": _READ,
    "/livez": _READ,
    "/readyz": _READ,
    "/metrics": _READ,
    "/v1/status": _READ,
    "/v1/journal": _READ,
    "/v1/logs": _READ,
    "/v1/evidence": _READ,
    "/v1/drain": ("POST",),
    "/v1/stop": ("POST",),
}
RECORDS = ("/v1/journal", "/v1/logs", "/v1/evidence")
FILES = ("/v1/logs", "/v1/evidence")
"""What has to be read from a disk."""
_EVIDENCE = "/v1/evidence/"
_BEARER = "bearer "


def refusal(request: Request, peer: Peer, token: Secret | None) -> Reply | None:
    """Return the answer to a request that may not be made, None for one that may."""
    methods = _READ if request.path.startswith(_EVIDENCE) else ROUTES.get(request.path)
    if methods is None:
        return refused(404, f"there is no such page; there are {', '.join(list(ROUTES)[1:])}")
    if request.method not in methods:
        return refused(405, f"expected {' or '.join(methods)}", ("Allow", ", ".join(methods)))
    if not request.path.startswith("/v1/"):
        return None
    if "origin" in request.headers:
        return refused(403, "requests of web pages (with an Origin header) are refused")
    if not is_plain_host(request.headers.get("host", "")):
        return refused(403, "expected an IP address or localhost in the Host header")
    if peer.is_owner or (peer.is_loopback and request.method in _READ):
        return None
    return _check_token(request, token)


def _check_token(request: Request, token: Secret | None) -> Reply | None:
    if token is None:
        return refused(403, "this run has no PLANARIA_TOKEN: ask on its own host, with planaria drain or planaria stop")
    is_known = bears(request, token)
    if is_known is None:
        challenge = ("WWW-Authenticate", 'Bearer realm="planaria"')
        return refused(401, "expected the token of the run in a header: Authorization: Bearer ...", challenge)
    return None if is_known else refused(403, "that is not the token of this run")


def bears(request: Request, token: Secret) -> bool | None:
    """Tell whether a request has a token in its header; None: it has none at all."""
    given = request.headers.get("authorization", "")
    if given[: len(_BEARER)].lower() != _BEARER:
        return None
    return _compare_digest(given[len(_BEARER) :].strip().encode("latin-1"), token.reveal())


def is_plain_host(text: str) -> bool:
    """Tell whether a Host header names an address or localhost: a name that anybody can point here does not count."""
    if text.startswith("["):
        bare, bracket, port = text[1:].partition("]")
        return (
            bool(bracket) and _is_port(port) and ":" in bare and all(one in "0123456789abcdefABCDEF:." for one in bare)
        )
    bare, colon, digits = text.partition(":")
    if not _is_port(colon + digits):
        return False
    parts = bare.split(".")
    is_v4 = len(parts) == 4 and all(
        one.isascii() and one.isdigit() and len(one) <= 3 and int(one) < 256 for one in parts
    )
    return is_v4 or bare.lower() == "localhost"


def _is_port(text: str) -> bool:
    """Tell whether nothing or a port follows the host."""
    digits = text[1:]
    return not text or (text[0] == ":" and digits.isascii() and digits.isdigit() and len(digits) <= 5)
