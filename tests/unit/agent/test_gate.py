"""Who may ask what: a table of everybody against everything."""

from __future__ import annotations

import pytest

from planaria.agent.gate import ROUTES, is_plain_host, refusal
from planaria.contract.secret import Secret
from planaria.observe.http import OWNER, Peer
from planaria.observe.request import Request

HERE, FAR = Peer(is_loopback=True), Peer()
TOKEN = Secret(b"s3cret\xff")
RIGHT = {"authorization": "Bearer s3cret\xff"}
OPEN = ("/", "/livez", "/readyz", "/metrics")


def answer(path: str, peer: Peer, method: str = "GET", token: Secret | None = TOKEN, **headers: str) -> int:
    """Return the status of a refusal, 200 when there is none."""
    found = refusal(Request(method, path, {"host": "127.0.0.1:80", **headers}), peer, token)
    assert found is None or (b"s3cret" not in found.body and found.body.endswith(b"\n"))
    return 200 if found is None else found.status


@pytest.mark.parametrize("peer", [OWNER, HERE, FAR], ids=["owner", "here", "far"])
@pytest.mark.parametrize("path", OPEN)
def test_probes_and_metrics_are_everybodys(path: str, peer: Peer) -> None:
    for method in ("GET", "HEAD"):
        assert answer(path, peer, method, None, host="pods.example", origin="http://evil.example") == 200
    assert answer(path, peer, "POST", **RIGHT) == 405


def test_a_method_that_does_not_fit_is_answered_with_those_that_do() -> None:
    found = refusal(Request("GET", "/v1/drain", {"host": "127.0.0.1"}), OWNER, None)
    assert found is not None
    assert ("Allow", "POST") in found.headers


def test_any_port_may_follow_the_host() -> None:
    for port in ("", ":1", ":65535"):
        assert answer("/v1/status", HERE, host=f"127.0.0.1{port}") == 200
    assert answer("/v1/status", HERE, host="127.0.0.1:123456") == 403


def test_the_status_is_this_machines_or_needs_the_token() -> None:
    assert answer("/v1/status", OWNER) == answer("/v1/status", HERE) == 200
    assert answer("/v1/status", FAR) == 401
    assert answer("/v1/status", FAR, **RIGHT) == 200
    assert answer("/v1/status", FAR, token=None, **RIGHT) == 403


@pytest.mark.parametrize("path", ["/v1/drain", "/v1/stop"])
def test_what_changes_the_job_needs_the_token_or_the_owners_door(path: str) -> None:
    assert answer(path, OWNER, "POST", None) == 200
    for peer in (HERE, FAR):
        assert answer(path, peer, "POST") == 401
        assert answer(path, peer, "POST", None) == 403
        assert answer(path, peer, "POST", **RIGHT) == 200
        assert answer(path, peer, "POST", authorization="bearer   s3cret\xff ") == 200
        for wrong in ("Bearer", "Bearer ", "Bearer s3cret", "Bearer s3cret\xff\xff", "Bearer \xe9"):
            assert answer(path, peer, "POST", authorization=wrong) in (401, 403), wrong
        assert answer(path, peer, "POST", authorization="Basic czNjcmV0") == 401
    assert answer(path, OWNER, "GET") == 405


@pytest.mark.parametrize("path", ["/v1/status", "/v1/drain", "/v1/stop"])
@pytest.mark.parametrize("peer", [OWNER, HERE, FAR], ids=["owner", "here", "far"])
def test_browsers_are_refused_whatever_they_bring(path: str, peer: Peer) -> None:
    method = ROUTES[path][0]
    assert answer(path, peer, method, **RIGHT) == 200
    assert answer(path, peer, method, origin="null", **RIGHT) == 403
    assert answer(path, peer, method, host="evil.example", **RIGHT) == 403
    assert answer(path, peer, method, host="", **RIGHT) == 403


def test_a_page_that_is_not_there_is_told_which_are() -> None:
    for path in ("/v1", "/v1/", "/livez/", "//livez", "/v1/stop/../status", "/V1/STOP"):
        assert answer(path, OWNER, "POST") == 404


@pytest.mark.parametrize(
    ("text", "is_plain"),
    [
        ("127.0.0.1", True),
        ("10.1.2.3:8080", True),
        ("localhost", True),
        ("LOCALHOST:1", True),
        ("[::1]", True),
        ("[fd00::1]:8080", True),
        ("[::ffff:10.0.0.1]:1", True),
        ("", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("evil.example:80", False),
        ("1.2.3.4.5", False),
        ("1.2.3.256", False),
        ("1.2.3", False),
        ("0x7f.0.0.1", False),
        ("localhost:", False),
        ("localhost:80:80", False),
        ("localhost:http", False),
        ("[::1", False),
        ("[evil]", False),
        ("[::1]evil", False),
        ("[::1]:99999999", False),
        ("user@localhost", False),
        ("localhost, localhost", False),
    ],
)
def test_a_host_counts_when_nobody_else_can_point_it_here(text: str, is_plain: bool) -> None:
    assert is_plain_host(text) == is_plain
