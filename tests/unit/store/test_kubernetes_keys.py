from __future__ import annotations

import json
import random
from base64 import b64encode
from typing import Any

import pytest

from planaria.store.kubernetes_keys import (
    INDEX,
    MOST_CHANGES,
    MOST_PAST_BYTES,
    SIZE_LIMIT_BYTES,
    Keys,
    read_keys,
    read_values,
    write_keys,
)
from planaria.store.machine import Machine
from planaria.store.model import (
    VALUE_LIMIT_BYTES,
    Changed,
    Delete,
    Denied,
    Get,
    List,
    Put,
    Written,
)

UID = "5a0f3c1e-7c1b-4a43-9a32-aabbccddeeff"


def empty(uid: str = UID) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "labels": {"of": "a job"}}, "data": {"theirs": "stays"}}


def again(keys: Keys) -> Keys:
    """Return the keys as the next reader of the object finds them."""
    return read_keys(json.loads(json.dumps(write_keys(empty(), keys))))


def test_the_keys_mean_what_the_reference_says_they_mean() -> None:
    rng = random.Random(7)
    for _ in range(50):
        keys, machine = Keys(100), Machine(start=100)
        revisions = [0]
        for _ in range(40):
            expect = rng.choice([None, *revisions[-3:]])
            key = rng.choice("abc")
            asked = rng.choice([Get(key), List(""), Put(key, rng.randbytes(3), expect), Delete(key, expect)])
            reply = keys.perform(asked)
            assert reply == machine.request(asked, 0.0)
            revisions.append(getattr(reply, "revision", 0))
            keys = again(keys) if rng.random() < 0.2 else keys
        assert list(keys.changes_after(100) or ()) == machine.changes_after(100, 1000)


def test_an_object_holds_everything_and_keeps_what_is_not_ours() -> None:
    keys = read_keys(empty())
    keys.leases.add(7)
    keys.perform(Put('ä "b"/\\c', bytes(range(256)), lease=7))
    keys.perform(Put("gone", b"x"))
    keys.perform(Delete("gone"))
    written = write_keys(empty(), keys)
    assert written["data"]["theirs"] == "stays"
    assert written["metadata"] == empty()["metadata"]
    found = read_keys(written)
    assert found.entries() == keys.entries()
    assert (found.revision, found.forgotten, found.leases) == (keys.revision, keys.forgotten, {7})
    assert found.changes_after(found.forgotten) == keys.changes_after(keys.forgotten)


def test_an_object_that_was_made_anew_has_other_revisions() -> None:
    one, other = read_keys(empty()), read_keys(empty("11111111-7c1b-4a43-9a32-000000000001"))
    assert one.revision != other.revision
    assert one.revision == read_keys(empty()).revision
    assert one.changes_after(other.revision) is None


def test_what_was_forgotten_is_not_told_and_what_is_remembered_is() -> None:
    keys = Keys(0)
    for number in range(MOST_CHANGES + 10):
        keys.perform(Put("k", b"%d" % number))
    keys.trim()
    assert keys.changes_after(9) is None
    told = again(keys).changes_after(10)
    assert told is not None
    assert told[0] == Changed("k", b"10", 11)
    assert len(told) == MOST_CHANGES
    assert keys.changes_after(keys.revision) == ()
    assert keys.changes_after(keys.revision + 1) is None


def test_old_values_are_forgotten_sooner_than_small_ones() -> None:
    keys = Keys(0)
    for _ in range(10):
        keys.perform(Put("k", bytes(VALUE_LIMIT_BYTES)))
        keys.trim()
    written = write_keys(empty(), keys)
    assert len(written["binaryData"]) == 1 + MOST_PAST_BYTES // VALUE_LIMIT_BYTES


def test_an_object_never_grows_beyond_what_kubernetes_takes() -> None:
    keys = Keys(0)
    rng = random.Random(3)
    denied = 0
    for number in range(400):
        size = rng.choice([10, 1000, VALUE_LIMIT_BYTES])
        reply = keys.perform(Put(f"{number}{'k' * rng.randrange(400)}", bytes(size)))
        denied += isinstance(reply, Denied)
        assert isinstance(reply, (Denied, Written))
        keys.trim()
        keys = again(keys) if number % 50 == 0 else keys
    written = write_keys({}, keys)
    size = len(written["data"][INDEX].encode()) + sum(len(value) * 3 // 4 for value in written["binaryData"].values())
    assert denied
    assert SIZE_LIMIT_BYTES * 0.9 < size <= 1 << 20


def test_a_lease_takes_its_keys_with_it() -> None:
    keys = Keys(0)
    keys.leases |= {1, 2}
    keys.perform(Put("b", b"", lease=1))
    keys.perform(Put("a", b"", lease=1))
    keys.perform(Put("c", b"", lease=2))
    assert keys.end_leases((1, 9))
    assert [entry.key for entry in keys.entries()] == ["c"]
    assert keys.changes_after(3) == (Changed("a", None, 4), Changed("b", None, 5))
    assert not keys.end_leases((1, 9))
    assert keys.revision == 5


@pytest.mark.parametrize(
    "index",
    [
        "",
        "[]",
        "7",
        "{}",
        '{"version": 2}',
        '{"version":1,"revision":3,"forgotten":0,"keys":{"k":[3,null]},"changes":[],"leases":[]}',
        '{"version":1,"revision":1e999,"forgotten":0,"keys":{},"changes":[],"leases":[]}',
        '{"version":1,"revision":3,"forgotten":0,"keys":{},"changes":[],"leases":[Infinity]}',
        pytest.param("[" * 100_000, id="deep"),
    ],
)
def test_what_is_not_ours_is_said_and_not_taken(index: str) -> None:
    with pytest.raises(ValueError, match=r"^planaria\.index of the ConfigMap is not ours: "):
        read_keys({"data": {INDEX: index}})


@pytest.mark.parametrize(
    "index", ["", "[]", "{}", '{"version":1,"keys":{"k":[1e999,null]}}', pytest.param("[" * 100_000, id="deep")]
)
def test_of_what_is_not_ours_no_value_is_read(index: str) -> None:
    with pytest.raises(ValueError, match=r"^planaria\.index of the ConfigMap is not ours: "):
        read_values({"data": {INDEX: index}}, ("k",))


def test_an_index_of_another_version_is_told_in_words() -> None:
    with pytest.raises(ValueError, match=r"is not ours: it is of version 2, ours is 1$"):
        read_keys({"data": {INDEX: '{"version": 2}'}})


def test_only_the_values_are_read_that_are_asked_for() -> None:
    keys = Keys(0)
    keys.perform(Put("a", b"1"))
    keys.perform(Put("b", b"2"))
    written = write_keys(empty(), keys)
    written["binaryData"] |= {"planaria.value.2": "no base64"}
    assert read_values(written, ("a", "c")) == {"a": b"1"}
    assert read_values(empty(), ("a",)) == {}


def test_a_value_that_many_keys_name_is_decoded_once() -> None:
    index = {"version": 1, "revision": 3, "forgotten": 0, "changes": [[3, "x", 0]], "leases": []}
    index["keys"] = {f"k{number}": [3, None] for number in range(400)}
    coded = {"planaria.value.3": b64encode(b"x" * 1000).decode()}
    keys = read_keys({"data": {INDEX: json.dumps(index)}, "binaryData": coded})
    assert len({id(entry.value) for entry in keys.entries()} | {id(keys.history[0].value)}) == 1
