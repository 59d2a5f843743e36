from __future__ import annotations

import json
import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planaria.contract.timer import LINE_LIMIT_BYTES, TimerLine, decode, encode

LINES = st.builds(
    TimerLine,
    st.integers(1, (1 << 31) - 1),
    st.text(max_size=300),
    st.floats(allow_nan=False),
    st.integers(-10, 64),
)


@given(LINES)
def test_a_line_survives_the_pipe(line: TimerLine) -> None:
    text = encode(line)
    assert text.endswith(b"\n")
    assert text.count(b"\n") == 1
    assert decode(text) == line
    assert line.is_release == (line.expires_at < 0)


def test_a_line_has_the_fields_of_torch_in_their_order() -> None:
    fields = {"version": 1, "pid": 7, "scope_id": "a", "expiration_time": 2.5, "signal": 9}
    assert encode(TimerLine(7, "a", 2.5, 9)) == json.dumps(fields).encode() + b"\n"
    assert decode(json.dumps({**fields, "expiration_time": -1, "colour": "red"}).encode()) == TimerLine(7, "a", -1.0, 9)


def test_a_line_that_a_pipe_would_tear_is_not_written() -> None:
    room = LINE_LIMIT_BYTES - len(encode(TimerLine(7, "", 2.5, 9)))
    assert len(encode(TimerLine(7, "x" * room, 2.5, 9))) == LINE_LIMIT_BYTES
    with pytest.raises(ValueError, match="in one piece"):
        encode(TimerLine(7, "x" * (room + 1), 2.5, 9))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"pid": "7"}, "pid"),
        ({"pid": 0}, "pid"),
        ({"pid": -7}, "pid"),
        ({"pid": 1 << 31}, "pid"),
        ({"pid": True}, "pid"),
        ({"scope_id": 3}, "scope_id"),
        ({"expiration_time": None}, "expiration_time"),
        ({"expiration_time": math.nan}, "expiration_time"),
        ({"expiration_time": 10**400}, "expiration_time"),
        ({"signal": 65}, "signal"),
        ({"signal": 9.0}, "signal"),
    ],
)
def test_a_field_that_is_wrong_is_named(change: dict[str, object], why: str) -> None:
    fields = {"version": 1, "pid": 7, "scope_id": "a", "expiration_time": 2.5, "signal": 9, **change}
    with pytest.raises(ValueError, match=f"^{why} is not"):
        decode(json.dumps(fields).encode())


def test_a_time_may_be_infinitely_far() -> None:
    assert decode(encode(TimerLine(7, "a", math.inf, 9))).expires_at == math.inf


@given(
    st.binary()
    | st.sampled_from(["[]", "null", "true", "9" * 400, "9" * 5000, '"x"', "1e999", "{}", "-1"]).map(
        lambda value: f'{{"pid": {value}, "scope_id": {value}, "expiration_time": {value}, "signal": {value}}}'.encode()
    )
)
def test_nonsense_is_a_value_error(text: bytes) -> None:
    with suppress(ValueError):
        assert isinstance(decode(text), TimerLine)


def test_nesting_without_end_is_not_json() -> None:
    with pytest.raises(ValueError, match="not JSON"):
        decode(b"[" * 100_000)
