from __future__ import annotations

import pytest

from planaria.contract.secret import Secret
from planaria.dashboard.rules import FILES, HEADERS, Question, question_in, refusal
from planaria.observe.request import Request

TOKEN = Secret(b"sesame")


def refused(
    path: str = "/api/runs",
    method: str = "GET",
    *,
    here: bool = True,
    token: Secret | None = TOKEN,
    host: str = "127.0.0.1",
    **headers: str,
) -> int:
    given = {"host": "127.0.0.1:8265", **{name.replace("_", "-"): value for name, value in headers.items()}}
    reply = refusal(Request(method, path, given), is_loopback=here, token=token, host=host)
    return 0 if reply is None else reply.status


@pytest.mark.parametrize(
    ("path", "question"),
    [
        ("/", Question("file", parts=("/",))),
        ("/app.js", Question("file", parts=("/app.js",))),
        ("/api/token", Question("token")),
        ("/api/runs", Question("runs")),
        ("/api/run/job7", Question("picture", "job7")),
        ("/api/run/a%2Fb%20c", Question("picture", "a/b c")),
        ("/api/run/job7/logs/12/stderr", Question("logs", "job7", ("12", "stderr"))),
        ("/api/run/job7/evidence/n/hang-1/host.txt", Question("evidence", "job7", ("n", "hang-1", "host.txt"))),
        ("/api/run/job7/stop", Question("stop", "job7")),
        ("/api/run/job7/drain/node-a", Question("drain", "job7", ("node-a",))),
    ],
)
def test_a_path_is_a_question(path: str, question: Question) -> None:
    assert question_in(path) == question


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/../etc/passwd",
        "/static/app.js",
        "/api",
        "/api/",
        "/api/run/",
        "/api/run/job7/",
        "/api/run/job7/logs/x/stderr",
        "/api/run/job7/logs/1/secrets",
        "/api/run/job7/logs/12345678/stdout",
        "/api/run/%00",
        f"/api/run/{'x' * 513}",
        "x/api/runs",
    ],
)
def test_there_is_no_such_page(path: str) -> None:
    assert question_in(path) is None
    assert refused(path) == 404


def test_this_machine_may_read_without_a_token() -> None:
    assert refused() == 0
    assert refused(method="HEAD") == 0
    assert refused(token=None) == 0


def test_others_read_with_the_token_only() -> None:
    assert refused(here=False) == 401
    assert refused(here=False, token=None) == 403
    assert refused(here=False, authorization="Bearer wrong") == 403
    assert refused(here=False, authorization="Bearer sesame") == 0
    assert refused("/", here=False) == 0, "the page itself is nobody's secret, and it asks for the token"


@pytest.mark.parametrize("path", ["/api/run/job7/stop", "/api/run/job7/drain/node-a"])
def test_an_order_needs_the_token_wherever_it_comes_from(path: str) -> None:
    assert refused(path, "POST") == 401
    assert refused(path, "POST", authorization="Bearer wrong") == 403
    assert refused(path, "POST", authorization="Basic sesame") == 401
    assert refused(path, "POST", authorization="bearer sesame") == 0
    assert refused(path, "POST", token=None, authorization="Bearer sesame") == 403
    assert refused(path) == 405
    assert refused("/api/runs", "POST", authorization="Bearer sesame") == 405


def test_a_token_is_checked_wherever_it_comes_from() -> None:
    assert refused("/api/token") == 401
    assert refused("/api/token", authorization="Bearer wrong") == 403
    assert refused("/api/token", authorization="Bearer sesame") == 0
    assert refused("/api/token", here=False, authorization="Bearer sesame") == 0
    assert refused("/api/token", token=None, authorization="Bearer sesame") == 403
    assert refused("/api/token", "POST", authorization="Bearer sesame") == 405


@pytest.mark.parametrize("name", ["evil.example", "evil.example:8265", "127.0.0.1.evil.example", "", "node-a"])
def test_a_name_that_anybody_can_point_here_is_refused(name: str) -> None:
    assert refused(host="127.0.0.1") == 0
    reply = refusal(Request("GET", "/", {"host": name}), is_loopback=True, token=None, host="127.0.0.1")
    assert reply is not None
    assert reply.status == 403


def test_the_name_that_the_command_line_gave_is_fine() -> None:
    for name in ("node-a", "node-a:8265", "NODE-A:8265"):
        asked = Request("GET", "/", {"host": name})
        assert refusal(asked, is_loopback=True, token=None, host="node-a") is None


def test_other_pages_are_refused_our_own_is_not() -> None:
    stop = "/api/run/job7/stop"
    fine = {"authorization": "Bearer sesame"}
    assert refused(stop, "POST", origin="http://127.0.0.1:8265", **fine) == 0
    assert refused(stop, "POST", origin="http://evil.example", **fine) == 403
    assert refused(stop, "POST", origin="null", **fine) == 403
    assert refused(stop, "POST", origin="https://127.0.0.1:8265", **fine) == 403
    assert refused(stop, "POST", origin="http://127.0.0.1:9999", **fine) == 403
    assert refused(sec_fetch_site="cross-site") == 403
    assert refused(sec_fetch_site="same-site") == 403
    assert refused(sec_fetch_site="same-origin") == 0


def test_a_link_from_elsewhere_opens_the_page_and_nothing_else() -> None:
    link = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert refused("/", **link) == 0
    assert refused("/api/runs", **link) == 403
    assert refused("/api/run/job7/evidence/n/hang-1/host.txt", **link) == 403
    assert refused("/", "HEAD", **link) == 403
    assert refused("/", origin="http://evil.example", **link) == 403
    assert refused("/", **link | {"sec_fetch_dest": "iframe"}) == 403
    assert refused("/app.js", **link | {"sec_fetch_mode": "no-cors", "sec_fetch_dest": "script"}) == 403


def test_the_policy_lets_nothing_in_that_is_not_ours() -> None:
    policy = dict(part.strip().partition(" ")[::2] for part in dict(HEADERS)["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["img-src"] == "data:"
    assert "unsafe" not in str(policy)
    assert set(FILES) >= {"/", "/app.js", "/style.css"}
