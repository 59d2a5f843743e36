from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria.contract import error_file
from planaria.contract.error_file import ErrorFile

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["message", "extraInfo", "py_callstack"]), inner),
)


def test_both_shapes_of_torch_are_read() -> None:
    long = {"message": {"message": "E: x", "extraInfo": {"py_callstack": "stack", "timestamp": "1"}, "errorCode": 3}}
    assert error_file.read(json.dumps(long).encode()) == ErrorFile("E: x", "stack")
    assert error_file.read(b'{"message": "E: x", "timestamp": 17}') == ErrorFile("E: x")


def test_what_we_write_we_read() -> None:
    data = error_file.write("E: x", "stack", status=3, wall_time_s=17)
    assert error_file.read(data) == ErrorFile("E: x", "stack")
    assert json.loads(data)["message"]["errorCode"] == 3


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b'{"message": {"mess', "is not whole JSON; it begins"),
        (b"\xff\xfe\xfd", "is not whole JSON"),
        (b"[" * 100_000, "is not whole JSON"),
        (b"x" * error_file.LIMIT_BYTES, "(longer than 1 MiB)"),
        (b"[]", 'has no field "message"'),
        (b'{"message": 7}', 'has no field "message"'),
    ],
)
def test_a_broken_file_is_named_as_such(data: bytes, problem: str) -> None:
    found = error_file.read(data)
    assert problem in found.problem
    assert (found.message, found.traceback) == ("", "")


@given(st.binary() | VALUES.map(lambda value: json.dumps(value).encode()))
def test_no_content_is_an_error(data: bytes) -> None:
    assert isinstance(error_file.read(data), ErrorFile)


@pytest.mark.parametrize(
    ("found", "seconds"),
    [
        ({"message": {"message": "E", "extraInfo": {"timestamp": "17"}}}, 17),
        ({"message": "E", "timestamp": 17}, 17),
        ({"message": "E", "timestamp": "17"}, 17),
        ({"message": "E"}, 0),
        ({"message": {"extraInfo": 7}}, 0),
        ({"message": {"extraInfo": {"timestamp": "soon"}}}, 0),
        ({"message": "E", "timestamp": float("nan")}, 0),
        ({"message": "E", "timestamp": float("inf")}, 0),
        ({"message": "E", "timestamp": [1]}, 0),
    ],
)
def test_the_time_is_found_in_both_shapes_or_is_zero(found: dict[str, object], seconds: int) -> None:
    assert error_file.seconds(found) == seconds


def test_a_worker_s_own_file_has_no_exit_code() -> None:
    told = json.loads(error_file.write("E: x", "stack", wall_time_s=17))
    assert told == {"message": {"message": "E: x", "extraInfo": {"py_callstack": "stack", "timestamp": "17"}}}


@given(st.binary() | VALUES.map(lambda value: json.dumps(value).encode()))
def test_what_can_be_parsed_has_a_time_and_what_cannot_has_a_problem(data: bytes) -> None:
    found, problem = error_file.parse(data)
    assert bool(found) != bool(problem)
    assert not found or isinstance(error_file.seconds(found), int)
