from __future__ import annotations

import json
from typing import Any

import pytest

from planaria.kube.shallow import MOST_DEPTH, read

DEEP = 9_000


def depth_of(found: Any) -> int:
    depth = 0
    while isinstance(found, (dict, list)):
        depth += 1
        found = found["a"] if isinstance(found, dict) else found[0]
    return depth


def test_what_can_be_read_is_read_whole() -> None:
    found = {"a": [{"b": 'x"]}\\'}, 1, None]}
    assert read(json.dumps(found).encode()) == found
    assert depth_of(read(b"[" * 500 + b"1" + b"]" * 500)) == 500


@pytest.mark.parametrize(("begin", "end"), [(b'{"a":', b"}"), (b"[", b"]"), (b'[{"a":', b"}]")])
def test_what_lies_too_deep_is_left_out_and_all_else_is_there(begin: bytes, end: bytes) -> None:
    deep = begin * DEEP + b'"]}\\""' + end * DEEP
    found = read(b'{"items":[{"deep":' + deep + b',"name":"one \\"}"},{"deep":' + deep + b'},{"name":"[two"}]}')
    assert [item.get("name") for item in found["items"]] == ['one "}', None, "[two"]
    assert [depth_of(item["deep"]) for item in found["items"][:2]] == [MOST_DEPTH - 3] * 2


@pytest.mark.parametrize("raw", [b"", b"{", b"[" * DEEP, b"[" * DEEP + b"]" * (DEEP + 1)])
def test_what_is_no_json_is_no_json_at_any_depth(raw: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  the words are JSON's
        read(raw)
