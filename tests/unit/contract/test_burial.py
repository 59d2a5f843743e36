from __future__ import annotations

import json

import pytest

from planaria.contract import burial

UID = "5F1c0a9e-7d1c-4b5a-9d0e-1c2d3e4f5a6b"
RANDOM = bytes.fromhex("d41d8cd9ffff")


def test_a_name_tells_the_pod_and_the_life() -> None:
    assert burial.life(UID, RANDOM) == "5f1c0a9e.d41d8cd9"
    assert burial.pod_of("resnet-worker-0-5f1c0a9e.d41d8cd9") == burial.digits_of(UID) == "5f1c0a9e"


def test_an_agent_outside_of_pods_has_a_name_without_one() -> None:
    assert burial.life("", RANDOM) == "d41d8cd9"


@pytest.mark.parametrize("uid", ["", "5f1c0a9", "uid-7", "../../../../", "5f1c0a9g-", "\u0664" * 8])
def test_what_is_no_uid_is_not_taken_for_one(uid: str) -> None:
    assert burial.digits_of(uid) == ""
    assert burial.life(uid, RANDOM) == "d41d8cd9"


@pytest.mark.parametrize(
    "node",
    [
        "",
        "host",
        "host-d41d8cd9",
        "ip-10-0-0-1.ec2.internal-d41d8cd9",
        "5f1c0a9e.internal",
        "a-5f1c0a9e.",
        "a-.d41d8cd9",
        "a-5f1c0a9e0.d41d8cd9",
        "a-5f1c0a9e.d41d8cd9-x",
    ],
)
def test_other_names_tell_no_pod(node: str) -> None:
    assert burial.pod_of(node) == ""


def test_a_note_is_read_as_it_was_written() -> None:
    nodes = {"a-5f1c0a9e.d41d8cd9", "b-5f1c0a9e.00000000"}
    assert burial.read(burial.write(nodes)) == nodes
    assert burial.write(nodes) == burial.write(sorted(nodes, reverse=True))


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "null",
        "[]",
        "{",
        "[" * 100_000,
        json.dumps({"version": 2, "nodes": ["a"]}),
        json.dumps({"version": 1, "nodes": "a"}),
        json.dumps({"version": 1}),
        json.dumps({"version": 1, "nodes": ["a" * 70_000]}),
    ],
)
def test_what_makes_no_sense_buries_nobody(text: str | None) -> None:
    assert burial.read(text) == frozenset()


def test_a_note_may_be_long_but_not_without_end() -> None:
    room = (64 << 10) - len(burial.write([""]))
    assert burial.read(burial.write(["a" * room])) == {"a" * room}
    assert burial.read(burial.write(["a" * (room + 1)])) == frozenset()


def test_of_a_note_only_names_count() -> None:
    assert burial.read(json.dumps({"version": 1, "nodes": ["a", 7, None, ["b"]]})) == {"a"}
