from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pictures
from dashboard_stage import Cast

from planaria.base.value import replace
from planaria.contract.secret import Secret
from planaria.dashboard.answers import FRESH_S, Answers
from planaria.observe.request import Reply, Request

RUN = "llm-7b-pretrain"


class Page:
    """Asks as a browser of this machine does."""

    def __init__(self, token: str = "") -> None:
        self.cast = Cast(live=pictures.live, thousand=pictures.thousand)
        self.now = 0.0
        self.answers = Answers(self.cast, Secret(token.encode()) if token else None, "127.0.0.1", lambda: self.now)

    def ask(self, path: str, method: str = "GET", **headers: str) -> Reply:
        given = {"host": "127.0.0.1", **{name.replace("_", "-"): value for name, value in headers.items()}}
        found = asyncio.run(self.answers.answer(Request(method, path, given), True))
        return found if isinstance(found, Reply) else replace(found.reply, body=found.file.read())

    def json(self, path: str) -> Any:
        reply = self.ask(path)
        assert reply.status == 200, reply.body
        return json.loads(reply.body)


def test_the_page_and_its_files_are_served_with_the_policy() -> None:
    page = Page()
    for path, start in (("/", b"<!doctype html>"), ("/app.js", b"//"), ("/style.css", b":root")):
        reply = page.ask(path)
        assert reply.body.startswith(start)
        assert "default-src 'none'" in dict(reply.headers)["Content-Security-Policy"]
        assert dict(reply.headers)["Referrer-Policy"] == "no-referrer"


def test_a_refusal_has_the_policy_too() -> None:
    assert "Content-Security-Policy" in dict(Page().ask("/nothing").headers)


def test_runs_and_pictures_are_json() -> None:
    page = Page()
    found = page.json("/api/runs")
    assert [one["run_id"] for one in found["runs"]] == [RUN, "thousand"]
    assert found["takes_orders"] is False
    assert page.json(f"/api/run/{RUN}")["world_size"] == 6
    assert page.ask("/api/run/other").status == 404


def test_what_a_page_has_already_is_not_sent_again() -> None:
    page = Page()
    tag = dict(page.ask(f"/api/run/{RUN}").headers)["ETag"]
    again = page.ask(f"/api/run/{RUN}", if_none_match=tag)
    assert (again.status, again.body, dict(again.headers)["ETag"]) == (304, b"", tag)
    page.cast.by_id[RUN] = lambda: pictures.live(500)
    page.now += FRESH_S
    fresh = page.ask(f"/api/run/{RUN}", if_none_match=tag)
    assert fresh.status == 200
    assert dict(fresh.headers)["ETag"] != tag


def test_many_pages_cost_one_look() -> None:
    page = Page()
    for _ in range(10):
        page.ask(f"/api/run/{RUN}")
    assert page.cast.looks == 1
    page.now += FRESH_S
    page.ask(f"/api/run/{RUN}")
    assert page.cast.looks == 2


def test_made_up_names_are_not_remembered_for_ever() -> None:
    page = Page()
    for number in range(1000):
        assert page.ask(f"/api/run/made-up-{number}").status == 404
    assert len(page.answers._kept) <= 65
    assert len(page.answers._locks) <= 65


def test_a_large_picture_is_packed_for_who_can_unpack_it() -> None:
    page = Page()
    packed = page.ask("/api/run/thousand", accept_encoding="gzip, br")
    assert dict(packed.headers)["Content-Encoding"] == "gzip"
    assert json.loads(gzip.decompress(packed.body)) == page.json("/api/run/thousand")
    assert len(packed.body) < 60_000


def test_a_log_is_its_end_or_why_there_is_none() -> None:
    page = Page()
    assert "step 39" in page.json(f"/api/run/{RUN}/logs/3/stdout")["text"]
    page.cast.log = ""
    assert page.json(f"/api/run/{RUN}/logs/3/stderr") == {"text": "", "why": "this rank wrote nothing to stderr"}
    assert page.ask(f"/api/run/{RUN}/logs/99/stdout").status == 404


def test_a_run_that_cannot_be_drawn_costs_its_own_answer_only() -> None:
    page = Page()
    page.cast.by_id["broken"] = lambda: {"run_id": "broken", "state": 1, "is_over": False}
    page.cast.picture = lambda _run_id: {"run_id": object()}  # type: ignore[method-assign]
    assert page.ask("/api/run/broken").status == 500
    assert page.ask("/api/runs").status == 200


def test_evidence_is_something_to_save_never_a_page() -> None:
    page = Page()
    reply = page.ask(f"/api/run/{RUN}/evidence/node-b/hang%0d%0a/x%22%0d%0aSet-Cookie:.txt")
    assert reply.content_type.startswith("text/plain")
    assert dict(reply.headers)["Content-Disposition"] == 'attachment; filename="x___Set-Cookie_.txt"'
    assert page.ask(f"/api/run/{RUN}/evidence/node-b/hang/secret").status == 404


def test_orders_are_passed_on_with_the_token_only() -> None:
    page = Page("sesame")
    assert page.ask(f"/api/run/{RUN}/stop", "POST").status == 401
    assert page.cast.orders == []
    told = page.ask(f"/api/run/{RUN}/stop", "POST", authorization="Bearer sesame")
    assert (told.status, json.loads(told.body)["sentence"]) == (202, f"run {RUN} was told to stop")
    page.ask(f"/api/run/{RUN}/drain/node-b-1a2b", "POST", authorization="Bearer sesame")
    assert page.cast.orders == [(RUN, "stop", ""), (RUN, "drain", "node-b-1a2b")]
    assert page.json("/api/runs")["takes_orders"] is True
    assert page.ask("/api/token", authorization="Bearer sesame").status == 200
    assert page.ask("/api/token", authorization="Bearer wrong").status == 403
