"""The embedded store's frames: what is sent arrives, and nothing else gets in."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planaria.store import model, wire
from planaria.store.model import NUMBER_LIMIT

if TYPE_CHECKING:
    from planaria.store.wire import FromClient, FromServer

NUMBERS = st.integers(0, NUMBER_LIMIT - 1)
MAYBE = st.none() | NUMBERS
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
BYTES = st.binary(max_size=50)
SECONDS = st.floats(-1e6, 1e9)
REQUESTS = st.one_of(
    st.builds(model.Get, TEXT),
    st.builds(model.List, TEXT),
    st.builds(model.Put, TEXT, BYTES, MAYBE, MAYBE),
    st.builds(model.Delete, TEXT, MAYBE),
    st.builds(model.Grant, SECONDS),
    st.builds(model.Renew, NUMBERS),
    st.builds(model.Revoke, NUMBERS),
    st.builds(model.Remaining, NUMBERS),
)
ENTRIES = st.builds(model.Entry, TEXT, BYTES, NUMBERS, MAYBE)
CHANGES = st.builds(model.Changed, TEXT, st.none() | BYTES, NUMBERS)
REPLIES = st.one_of(
    st.builds(model.Found, BYTES, NUMBERS, MAYBE),
    st.builds(model.Absent),
    st.builds(model.Listed, st.lists(ENTRIES, max_size=3).map(tuple), NUMBERS),
    st.builds(model.Written, NUMBERS),
    st.builds(model.Conflict, NUMBERS),
    st.builds(model.Deleted),
    st.builds(model.Granted, NUMBERS, SECONDS),
    st.builds(model.Renewed, SECONDS),
    st.builds(model.LeaseGone),
    st.builds(model.Left, SECONDS, SECONDS),
    st.builds(model.Refused, TEXT),
    st.builds(model.Denied, TEXT, st.booleans()),
)
FROM_CLIENT = st.one_of(
    st.builds(wire.Hello, NUMBERS),
    st.builds(wire.Ask, NUMBERS, REQUESTS),
    st.builds(wire.Watch, NUMBERS, TEXT, NUMBERS),
    st.builds(wire.Seen, NUMBERS),
    st.builds(wire.Unwatch, NUMBERS),
)
FROM_SERVER = st.one_of(
    st.builds(wire.Welcome, NUMBERS),
    st.builds(wire.Answer, NUMBERS, REPLIES),
    st.builds(wire.Told, NUMBERS, st.lists(CHANGES, max_size=3).map(tuple), NUMBERS),
    st.builds(wire.Lost, NUMBERS),
    st.builds(wire.Bye, TEXT),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=300)
@given(FROM_CLIENT)
def test_what_a_client_sends_arrives(message: FromClient) -> None:
    assert wire.decode_from_client(wire.encode(message)) == message


@settings(max_examples=300)
@given(FROM_SERVER)
def test_what_a_server_sends_arrives(message: FromServer) -> None:
    assert wire.decode_from_server(wire.encode(message)) == message


@settings(max_examples=500)
@given(st.binary(max_size=60) | JSON.map(lambda found: json.dumps(found).encode()))
@example(b"[" * 100_000)
@example(b'["hello",' + b"9" * 10_000 + b"]")
@example(b'["ask",1,["get","\\ud800"]]')
@example(b'["ask",1,["grant",NaN]]')
@example(b'["ask",1,["grant",1e999]]')
def test_whatever_arrives_is_a_message_or_a_value_error(frame: bytes) -> None:
    for decode in (wire.decode_from_client, wire.decode_from_server):
        with contextlib.suppress(ValueError):
            decode(frame)


@settings(max_examples=300)
@given(st.data())
def test_a_message_with_one_thing_changed_is_a_message_or_a_value_error(data: st.DataObject) -> None:
    message = json.loads(wire.encode(data.draw(FROM_CLIENT)))
    inner = message[2] if len(message) > 2 and isinstance(message[2], list) else message
    inner[data.draw(st.integers(0, len(inner) - 1))] = data.draw(JSON)
    with contextlib.suppress(ValueError):
        wire.decode_from_client(json.dumps(message).encode())


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"null",
        b"[]",
        b'{"hello":1}',
        b'["hello"]',
        b'["hello",1,2]',
        b'["hello",true]',
        b'["hello",1.0]',
        b'["hello",-1]',
        b'["hello",9223372036854775808]',
        b'["welcome",1]',
        b'["ask",1,["put","k","not base64!",null,null]]',
        b'["ask",1,["put","k","dg==",null]]',
        b'["ask",1,["put","k",null,null,null]]',
        b'["ask",1,["put","k","dg==","1",null]]',
        b'["ask",1,["found","dg==",1,null]]',
        b'["ask",1,["grant",Infinity]]',
        b'["ask",1,["grant",true]]',
        b'["ask",null,["get","k"]]',
        b'["ask",1,["get",5]]',
        b'["ask",1,"get"]',
        b'[["ask"],1]',
        b"\xff\xfe",
    ],
)
def test_what_is_nearly_a_message_is_none(frame: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        wire.decode_from_client(frame)
