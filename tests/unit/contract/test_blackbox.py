from __future__ import annotations

import ast
import json
import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planaria.contract import blackbox
from planaria.process.command import BOOTSTRAP

WHOLE = {"kind": "exception", "type": "E", "bases": ["E"], "message": "m", "traceback": "t", "where": "w:1", "at": 1.5}


def record(**changes: object) -> bytes:
    return b"\x1e" + json.dumps({**WHOLE, **changes}).encode() + b"\n"


def test_the_signal_that_asks_for_stacks_is_the_same_in_the_worker() -> None:
    with open(BOOTSTRAP, "rb") as file:
        assigned = [node for node in ast.walk(ast.parse(file.read())) if isinstance(node, ast.Assign)]
    values = {ast.unparse(node.targets[0]): ast.unparse(node.value) for node in assigned}
    assert values["DUMP_STACKS"] == str(blackbox.DUMP_STACKS) == str(int(signal.SIGRTMAX) - 2)


def test_an_empty_box_says_nothing() -> None:
    assert blackbox.read(b"") == blackbox.BlackBox()


def test_a_record_is_found_among_stacks() -> None:
    found = blackbox.read(b"Fatal Python error\n" + record() + b"more\n")
    assert found.ending == blackbox.Ending("exception", "E", ("E",), "m", "t", "w:1", 1.5)
    assert found.text == "Fatal Python error\nmore\n"


def test_the_last_whole_record_counts() -> None:
    found = blackbox.read(record(message="first") + record(message="second") + record(message="torn")[:-9])
    assert found.ending is not None
    assert found.ending.message == "second"


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[1]", b"7", b"[" * 100_000, b'{"kind": 1}', b"\xff", json.dumps({**WHOLE, "at": []}).encode()],
)
def test_what_is_not_a_record_is_left_out(line: bytes) -> None:
    assert blackbox.read(b"\x1e" + line + b"\nrest") == blackbox.BlackBox(None, "rest")


@settings(derandomize=True)
@given(st.binary() | st.lists(st.sampled_from([b"\x1e", b"\n", b"{", record(), b"text", b"\0"])).map(b"".join))
def test_no_content_is_an_error(data: bytes) -> None:
    assert isinstance(blackbox.read(data), blackbox.BlackBox)
