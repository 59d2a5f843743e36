"""What is said to etcd's gateway, and what its answers mean, in the forms of old and new versions."""

from __future__ import annotations

import pytest

from planaria.store.etcd_translate import body_of, changes_of, reply_of, revision_of, span
from planaria.store.model import (
    Absent,
    Changed,
    Conflict,
    Delete,
    Deleted,
    Entry,
    Found,
    Get,
    Grant,
    Granted,
    LeaseGone,
    Left,
    List,
    Listed,
    Put,
    Remaining,
    Renew,
    Renewed,
    Revoke,
    Written,
)

HEADER = {"header": {"revision": "9"}}
KV = {"key": "aw==", "value": "dg==", "mod_revision": "7", "lease": "5"}
COMPARE = {"key": "aw==", "target": "MOD", "result": "EQUAL", "mod_revision": 0}
READ = {"request_range": {"key": "aw=="}}


@pytest.mark.parametrize(
    ("asked", "path", "body"),
    [
        (Get("k"), "/kv/range", {"key": "aw=="}),
        (Put("k", b"v"), "/kv/put", {"key": "aw==", "value": "dg=="}),
        (Put("k", b"", lease=5), "/kv/put", {"key": "aw==", "value": "", "lease": 5}),
        (
            Put("k", b"v", expect=0),
            "/kv/txn",
            {"compare": [COMPARE], "success": [{"request_put": {"key": "aw==", "value": "dg=="}}], "failure": [READ]},
        ),
        (Delete("k"), "/kv/deleterange", {"key": "aw=="}),
        (
            Delete("k", expect=0),
            "/kv/txn",
            {"compare": [COMPARE], "success": [{"request_delete_range": {"key": "aw=="}}], "failure": [READ]},
        ),
        (Grant(2.2), "/lease/grant", {"TTL": 3}),
        (Renew(5), "/lease/keepalive", {"ID": 5}),
        (Revoke(5), "/lease/revoke", {"ID": 5}),
        (Remaining(5), "/lease/timetolive", {"ID": 5}),
    ],
)
def test_requests_are_said_so(asked: object, path: str, body: object) -> None:
    assert body_of(asked) == (path, body)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prefix", "range_end"), [("a", "Yg=="), ("a/", "YTA="), ("ä", "w6U="), ("", "AA=="), ("\U0010ffff", "9I+/wA==")]
)
def test_a_prefix_ends_before_the_first_key_that_does_not_have_it(prefix: str, range_end: str) -> None:
    assert span(prefix)["range_end"] == range_end


@pytest.mark.parametrize(
    ("asked", "answer", "reply"),
    [
        (Get("k"), {**HEADER, "kvs": [KV], "count": "1"}, Found(b"v", 7, 5)),
        (Get("k"), HEADER, Absent()),
        (Get("k"), {**HEADER, "kvs": [{"key": "aw==", "mod_revision": "7"}]}, Found(b"", 7, None)),
        (List("k"), HEADER, Listed((), 9)),
        (List("k"), {**HEADER, "kvs": [KV]}, Listed((Entry("k", b"v", 7, 5),), 9)),
        (Put("k", b"v"), HEADER, Written(9)),
        (Put("k", b"v", 7), {**HEADER, "succeeded": True, "responses": [{"response_put": {}}]}, Written(9)),
        (Put("k", b"v", 1), {**HEADER, "responses": [{"response_range": {"kvs": [KV]}}]}, Conflict(7)),
        (Put("k", b"v", 1), {**HEADER, "responses": [{"response_range": {}}]}, Conflict(0)),
        (Delete("k"), {**HEADER, "deleted": "1"}, Deleted()),
        (Delete("k"), HEADER, Absent()),
        (
            Delete("k", 7),
            {**HEADER, "succeeded": True, "responses": [{"response_delete_range": {"deleted": "1"}}]},
            Deleted(),
        ),
        (Delete("k", 0), {**HEADER, "succeeded": True, "responses": [{"response_delete_range": {}}]}, Absent()),
        (Grant(2.0), {**HEADER, "ID": "5", "TTL": "2"}, Granted(5, 2.0)),
        (Renew(5), {"result": {"ID": "5", "TTL": "2"}}, Renewed(2.0)),
        (Renew(5), {"result": {"ID": "5"}}, LeaseGone()),
        (Revoke(5), HEADER, LeaseGone()),
        (Remaining(5), {**HEADER, "ID": "5", "TTL": "1", "grantedTTL": "2"}, Left(2.0, 1.0)),
        (Remaining(5), {**HEADER, "ID": "5", "grantedTTL": "2"}, Left(2.0, 0.0)),
        (Remaining(5), {**HEADER, "ID": "5", "TTL": "-1"}, LeaseGone()),
    ],
)
def test_answers_mean_so(asked: object, answer: dict[str, object], reply: object) -> None:
    assert reply_of(asked, answer) == reply  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", [List("k"), Put("k", b"v"), Put("k", b"v", 7), Grant(2.0), Renew(5), Remaining(5)])
@pytest.mark.parametrize("answer", [{}, {"header": 5}, {"header": {}}, {"result": 3}, {"TTL": "x", "ID": []}])
def test_what_is_no_answer_is_a_value_error_and_never_a_lease_that_is_gone(
    asked: object, answer: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        reply_of(asked, answer)  # type: ignore[arg-type]


def test_changes_are_writes_and_removals() -> None:
    removed = {"type": "DELETE", "kv": {"key": "aw==", "mod_revision": "8"}}
    answer = {**HEADER, "events": [{"kv": KV}, {"type": "PUT", "kv": KV}, removed]}
    assert changes_of(answer) == (Changed("k", b"v", 7), Changed("k", b"v", 7), Changed("k", None, 8))
    assert changes_of(HEADER) == ()
    assert revision_of(HEADER) == 9
