"""Who may ask the dashboard what, and what every answer of it tells the browser. Pure.

Reading is our own user's on this machine, or needs the token. An order needs the token, always, and a dashboard that has none
takes no order. A page of somebody else's must not speak through the browser: not under a name that it has pointed here
(`Host`), nor from where it is (`Origin`, `Sec-Fetch-Site`).
"""

from __future__ import annotations

from urllib.parse import unquote

from planaria.agent.gate import bears, is_plain_host
from planaria.base.value import Value
from planaria.observe.request import Reply, refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from planaria.contract.secret import Secret
    from planaria.observe.request import Request

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/causes.js": ("causes.js", "text/javascript; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
    "/dom.js": ("dom.js", "text/javascript; charset=utf-8"),
    "/panels.js": ("panels.js", "text/javascript; charset=utf-8"),
    "/ranks.js": ("ranks.js", "text/javascript; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = (
    ("Content-Security-Policy", POLICY),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
STREAMS = ("stdout", "stderr")
_LONGEST_PART = 512
_ORDERS = ("drain", "stop")


class Question(Value):
    """What a path asks for. `run_id` empty: the list of runs, or a file of the page."""

    about: str  # file, token, runs, picture, logs, evidence, drain, stop
    run_id: str = ""
    parts: tuple[str, ...] = ()


def question_in(path: str) -> Question | None:
    """Return what a path asks for; None: there is no such page."""
    if path in FILES:
        return Question("file", parts=(path,))
    first, *parts = path.split("/")
    if first or not parts or parts[0] != "api":
        return None
    names = [unquote(part, errors="replace") for part in parts[1:]]
    if any(not name or len(name) > _LONGEST_PART or "\0" in name for name in names):
        return None
    match names:
        case ["token" | "runs" as about]:
            return Question(about)
        case ["run", run_id]:
            return Question("picture", run_id)
        case ["run", run_id, "logs", rank, stream] if stream in STREAMS and _is_rank(rank):
            return Question("logs", run_id, (rank, stream))
        case ["run", run_id, "evidence", node, name, file]:
            return Question("evidence", run_id, (node, name, file))
        case ["run", run_id, "stop"]:
            return Question("stop", run_id)
        case ["run", run_id, "drain", node]:
            return Question("drain", run_id, (node,))
        case _:
            return None


def refusal(request: Request, *, is_loopback: bool, token: Secret | None, host: str) -> Reply | None:
    """Return the answer to a request that may not be made, None for one that may. `is_loopback`: our own user, here."""
    question = question_in(request.path)
    if question is None:
        return refused(404, "there is no such page")
    is_order = question.about in _ORDERS
    methods = ("POST",) if is_order else ("GET", "HEAD")
    if request.method not in methods:
        return refused(405, f"expected {' or '.join(methods)}", ("Allow", ", ".join(methods)))
    if not _is_our_host(request.headers.get("host", ""), host):
        return refused(403, "expected an IP address, localhost or the value of --host in the Host header")
    if not (_is_our_page(request.headers) or (question.about == "file" and _follows_a_link(request))):
        return refused(403, "requests of other web pages are refused")
    needs_token = is_order or question.about == "token"
    if question.about == "file" or (is_loopback and not needs_token):
        return None
    return _check_token(request, token, is_order=needs_token)


def _is_our_host(given: str, host: str) -> bool:
    name, colon, port = given.rpartition(":")
    bare = name if colon and port.isdigit() else given
    return is_plain_host(given) or bare.lower() == host.lower()


def _is_our_page(headers: Mapping[str, str]) -> bool:
    """Tell whether a request comes from our own page, or from no page at all."""
    origin = headers.get("origin")
    if origin is not None and origin.lower() != f"http://{headers.get('host', '')}".lower():
        return False
    return headers.get("sec-fetch-site", "none") in ("none", "same-origin")


def _follows_a_link(request: Request) -> bool:
    """Tell whether somebody opens the page from elsewhere, as a link in a chat does; a frame of another page's is not that."""
    headers = request.headers
    wanted = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
    return request.method == "GET" and "origin" not in headers and wanted == ("navigate", "document")


def _check_token(request: Request, token: Secret | None, *, is_order: bool) -> Reply | None:
    if token is None:
        what = "takes no orders" if is_order else "answers its own user on this machine only"
        return refused(403, f"this dashboard {what}: it was started without PLANARIA_TOKEN")
    is_known = bears(request, token)
    if is_known is None:  # no challenge: a browser would ask for a password of its own
        return refused(401, "expected the token of the run: Authorization: Bearer ...")
    return None if is_known else refused(403, "that is not the token of this dashboard")


def _is_rank(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 7
